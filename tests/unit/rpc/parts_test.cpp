#include <gtest/gtest.h>

#include <set>

#include "rpc/deadlines.h"
#include "rpc/function_table.h"
#include "rpc/running_functions.h"
#include "support/sim_lanes.h"
#include "support/sim_scheduler.h"

namespace distag {
namespace {

// ---- deadlines ----

class DeadlinesTest : public ::testing::Test {
 protected:
  DeadlinesTest()
      : scheduler(1),
        loop(scheduler, "loop"),
        deadlines(
            loop, [this](const Id& id) { return open.contains(id); },
            [this](const Id& id) {
              fired.push_back(id.counter);
              open.erase(id);
            }) {}
  ~DeadlinesTest() override {
    loop.run([this] { deadlines.clear(); });
  }

  void add(uint64_t counter, Nanos after) {
    open.insert({1, counter});
    loop.run([&] { deadlines.add({1, counter}, start + after); });
  }
  void end(uint64_t counter, Nanos after) {
    open.erase({1, counter});
    loop.run([&] { deadlines.note_end(start + after); });
  }

  sim::SimScheduler scheduler;
  sim::SimLoop loop;
  const Nanos start = kSecond;
  std::set<Id> open;
  std::vector<uint64_t> fired;
  Deadlines deadlines;
};

TEST_F(DeadlinesTest, FireInTheirOrderWhateverTheOrderOfAdding) {
  add(1, 30 * kMillisecond);
  add(2, 10 * kMillisecond);
  add(3, 20 * kMillisecond);
  scheduler.run_for(15 * kMillisecond);
  EXPECT_EQ(fired, (std::vector<uint64_t>{2}));
  scheduler.run_for(kSecond);
  EXPECT_EQ(fired, (std::vector<uint64_t>{2, 3, 1}));
}

TEST_F(DeadlinesTest, OfCallsThatEndedDoNotFire) {
  add(1, 10 * kMillisecond);
  add(2, 20 * kMillisecond);
  end(1, 10 * kMillisecond);
  scheduler.run_for(kSecond);
  EXPECT_EQ(fired, (std::vector<uint64_t>{2}));
}

TEST_F(DeadlinesTest, NeverAddNothing) {
  open.insert({1, 1});
  loop.run([this] { deadlines.add({1, 1}, kNever); });
  EXPECT_EQ(loop.timer_count(), 0u);
}

TEST_F(DeadlinesTest, KeepOneTimerForManyCalls) {
  for (uint64_t i = 1; i <= 10000; ++i) {
    const Nanos after = kSecond + static_cast<Nanos>(i) * kMicrosecond;
    add(i, after);
    if (i > 3) end(i, after);
  }
  EXPECT_EQ(loop.timer_count(), 1u);
  scheduler.run_for(2 * kSecond);
  EXPECT_EQ(fired, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(loop.timer_count(), 0u);
}

// ---- functions ----

TEST(FunctionTable, FindsWhatWasAddedAndRefusesTheRest) {
  FunctionTable table;
  table.add("f", {[](Invocation&) {}});
  EXPECT_NE(table.find("f"), nullptr);
  EXPECT_EQ(table.find("g"), nullptr);
  const auto status_of = [&table](const std::string& name, Function function) {
    try {
      table.add(name, {std::move(function)});
    } catch (const Error& error) {
      return error.status();
    }
    return Status::kOk;
  };
  const Function nothing = [](Invocation&) {};
  EXPECT_EQ(status_of("f", nothing), Status::kInvalidState);
  EXPECT_EQ(status_of("", nothing), Status::kInvalidArgument);
  EXPECT_EQ(status_of(std::string(128, 'x'), nothing), Status::kInvalidArgument);
  EXPECT_EQ(status_of(std::string(127, 'x'), nothing), Status::kOk);
  EXPECT_EQ(status_of("\xFF", nothing), Status::kInvalidArgument);
  EXPECT_EQ(status_of("empty", Function()), Status::kInvalidArgument);
}

TEST(FunctionTable, LetsGoOfAFunctionThatItRefuses) {
  FunctionTable table;
  table.add("f", {[](Invocation&) {}});
  auto held = std::make_shared<int>(0);
  EXPECT_THROW(table.add("f", {[held](Invocation&) {}}), Error);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(FunctionTable, ForgetsWhatWasRemovedAndTakesTheNameAgain) {
  FunctionTable table;
  auto held = std::make_shared<int>(0);
  table.add("f", {[held](Invocation&) {}});
  auto running = table.find("f");
  table.remove("f");
  table.remove("f");
  EXPECT_EQ(table.find("f"), nullptr);
  EXPECT_EQ(held.use_count(), 2);
  running.reset();
  EXPECT_EQ(held.use_count(), 1);
  table.add("f", {[](Invocation&) {}});
  EXPECT_NE(table.find("f"), nullptr);
}

TEST(RunningFunctions, NameThoseThatRunAndCloseTheDoor) {
  RunningFunctions running;
  const std::string names[] = {"a", "b", "c"};
  RunningFunctions::Run runs[3];
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(running.begin(runs[i], names[i]));
  auto empty = running.when_empty();
  running.end(runs[0]);
  EXPECT_EQ(running.names(), (std::vector<std::string>{"c", "b"}));
  running.close();
  EXPECT_FALSE(running.begin(runs[0], names[0]));
  running.end(runs[1]);
  EXPECT_FALSE(empty->is_done());
  running.end(runs[2]);
  EXPECT_TRUE(empty->is_done());
  EXPECT_TRUE(running.is_empty());
}

}  // namespace
}  // namespace distag
