// An array of any content that frees itself, on huge pages where the system has them.
#pragma once

#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "levels.h"

namespace krylow {

template <class T>
class Array {
    static_assert(std::is_trivial_v<T>);

  public:
    explicit Array(Size size = 0) : size_(size) {
        if (size < 0) throw std::bad_alloc();
        const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
        align_ = bytes >= huge ? huge : line;
        data_ = static_cast<T*>(::operator new(bytes > 0 ? bytes : 1, std::align_val_t{align_}));
#if defined(__linux__)
        if (bytes >= huge) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
    }
    Array(Size size, T value) : Array(size) {
        for (Size i = 0; i < size; ++i) data_[i] = value;
    }
    Array(Array&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), align_(other.align_) {}
    Array& operator=(Array&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(align_, other.align_);
        return *this;
    }
    ~Array() {
        if (data_ != nullptr) ::operator delete(data_, std::align_val_t{align_});
    }

    T& operator[](Size i) { return data_[i]; }
    const T& operator[](Size i) const { return data_[i]; }
    T* data() { return data_; }
    const T* data() const { return data_; }
    Size size() const { return size_; }

    // The same array with its first entries alone: in a buffer of its own where that is less than half of this one.
    Array first(Size count) && {
        if (2 * count >= size_) {
            size_ = count;
            return std::move(*this);
        }
        Array part(count);
        for (Size i = 0; i < count; ++i) part[i] = data_[i];
        return part;
    }

  private:
    static constexpr std::size_t line = 64, huge = std::size_t{1} << 21;
    T* data_;
    Size size_;
    std::size_t align_;
};

}  // namespace krylow
