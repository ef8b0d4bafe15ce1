#include "base/block_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace distag {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct BlockPoolTest : testing::Test {
  ~BlockPoolTest() override { pool.close(); }

  std::vector<void*> take(size_t count, size_t size) {
    std::vector<void*> taken;
    for (size_t i = 0; i < count; ++i) taken.push_back(pool.take(size));
    return taken;
  }
  void give_back(const std::vector<void*>& blocks, size_t size, Nanos now) {
    for (void* block : blocks) pool.give_back(block, size, now);
  }

  BlockPool pool;
};

// The whole block can be written, and starts with a page.
TEST_F(BlockPoolTest, ABlockHasTheBytesThatWereAskedFor) {
  for (const size_t size :
       {(size_t{64} << 10) + 1, (size_t{72} << 10), (size_t{72} << 10) + 1, kMiB - 1, kMiB, kMiB + 1, 40 * kMiB}) {
    void* const block = pool.take(size);
    ASSERT_NE(block, nullptr) << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 4096, 0u) << size;
    std::memset(block, 1, size);
    pool.give_back(block, size, 0);
  }
}

TEST_F(BlockPoolTest, WhatCameBackIsTakenForAboutItsSizeTheLatestFirst) {
  const std::vector<void*> blocks = take(2, kMiB);
  give_back(blocks, kMiB, 0);
  EXPECT_EQ(pool.kept_bytes(), 2 * kMiB);
  EXPECT_NE(pool.take(kMiB - kMiB / 16), blocks[1]) << "it is of the next smaller class";
  EXPECT_EQ(pool.take(kMiB - kMiB / 16 + 1), blocks[1]);
  EXPECT_EQ(pool.take(kMiB), blocks[0]);
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST_F(BlockPoolTest, SixtyFourMebibytesAreKeptWhenLittleWasInUse) {
  const std::vector<void*> blocks = take(65, kMiB);
  give_back(blocks, kMiB, 0);
  EXPECT_EQ(pool.kept_bytes(), 64 * kMiB);
}

TEST_F(BlockPoolTest, AQuarterOfThePeakIsKeptWhichIsForgottenByHalves) {
  give_back(take(400, kMiB), kMiB, 0);
  EXPECT_EQ(pool.kept_bytes(), 100 * kMiB);
  pool.drop();
  EXPECT_EQ(pool.kept_bytes(), 0u);
  pool.trim(0);
  pool.trim(0);
  give_back(take(80, kMiB), kMiB, 0);
  EXPECT_EQ(pool.kept_bytes(), 64 * kMiB);
}

TEST_F(BlockPoolTest, WhatNobodyWantedForASecondIsFreed) {
  std::vector<void*> blocks = take(3, kMiB);
  give_back({blocks[0]}, kMiB, 0);
  give_back({blocks[1]}, kMiB, 1);
  pool.trim(kSecond - 1);
  EXPECT_EQ(pool.kept_bytes(), 2 * kMiB);
  pool.trim(kSecond);
  EXPECT_EQ(pool.kept_bytes(), kMiB);
  give_back({blocks[2]}, kMiB, 10 * kSecond);
  EXPECT_EQ(pool.kept_bytes(), kMiB) << "a block that comes back frees those that are idle";
  EXPECT_EQ(pool.take(kMiB), blocks[2]);
}

TEST_F(BlockPoolTest, FreesNoMoreAtOnceThanTakesSomeMilliseconds) {
  give_back(take(400, kMiB), kMiB, 0);
  pool.trim(kSecond);
  EXPECT_EQ(pool.kept_bytes(), 36 * kMiB);
  void* const other = pool.take(2 * kMiB);
  pool.give_back(other, 2 * kMiB, kSecond);
  EXPECT_EQ(pool.kept_bytes(), 2 * kMiB) << "the rest goes at the next chance";
}

TEST_F(BlockPoolTest, KeepsNothingOnceItIsClosed) {
  const std::vector<void*> blocks = take(2, kMiB);
  give_back({blocks[0]}, kMiB, 0);
  pool.close();
  EXPECT_EQ(pool.kept_bytes(), 0u);
  give_back({blocks[1]}, kMiB, 0);
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST_F(BlockPoolTest, ASizeThatNoMachineHasIsNoMemory) {
  EXPECT_EQ(pool.take(size_t{1} << 46), nullptr);
  EXPECT_EQ(pool.take(size_t{1} << 60), nullptr);
  void* const block = pool.take(kMiB);
  pool.give_back(block, kMiB, 0);
  EXPECT_EQ(pool.kept_bytes(), kMiB) << "what was not given is not in use";
}

TEST_F(BlockPoolTest, IsUsedByManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t, &wrong] {
      for (int i = 0; i < 500; ++i) {
        const size_t size = (size_t{70} << 10) + static_cast<size_t>(i % 5) * (size_t{8} << 10);
        auto* const block = static_cast<unsigned char*>(pool.take(size));
        std::memset(block, t, size);
        if (block[0] != t || block[size - 1] != t) ++wrong;
        pool.give_back(block, size, i * kMillisecond);
        if (i % 50 == 0) pool.trim(i * kMillisecond);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  pool.drop();
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

// Children are made while other threads take and give back: some of them with the lock held.
TEST_F(BlockPoolTest, AChildOfForkNeverWaitsForALockThatNobodyHolds) {
  std::atomic<bool> is_over{false};
  std::thread busy([this, &is_over] {
    while (!is_over) pool.give_back(pool.take(kMiB), kMiB, 0);
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      void* const block = pool.take(kMiB);
      std::memset(block, 1, kMiB);
      pool.give_back(block, kMiB, 0);
      pool.close();
      _exit(block == nullptr);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  is_over = true;
  busy.join();
}

}  // namespace
}  // namespace distag
