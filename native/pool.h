// Threads that share the rows of one large graph. They sleep while they wait: who solves graph after graph, or another
// program, needs the cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#if !defined(_WIN32)
#include <unistd.h>
#endif

#include "levels.h"

namespace krylow {

class Pool {
  public:
    // Call body(part) for all parts from 0 on, on at most so many threads, this one among them.
    template <class Body>
    static void run(Size parts, int threads, const Body& body) {
        if (threads <= 1 || parts <= 1) {
            for (Size part = 0; part < parts; ++part) body(part);
            return;
        }
        Job job;
        job.parts = parts;
        job.body = &body;
        job.call = [](const void* own, Size part) { (*static_cast<const Body*>(own))(part); };
        here().share(job, threads - 1 < parts - 1 ? threads - 1 : static_cast<int>(parts - 1));
        if (job.error) std::rethrow_exception(job.error);
    }

  private:
    struct Job {
        const void* body = nullptr;
        void (*call)(const void*, Size) = nullptr;
        Size parts = 0;
        std::atomic<Size> next{0};
        int helpers = 0;  // that have not come yet, and those at work; under the pool's lock
        int working = 0;
        std::exception_ptr error;
    };

    // A child of fork has none of its parent's threads, and perhaps its lock in a state that nobody will change: it
    // leaves the parent's pool alone and makes its own. Pools are never destroyed, as threads may outlive `main`.
    static Pool& here() {
        static std::atomic<Pool*> current{nullptr};
        Pool* pool = current.load();
        if (pool == nullptr || pool->process_ != process()) {
            Pool* const fresh = new Pool;
            if (current.compare_exchange_strong(pool, fresh))
                pool = fresh;
            else
                delete fresh;
        }
        return *pool;
    }

    static long process() {
#if defined(_WIN32)
        return 0;
#else
        return static_cast<long>(getpid());
#endif
    }

    void share(Job& job, int helpers) {
        {
            const std::lock_guard lock(mutex_);
            try {
                while (threads_ < helpers) {
                    std::thread([this] { serve(); }).detach();
                    ++threads_;
                }
            } catch (const std::exception&) {  // the system gives no more threads: those that are there do it
            }
            job.helpers = threads_ < helpers ? threads_ : helpers;
            if (job.helpers > 0) jobs_.push_back(&job);
        }
        if (helpers == 1)
            wake_.notify_one();
        else
            wake_.notify_all();
        work(job);
        std::unique_lock lock(mutex_);
        if (job.helpers > 0) {
            for (auto place = jobs_.begin(); place != jobs_.end(); ++place) {
                if (*place == &job) {
                    jobs_.erase(place);
                    break;
                }
            }
        }
        done_.wait(lock, [&job] { return job.working == 0; });
    }

    void work(Job& job) {
        try {
            for (Size part; (part = job.next.fetch_add(1)) < job.parts;) job.call(job.body, part);
        } catch (...) {
            job.next = job.parts;
            const std::lock_guard lock(mutex_);
            if (!job.error) job.error = std::current_exception();
        }
    }

    void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return !jobs_.empty(); });
            Job& job = *jobs_.front();
            ++job.working;
            if (--job.helpers == 0) jobs_.pop_front();
            lock.unlock();
            work(job);
            lock.lock();
            if (--job.working == 0) done_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::deque<Job*> jobs_;
    int threads_ = 0;
    const long process_ = process();
};

// Entries times columns that are worth a thread of their own, and parts a thread: whoever is done takes the next.
inline constexpr Size work_per_thread = 500'000, parts_per_thread = 4;

// Call use(start, stop) for ranges of rows of about as many entries each.
template <class I, class Use>
void share_rows(const I* crow, Size n, Size columns, int threads, const Use& use) {
    const Size count = crow[n], most = count * columns / work_per_thread;
    threads = static_cast<int>(std::max<Size>(1, std::min<Size>(threads, most)));
    if (threads == 1) {
        use(Size{0}, n);
        return;
    }
    const Size parts = threads * parts_per_thread;
    const auto start = [&](Size part) -> Size {
        if (part == 0 || part == parts) return part == 0 ? 0 : n;
        return std::min<Size>(n, std::lower_bound(crow, crow + n + 1, static_cast<I>(count / parts * part)) - crow);
    };
    Pool::run(parts, threads, [&](Size part) { use(start(part), start(part + 1)); });
}

}  // namespace krylow
