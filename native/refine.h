// Refinement of a cut in two by moves of single nodes (Fiduccia and Mattheyses, 1982), with heaps for weights that are
// no integers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "graph.h"

namespace krylow {

// A cut of the weights -values[p] off the diagonal: `side` is 0 or 1 for each node, and side 0 is to weigh `target`,
// give or take `slack`.
template <class I, class V>
class Refinement {
  public:
    Refinement(const Rows<I>& L, const V* values, const double* weights, std::uint8_t* side, double target,
               double slack)
        : L_(L),
          values_(values),
          weights_(weights),
          side_(side),
          slack_(slack),
          gain_(L.n),
          locked_(L.n),
          listed_(L.n, false) {
        excess_ = -target;
        for (Size i = 0; i < L.n; ++i) excess_ += side[i] ? 0 : weights[i];
    }

    // Passes until one does not help, and the cut in the end. A pass ends after `patience` moves without a better cut.
    double run(int passes, Size patience) {
        double cut = start();
        for (int pass = 0; pass < passes; ++pass) {
            const double before = cut, excess = excess_;
            move(patience);
            cut = start();  // counted anew: gains are sums and differences, whose rounding may exceed a small cut
            const double off = outside(excess_), former = outside(excess);
            if (off < former || (off == former && cut < before)) continue;
            undo(0);
            return before;
        }
        return cut;
    }

  private:
    struct Entry {
        double gain;
        Size stamp;  // of equal gains the last one comes first: it continues where the moves before it were
        I node;
        bool operator<(const Entry& other) const {
            return gain < other.gain || (gain == other.gain && stamp < other.stamp);
        }
    };

    double outside(double excess) const { return std::max(0.0, std::abs(excess) - slack_); }

    void list(Size i) {
        if (listed_[i]) return;
        listed_[i] = true;
        active_.push_back(static_cast<I>(i));
    }

    void push(Size i) {
        list(i);
        auto& heap = heaps_[side_[i]];
        heap.push_back({gain_[i], stamp_++, static_cast<I>(i)});
        std::push_heap(heap.begin(), heap.end());
    }

    // Whether a side has a node to move: entries out of date go, to a lower place where the gain has become less.
    bool ready(int from) {
        auto& heap = heaps_[from];
        while (!heap.empty()) {
            const Entry top = heap.front();
            const bool free = !locked_[top.node];
            if (free && gain_[top.node] == top.gain) return true;
            std::pop_heap(heap.begin(), heap.end());
            heap.pop_back();
            if (free && gain_[top.node] < top.gain) push(top.node);
        }
        return false;
    }

    // What moving node i gains, and what it has across the cut; at the cut it enters its heap.
    double enter(Size i) {
        double within = 0, across = 0;
        bool boundary = false;
        for (Size p = L_.crow[i]; p < L_.crow[i + 1]; ++p) {
            const Size j = L_.col[p];
            if (j == i) continue;
            const bool apart = side_[j] != side_[i];
            (apart ? across : within) -= static_cast<double>(values_[p]);
            boundary |= apart;
        }
        gain_[i] = across - within;
        locked_[i] = false;
        if (boundary || gain_[i] >= 0) push(i);
        return across;
    }

    // Gains and the cut, counted anew where anything has changed.
    double start() {
        double twice = 0;
        heaps_[0].clear();
        heaps_[1].clear();
        if (stamp_ == 0) {
            for (Size i = 0; i < L_.n; ++i) twice += enter(i);
        } else {
            for (const I i : active_) twice += enter(i);
        }
        return twice / 2;
    }

    void flip(Size i) {
        excess_ += side_[i] ? weights_[i] : -weights_[i];
        side_[i] ^= 1;
    }

    void undo(Size kept) {
        for (; static_cast<Size>(moved_.size()) > kept; moved_.pop_back()) flip(moved_.back());
    }

    // The side to move from, or -1: the one that is too heavy, otherwise that of the larger gain.
    int choose() {
        if (outside(excess_) > 0) {
            const int from = excess_ > 0 ? 0 : 1;
            if (ready(from)) return from;
            for (Size i = 0; i < L_.n; ++i) {  // no node of it is at the cut
                if (side_[i] == from && !locked_[i]) push(i);
            }
            return ready(from) ? from : -1;
        }
        const bool first = ready(0), second = ready(1);
        if (first && second) return heaps_[0].front() < heaps_[1].front() ? 1 : 0;
        return first ? 0 : second ? 1 : -1;
    }

    // Move nodes one after the other, then take back all after the best state: sizes first, then the cut.
    void move(Size patience) {
        double total = 0;
        const auto state = [&] { return std::array{outside(excess_), -total, std::abs(excess_)}; };
        auto best = state();
        Size kept = 0;
        moved_.clear();
        while (static_cast<Size>(moved_.size()) < kept + patience) {
            const int from = choose();
            if (from < 0) break;
            const Size i = heaps_[from].front().node;
            total += gain_[i];
            locked_[i] = true;
            flip(i);
            moved_.push_back(static_cast<I>(i));
            for (Size p = L_.crow[i]; p < L_.crow[i + 1]; ++p) {
                const Size j = L_.col[p];
                const double twice = -2 * static_cast<double>(values_[p]);
                if (j == i || locked_[j] || twice == 0) continue;
                const double change = side_[j] == from ? twice : -twice;
                gain_[j] += change;
                list(j);
                if (change > 0) push(j);  // otherwise it is in its heap, higher than it should be, or gains nothing
            }
            if (state() < best) {
                best = state();
                kept = static_cast<Size>(moved_.size());
            }
        }
        undo(kept);
    }

    const Rows<I> L_;
    const V* const values_;
    const double* const weights_;
    std::uint8_t* const side_;
    const double slack_;
    double excess_;  // of side 0
    Array<double> gain_;
    Array<bool> locked_;  // moved in this pass
    Array<bool> listed_;  // at the cut or beside a node that moved, in any pass: the others stay what they are
    std::vector<I> active_, moved_;
    std::vector<Entry> heaps_[2];
    Size stamp_ = 0;
};

}  // namespace krylow
