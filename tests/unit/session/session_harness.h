#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/session_node.h"

namespace distag {

inline std::vector<uint64_t> count_to(uint64_t last) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 1; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

// Two workers that know each other.
class PairOfSessions : public testing::Test {
 protected:
  explicit PairOfSessions(uint64_t seed = 1, SessionConfig config = {})
      : scheduler(seed),
        network(scheduler),
        a(scheduler, network, "a", 0, config),
        b(scheduler, network, "b", 1, config) {
    a.know(b);
    b.know(a);
  }

  bool run_until(const std::function<bool()>& condition, Nanos timeout = 60 * kSecond) {
    return scheduler.run_until(condition, timeout);
  }

  // Sends a message each way, so that both streams are open.
  void meet() {
    a.say(b, 1);
    b.say(a, 1);
    ASSERT_TRUE(
        run_until([&] { return a.heard.size() == 1 && b.heard.size() == 1 && a.is_drained() && b.is_drained(); }));
  }

  SimScheduler scheduler;
  SimNetwork network;
  Node a;
  Node b;
};

}  // namespace distag
