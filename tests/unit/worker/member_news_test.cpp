#include "worker/member_news.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace distag {
namespace {

// A loop without memory for a task: it takes those that bring their place, and runs them when the test says so.
class PlacesLoop final : public Loop {
 public:
  bool post(Task) override { throw std::bad_alloc(); }
  bool post(TaskPlace& place, Task task) noexcept override { return put(place, std::move(task)); }
  TimerId start_timer(Nanos, Task) override { throw std::bad_alloc(); }
  void start_timer(TaskPlace& place, Nanos when, Task task) noexcept override {
    EXPECT_GT(when, now());
    put(place, std::move(task));
  }
  void cancel_timer(TimerId) override {}
  const distag::Clock& clock() const override { return clock_; }
  bool is_current() const override { return true; }

  // False: nothing is to be run.
  bool run_one() {
    if (place_ == nullptr) return false;
    Task task = std::exchange(place_, nullptr)->take();
    task();
    return true;
  }

 private:
  bool put(TaskPlace& place, Task task) noexcept {
    EXPECT_EQ(place_, nullptr);
    place.put(std::move(task));
    place_ = &place;
    return true;
  }

  SteadyClock clock_;
  TaskPlace* place_ = nullptr;
};

// Refuses the posts that the test names, counted from 1.
class ShortExecutor final : public Executor {
 public:
  bool post(Task task) override {
    if (++posts_ == refused) throw std::bad_alloc();
    tasks_.push_back(std::move(task));
    return true;
  }
  size_t waiting() const override { return tasks_.size(); }

  bool run_one() {
    if (tasks_.empty()) return false;
    Task task = std::move(tasks_.front());
    tasks_.erase(tasks_.begin());
    task();
    return true;
  }

  int refused = 0;

 private:
  int posts_ = 0;
  std::vector<Task> tasks_;
};

class MemberNewsTest : public testing::Test {
 protected:
  void post(int32_t rank) {
    MemberRecord record;
    record.peer.rank = rank;
    news_->post(record);
  }
  void run_all() {
    while (functions_.run_one() || loop_.run_one()) {
    }
  }
  bool run_host_code(const std::function<void()>& code) {
    if (++runs_ == refused_run_) throw std::bad_alloc();
    code();
    return true;
  }

  PlacesLoop loop_;
  ShortExecutor functions_;
  int runs_ = 0;
  int refused_run_ = 0;
  std::vector<int32_t> told_;
  std::shared_ptr<MemberNews> news_ = std::make_shared<MemberNews>(
      loop_, functions_, [this](const std::function<void()>& code) { return run_host_code(code); },
      [this](const MemberRecord& record) { told_.push_back(record.peer.rank); });
};

TEST_F(MemberNewsTest, AStepThatIsRefusedComesLaterWithAllRecords) {
  for (int refused = 1; refused <= 5; ++refused) {
    functions_ = {};
    told_.clear();
    functions_.refused = refused;
    for (int32_t rank = 0; rank < 3; ++rank) post(rank);
    run_all();
    EXPECT_EQ(told_, (std::vector<int32_t>{0, 1, 2})) << "post " << refused << " was refused";
    post(3);
    run_all();
    EXPECT_EQ(told_, (std::vector<int32_t>{0, 1, 2, 3})) << "post " << refused << " was refused";
  }
}

TEST_F(MemberNewsTest, ARecordThatCouldNotBeToldIsToldLaterOnce) {
  for (int refused = 1; refused <= 3; ++refused) {
    told_.clear();
    runs_ = 0;
    refused_run_ = refused;
    for (int32_t rank = 0; rank < 3; ++rank) post(rank);
    run_all();
    EXPECT_EQ(told_, (std::vector<int32_t>{0, 1, 2})) << "run " << refused << " was refused";
  }
}

TEST_F(MemberNewsTest, OneRecordIsToldAtATime) {
  for (int32_t rank = 0; rank < 3; ++rank) post(rank);
  for (size_t told = 1; told <= 3; ++told) {
    EXPECT_EQ(functions_.waiting(), 1u);
    functions_.run_one();
    EXPECT_EQ(told_.size(), told);
  }
  EXPECT_EQ(functions_.waiting(), 0u);
}

}  // namespace
}  // namespace distag
