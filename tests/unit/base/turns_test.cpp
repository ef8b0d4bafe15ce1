#include "base/turns.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/clock.h"

namespace distag {
namespace {

// Runs its tasks when it is told to. Says that it is current: there are no other threads.
class ManualLoop final : public Loop {
 public:
  [[nodiscard]] bool post(Task) override { throw std::bad_alloc(); }  // who has turns has made a place
  [[nodiscard]] bool post(TaskPlace& place, Task task) noexcept override {
    if (is_stopping) return false;
    tasks.push(place, std::move(task));
    return true;
  }
  TimerId start_timer(Nanos, Task) override { return 1; }
  void start_timer(TaskPlace&, Nanos, Task) noexcept override {}
  void cancel_timer(TimerId) override {}
  const Clock& clock() const override { return clock_; }
  bool is_current() const override { return true; }

  bool run_one() {
    if (tasks.empty()) return false;
    tasks.pop()();
    return true;
  }

  bool is_stopping = false;
  TaskQueue tasks;

 private:
  SteadyClock clock_;
};

std::vector<int> count_to(int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(Turns, FewItemsAreDoneAtOnce) {
  ManualLoop loop;
  Turns turns(loop);
  int seen = 0;
  bool is_over = false;
  turns.for_each(
      count_to(Turns::kItems), [&seen](int) { ++seen; }, [&is_over] { is_over = true; });
  EXPECT_EQ(seen, 64);
  EXPECT_TRUE(is_over);
  EXPECT_TRUE(loop.tasks.empty());
}

TEST(Turns, ManyItemsTakeATaskForEach64InTheirOrder) {
  ManualLoop loop;
  Turns turns(loop);
  std::vector<int> seen;
  bool is_over = false;
  turns.for_each(
      count_to(1000), [&seen](int item) { seen.push_back(item); }, [&is_over] { is_over = true; });
  size_t tasks = 1;
  EXPECT_EQ(seen.size(), 64u);
  for (; loop.run_one(); ++tasks) EXPECT_LE(seen.size(), (tasks + 1) * 64);
  EXPECT_EQ(tasks, 16u);
  EXPECT_EQ(seen, count_to(1000));
  EXPECT_TRUE(is_over);
}

TEST(Turns, NoItemsAreOverAtOnce) {
  ManualLoop loop;
  Turns turns(loop);
  bool is_over = false;
  turns.for_each(
      count_to(0), [](int) {}, [&is_over] { is_over = true; });
  EXPECT_TRUE(is_over);
}

TEST(Turns, OnALoopThatStopsTheyGoOnAtOnce) {
  ManualLoop loop;
  Turns turns(loop);
  loop.is_stopping = true;
  int seen = 0;
  turns.for_each(count_to(1000), [&seen](int) { ++seen; });
  EXPECT_EQ(seen, 1000);
}

TEST(Turns, AFailureLeavesTheOthersTheirTurn) {
  ManualLoop loop;
  Turns turns(loop);
  int seen = 0;
  const auto act = [&seen](int item) {
    ++seen;
    if (item == 3) throw std::runtime_error("three");
  };
  EXPECT_THROW(turns.for_each(count_to(200), act), std::runtime_error);
  while (loop.run_one()) {
  }
  EXPECT_EQ(seen, 200);
}

TEST(Turns, TheirEndLeavesTheRest) {
  ManualLoop loop;
  auto turns = std::make_unique<Turns>(loop);
  int seen = 0;
  turns->for_each(count_to(200), [&seen](int) { ++seen; });
  turns.reset();
  while (loop.run_one()) {
  }
  EXPECT_EQ(seen, 64);
}

}  // namespace
}  // namespace distag
