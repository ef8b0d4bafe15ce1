#include "base/fork_gate.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

namespace distag {
namespace {

std::atomic<int> passed{0};
std::atomic<int> arrived{0};

int fork_and_wait(int (*in_child)()) {
  const pid_t child = fork();
  if (child == 0) _exit(in_child());
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

int take_gate() {
  const NoFork gate;
  return 0;
}

TEST(ForkGateTest, AForkWaitsForThoseThatAreUnderWay) {
  ASSERT_EQ(pthread_atfork([] { ++arrived; }, nullptr, nullptr), 0);  // runs before the gate's
  for (int i = 0; i < 20; ++i) {
    std::optional<NoFork> gate(std::in_place);
    const int before = arrived;
    passed = 0;
    std::thread forker([] {
      EXPECT_EQ(fork_and_wait(take_gate), 0);
      passed = 1;
    });
    while (arrived == before) std::this_thread::yield();
    for (int turn = 0; turn < 1000; ++turn) {
      ASSERT_EQ(passed, 0);
      std::this_thread::yield();
    }
    gate.reset();
    forker.join();
    EXPECT_EQ(passed, 1);
  }
}

TEST(ForkGateTest, ForksAreCountedInParentAndChild) {
  static uint64_t before = 0;
  before = NoFork().forks();
  const auto is_next = [] { return NoFork().forks() == before + 1 ? 0 : 1; };
  EXPECT_EQ(fork_and_wait(is_next), 0);
  EXPECT_EQ(is_next(), 0);
}

TEST(ForkGateTest, AForkIsNotStarvedByThreadsThatFollowEachOther) {
  std::atomic<bool> is_over{false};
  std::atomic<int> turns{0};
  const auto take_turns = [&is_over, &turns] {
    while (!is_over) {
      const NoFork gate;
      ++turns;
    }
  };
  std::thread one(take_turns);
  std::thread other(take_turns);
  while (turns == 0) std::this_thread::yield();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(fork_and_wait(take_gate), 0);
  is_over = true;
  one.join();
  other.join();
}

}  // namespace
}  // namespace distag
