#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "support/sim_scheduler.h"

namespace distag::sim {

// Records which workers could not hear each other, and for how long at a stretch: whether one may give up the other.
class Hearing {
 public:
  Hearing(const SimScheduler& scheduler, int32_t workers) : scheduler_(scheduler), workers_(workers) {}

  void note_stop(int32_t rank, bool stands) {
    look();
    if (stands) {
      stopped_.insert(rank);
    } else {
      stopped_.erase(rank);
    }
    look();
  }
  // A host without descriptors cannot make a connection again.
  void note_shortage(int32_t rank, bool is_short) {
    look();
    if (is_short) {
      short_.insert(rank);
    } else {
      short_.erase(rank);
    }
    look();
  }
  void note_part(int32_t a, int32_t b, bool is_parted) {
    look();
    if (is_parted) {
      parted_.insert(std::minmax(a, b));
    } else {
      parted_.erase(std::minmax(a, b));
    }
    look();
  }
  // A clock that jumps ahead in a silence, or right before it, sees that silence as longer by the jump.
  void note_jump(int32_t rank, Nanos ahead) {
    look();
    jumps_.push_back({rank, scheduler_.now(), ahead});
    for (auto& [pair, silence] : silences_) {
      if (pair.first == rank || pair.second == rank) silence.ahead += ahead;
    }
    look();
  }

  // The longest silence between the two, by the clock that saw the most of it.
  Nanos longest_silence(int32_t a, int32_t b) {
    look();
    const auto found = longest_.find(std::minmax(a, b));
    return found == longest_.end() ? 0 : found->second;
  }

 private:
  // Silences that follow each other this closely are one: a lost message is sent again, and may fall into the second.
  static constexpr Nanos kGap = 2500 * kMillisecond;

  using Pair = std::pair<int32_t, int32_t>;
  struct Silence {
    Nanos begin;
    Nanos end;
    Nanos ahead;
  };
  struct Jump {
    int32_t rank;
    Nanos when;
    Nanos ahead;
  };

  bool is_deaf(int32_t rank) const { return stopped_.contains(rank) || short_.contains(rank); }
  bool is_silent(int32_t a, int32_t b) const { return is_deaf(a) || is_deaf(b) || parted_.contains({a, b}); }

  // A message that was under way in a jump may be lost to the silence that follows.
  Nanos jumped(Nanos now, const Pair& pair) const {
    Nanos sum = 0;
    for (const Jump& jump : jumps_) {
      const bool is_theirs = jump.rank == pair.first || jump.rank == pair.second;
      if (is_theirs && now - jump.when <= kGap) sum += jump.ahead;
    }
    return sum;
  }

  void look() {
    const Nanos now = scheduler_.now();
    for (int32_t a = 0; a < workers_; ++a) {
      for (int32_t b = a; b < workers_; ++b) look(now, {a, b});
    }
  }
  void look(Nanos now, const Pair& pair) {
    auto known = silences_.find(pair);
    if (known != silences_.end() && known->second.end != kNever && now - known->second.end > kGap) {
      silences_.erase(known);
      known = silences_.end();
    }
    if (is_silent(pair.first, pair.second)) {
      if (known == silences_.end()) known = silences_.emplace(pair, Silence{now, kNever, jumped(now, pair)}).first;
      known->second.end = kNever;
    } else if (known != silences_.end() && known->second.end == kNever) {
      known->second.end = now;
    }
    if (known == silences_.end()) return;
    const Silence& silence = known->second;
    Nanos& longest = longest_[pair];
    longest = std::max(longest, std::min(now, silence.end) - silence.begin + silence.ahead);
  }

  const SimScheduler& scheduler_;
  const int32_t workers_;
  std::set<int32_t> stopped_;
  std::set<int32_t> short_;
  std::set<Pair> parted_;
  std::vector<Jump> jumps_;
  std::map<Pair, Silence> silences_;
  std::map<Pair, Nanos> longest_;
};

}  // namespace distag::sim
