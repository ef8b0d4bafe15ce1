#include "transport/zmq/lent_frames.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "base/fd_loop.h"

namespace distag {
namespace {

TEST(LentFrames, OwnersGoOnTheLoopWhateverThreadGivesThemBack) {
  int on_loop = 0;
  {
    FdLoop loop("test", {});
    loop.start();
    auto frames = std::make_shared<LentFrames>(loop);
    int value = 0;
    for (int i = 0; i < 100; ++i) {
      std::shared_ptr<const void> owner(&value, [&loop, &on_loop](const void*) {
        if (loop.is_current()) ++on_loop;
      });
      std::thread([&frames, &owner] { frames->give_back(std::move(owner)); }).join();
    }
    loop.stop();
  }
  EXPECT_EQ(on_loop, 100);
}

TEST(LentFrames, WhatComesBackAfterTheLoopHasEndedWaitsForTheRelease) {
  FdLoop loop("test", {});
  loop.stop();
  auto frames = std::make_shared<LentFrames>(loop);
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owner;
  frames->give_back(std::move(owner));
  EXPECT_FALSE(watch.expired());
  frames->release();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace distag
