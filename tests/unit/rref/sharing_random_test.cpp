// The reference protocol at random: 100,000 steps of users, messages and losses, with many values at a time.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/random.h"
#include "sharing_group.h"

namespace distag::testing {
namespace {

constexpr uint64_t kRuns = 500;
constexpr size_t kStepsPerRun = 200;

class RandomRun {
 public:
  explicit RandomRun(uint64_t seed) : random_(seed), size_(2 + below(4)), group_(size_), has_losses_(below(3) != 0) {
    if (below(4) == 0) group_.make_at_once();
  }

  void run() {
    for (size_t i = 0; i < kStepsPerRun; ++i) {
      if (below(2) == 0) {
        act();
      } else {
        happen();
      }
      group_.check();
    }
    for (size_t held : holders_) group_.drop(held);
    while (happen()) {
      for (size_t held : holders_) group_.drop(held);
      group_.check();
    }
    group_.check_empty();
  }

 private:
  uint64_t below(uint64_t bound) { return random_.next() % bound; }

  void act() {
    if (has_losses_ && below(60) == 0) {
      const auto a = static_cast<uint8_t>(below(size_)), b = static_cast<uint8_t>(below(size_));
      if (a != b && group_.is_alive(a)) {
        group_.play({below(2) == 0 ? Event::Kind::kCrash : Event::Kind::kPart, a, b});
      }
      return;
    }
    const size_t worker = below(size_);
    const size_t other = below(size_);
    switch (below(8)) {
      case 0:
        if (group_.is_alive(worker)) holders_.push_back(group_.create(worker));
        return;
      case 1:
        if (group_.is_alive(worker)) holders_.push_back(group_.remote(worker, other));
        return;
      case 2: {
        const size_t holder = pick();
        if (holder != SharingGroup::kNone && group_.is_in_queue(holder) && below(4) == 0) group_.fail_creation(holder);
        return;
      }
      case 3:
      case 4:
        if (const size_t holder = pick(); holder != SharingGroup::kNone) group_.drop(holder);
        return;
      default:
        if (const size_t holder = pick(); holder != SharingGroup::kNone) {
          const size_t shared = group_.share(holder, other);
          if (shared != SharingGroup::kNone) holders_.push_back(shared);
        }
    }
  }
  // A holder that has a reference now, if any.
  size_t pick() {
    std::vector<size_t> held;
    for (size_t holder : holders_) {
      if (group_.has(holder)) held.push_back(holder);
    }
    return held.empty() ? SharingGroup::kNone : held[below(held.size())];
  }
  bool happen() {
    const std::vector<Event> events = group_.next();
    if (events.empty()) {
      group_.check_quiet();
      return false;
    }
    group_.play(events[below(events.size())]);
    return true;
  }

  SeededRandom random_;
  const size_t size_;
  SharingGroup group_;
  const bool has_losses_;
  std::vector<size_t> holders_;
};

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// DISTAG_SIM_SEED=n runs that one alone, DISTAG_SIM_COUNT=n another number of them.
TEST(SharingRandomTest, NothingIsFreedEarlyAndNothingIsLeft) {
  const uint64_t only = number_from_environment("DISTAG_SIM_SEED", 0);
  const uint64_t last = only != 0 ? only : number_from_environment("DISTAG_SIM_COUNT", kRuns);
  for (uint64_t seed = only != 0 ? only : 1; seed <= last; ++seed) {
    try {
      RandomRun(seed).run();
    } catch (const std::exception& error) {
      FAIL() << error.what() << "\nreplay: DISTAG_SIM_SEED=" << seed;
    }
  }
}

}  // namespace
}  // namespace distag::testing
