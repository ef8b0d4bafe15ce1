#include "transport/zmq/lent_frames.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <thread>
#include <utility>

namespace distag {
namespace {

// A loop without memory for a task: it takes those that bring their place, and runs them when the test says so.
class LoopWithoutMemory : public Loop {
 public:
  bool post(Task) override { throw std::bad_alloc(); }
  bool post(TaskPlace& place, Task task) noexcept override {
    ++posts;
    if (is_stopping) return false;
    place.put(std::move(task));
    place_ = &place;
    return true;
  }
  TimerId start_timer(Nanos, Task) override { throw std::bad_alloc(); }
  void start_timer(TaskPlace&, Nanos, Task) noexcept override {}
  void cancel_timer(TimerId) override {}
  const Clock& clock() const override { return clock_; }
  bool is_current() const override { return true; }

  void run() {
    Task task = std::exchange(place_, nullptr)->take();
    task();
  }

  int posts = 0;
  bool is_stopping = false;

 private:
  SteadyClock clock_;
  TaskPlace* place_ = nullptr;
};

class LentFramesTest : public testing::Test {
 protected:
  void give_back_one() {
    auto owner = std::shared_ptr<const void>(&alive_, [this](const void*) { --alive_; });
    ++alive_;
    auto loan = std::make_unique<LentFrames::Loan>(std::move(owner), frames_);
    std::thread([&] { LentFrames::give_back(std::move(loan)); }).join();
  }

  LoopWithoutMemory loop_;
  std::shared_ptr<LentFrames> frames_ = std::make_shared<LentFrames>(loop_);
  int alive_ = 0;
};

TEST_F(LentFramesTest, OwnersComeBackToALoopWithoutMemory) {
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 1000; ++i) give_back_one();
    EXPECT_EQ(alive_, 1000) << "one was destroyed on a thread of libzmq";
    EXPECT_EQ(loop_.posts, round) << "one task brings all of them";
    loop_.run();
    EXPECT_EQ(alive_, 0);
  }
}

TEST_F(LentFramesTest, WhatALoopThatStopsRefusedGoesWithTheContext) {
  loop_.is_stopping = true;
  for (int i = 0; i < 3; ++i) give_back_one();
  EXPECT_EQ(alive_, 3);
  frames_->release();
  EXPECT_EQ(alive_, 0);
}

TEST_F(LentFramesTest, WhatCameBackDoesNotKeepItsHome) {
  loop_.is_stopping = true;
  give_back_one();
  frames_.reset();
  EXPECT_EQ(alive_, 0);
}

}  // namespace
}  // namespace distag
