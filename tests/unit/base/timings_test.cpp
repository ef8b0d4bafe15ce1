#include "base/timings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>
#include <thread>

namespace distag {
namespace {

TraceEvent event_of(TraceCategory category, Nanos taken = kMillisecond, Nanos queued = -1) {
  TraceEvent event;
  event.category = category;
  event.begin = 100;
  event.end = 100 + taken;
  event.queued = queued;
  return event;
}

uint64_t count(const Histogram::Counts& counts) {
  return std::accumulate(counts.buckets.begin(), counts.buckets.end(), uint64_t{0});
}

TEST(Timings, KeepsCallsByFunctionAndTheRestAlone) {
  Timings timings;
  timings.add(event_of(TraceCategory::kCall, 5), "f");
  timings.add(event_of(TraceCategory::kCall, 7), "f");
  timings.add(event_of(TraceCategory::kCall, 9), "g");
  timings.add(event_of(TraceCategory::kServed, 30, 20), "f");
  timings.add(event_of(TraceCategory::kServed), "never begun, under a name that a peer chose");
  timings.add(event_of(TraceCategory::kPass, 11), "pass");
  TraceEvent part = event_of(TraceCategory::kPass);
  part.is_part = true;
  timings.add(part, "pass of another");
  timings.add(event_of(TraceCategory::kCollective, 13), "all_reduce");
  timings.add(event_of(TraceCategory::kOptimizer), "step");
  const auto functions = timings.functions();
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].name, "f");
  EXPECT_EQ(functions[0].made.sum, 12);
  EXPECT_EQ(count(functions[0].made), 2u);
  EXPECT_EQ(functions[0].queued.sum, 20);
  EXPECT_EQ(functions[0].served.sum, 30);
  EXPECT_EQ(count(functions[0].queued) + count(functions[0].served), 2u);
  EXPECT_EQ(functions[1].name, "g");
  EXPECT_EQ(functions[1].made.sum, 9);
  EXPECT_EQ(count(functions[1].served), 0u);
  EXPECT_EQ(timings.passes().sum, 11);
  EXPECT_EQ(timings.collectives().sum, 13);
}

TEST(Timings, FunctionsBeyondTheMostAreOther) {
  Timings timings;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < Timings::kMostFunctions + 9; ++i) {
      timings.add(event_of(TraceCategory::kCall), "f" + std::to_string(i));
    }
  }
  timings.add(event_of(TraceCategory::kServed, 5, 0), "late");
  const auto functions = timings.functions();
  ASSERT_EQ(functions.size(), Timings::kMostFunctions + 1);
  for (size_t i = 0; i < Timings::kMostFunctions; ++i) {
    EXPECT_EQ(functions[i].name, "f" + std::to_string(i));
    EXPECT_EQ(count(functions[i].made), 3u);
  }
  EXPECT_EQ(functions.back().name, Timings::kOther);
  EXPECT_EQ(count(functions.back().made), 27u);
  EXPECT_EQ(count(functions.back().served), 1u);
}

// Two of one name would be no metrics.
TEST(Timings, AFunctionNamedOtherIsOneOfTheOthers) {
  Timings timings;
  for (int i = 0; i < 2; ++i) timings.add(event_of(TraceCategory::kCall), Timings::kOther);
  timings.add(event_of(TraceCategory::kCall), "f");
  timings.add(event_of(TraceCategory::kCall), std::string(129, 'n'));  // longer than any name
  timings.add(event_of(TraceCategory::kCall), std::string(127, 'n'));
  const auto functions = timings.functions();
  ASSERT_EQ(functions.size(), 3u);
  EXPECT_EQ(functions[0].name, "f");
  EXPECT_EQ(functions[1].name, std::string(127, 'n'));
  EXPECT_EQ(functions[2].name, Timings::kOther);
  EXPECT_EQ(count(functions[2].made), 3u);
}

// New names on all threads at once, while another one reads: each name has one place, and no event is lost.
TEST(Timings, ManyThreadsMeetNewNames) {
  constexpr int kThreads = 4, kNames = 80, kRounds = 50;
  Timings timings;
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    while (!is_over) EXPECT_LE(timings.functions().size(), Timings::kMostFunctions + 1);
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&timings, thread] {
      for (int i = 0; i < kNames * kRounds; ++i) {
        timings.add(event_of(TraceCategory::kCall), "f" + std::to_string((i + thread) % kNames));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  reader.join();
  std::set<std::string> names;
  uint64_t total = 0;
  for (const auto& function : timings.functions()) {
    EXPECT_TRUE(names.insert(function.name).second) << function.name;
    total += count(function.made);
  }
  EXPECT_EQ(names.size(), Timings::kMostFunctions + 1);
  EXPECT_EQ(total, uint64_t{kThreads} * kNames * kRounds);
}

}  // namespace
}  // namespace distag
