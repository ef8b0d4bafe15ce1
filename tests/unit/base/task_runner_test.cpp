#include "base/task_runner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace distag {
namespace {

const char* no_name() { return "a call"; }

TEST(TaskRunnerTest, AFailureIsToldAndGoesNoFurther) {
  TaskRunner runner;
  std::vector<std::string> told;
  runner.set_on_failure([&told](const Error& error) { told.push_back(error.message()); });
  runner.run([] { fail(Status::kInvalidState, "a task"); }, no_name);
  runner.attempt([] { fail(Status::kInvalidState, "a step"); });
  EXPECT_EQ(told, (std::vector<std::string>{"a task", "a step"}));
}

TEST(TaskRunnerTest, TheLongestCallIsKeptAndItsEndIsTheTimeNow) {
  TaskRunner runner;
  const Nanos begin = runner.ask_clock();
  runner.run(
      [&runner] {
        const Nanos until = runner.clock().now() + kMillisecond;
        while (runner.clock().now() < until) {
        }
      },
      no_name);
  EXPECT_GE(runner.longest(), kMillisecond);
  EXPECT_GE(runner.last(), begin + kMillisecond);
  const Nanos longest = runner.longest();
  runner.ask_clock();
  runner.run([] {}, no_name);
  EXPECT_GE(runner.longest(), longest);
}

TEST(TaskRunnerTest, TheWatchdogHearsWhatRan) {
  TaskRunner runner;
  std::string heard;
  runner.set_watchdog([&heard](const char* what, const FdLoop::Cost& cost) {
    EXPECT_GE(cost.taken, 0);
    heard = what;
  });
  runner.run([] {}, no_name);
  EXPECT_EQ(heard, "a call");
}

}  // namespace
}  // namespace distag
