#include "base/process_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>
#include <vector>

namespace distag {
namespace {

struct Count {
  int value = 7;
};
using Access = ProcessState<Count>::Access;

// Whether that is so in a forked child, which a hang would end.
bool is_so_in_child(const std::function<bool()>& test) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(test() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ProcessStateTest, AForkedChildBeginsAnewThoughAThreadOfItsParentHeldTheLock) {
  static ProcessState<Count> shared;
  Access(shared)->value = 1;
  std::promise<void> is_held, may_end;
  std::thread holder([&is_held, &may_end] {
    const Access count(shared);
    count->value = 2;
    is_held.set_value();
    may_end.get_future().wait();
    count->value = 3;
  });
  is_held.get_future().wait();
  EXPECT_TRUE(is_so_in_child([] {
    const bool is_new = Access(shared)->value == 7;
    Access(shared)->value = 8;
    return is_new && Access(shared)->value == 8 && is_so_in_child([] { return Access(shared)->value == 7; });
  }));
  may_end.set_value();
  holder.join();
  EXPECT_EQ(Access(shared)->value, 3);
}

TEST(ProcessStateTest, OneThreadAtATimeHasIt) {
  static ProcessState<Count> shared;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([] {
      for (int turn = 0; turn < 10'000; ++turn) ++Access(shared)->value;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Access(shared)->value, 40'007);
}

}  // namespace
}  // namespace distag
