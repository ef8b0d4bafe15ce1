#include "session/frame_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace distag {
namespace {

TEST(FramePool, ABlockThatCameBackIsUsedForAboutItsSize) {
  FramePool pool;
  auto first = pool.allocate(10 << 20);
  std::byte* memory = first.get();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  std::memset(memory, 1, 10 << 20);
  first.reset();
  EXPECT_GE(pool.kept_bytes(), 10u << 20);
  auto second = pool.allocate((10 << 20) - 1000);
  EXPECT_EQ(second.get(), memory);
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST(FramePool, ALargerBlockStaysForItsOwnSize) {
  FramePool pool;
  pool.allocate(10 << 20).reset();
  const size_t kept = pool.kept_bytes();
  const auto smaller = pool.allocate(1 << 20);
  EXPECT_EQ(pool.kept_bytes(), kept);
}

TEST(FramePool, SmallAndHugeBlocksAreNotKept) {
  FramePool pool;
  pool.allocate(1000).reset();
  pool.allocate(size_t{300} << 20).reset();
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST(FramePool, WhatNobodyWantsIsFreed) {
  FramePool pool;
  pool.allocate(10 << 20).reset();
  pool.trim();
  EXPECT_GT(pool.kept_bytes(), 0u) << "it came back since the last time";
  pool.trim();
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST(FramePool, BlocksMayOutliveThePool) {
  std::shared_ptr<std::byte> block;
  {
    FramePool pool;
    block = pool.allocate(10 << 20);
    pool.allocate(10 << 20).reset();
  }
  std::memset(block.get(), 1, 10 << 20);
  void* const memory = block.get();
  unsigned char is_resident = 0;
  ASSERT_EQ(mincore(memory, 1, &is_resident), 0);
  block.reset();
  EXPECT_NE(mincore(memory, 1, &is_resident), 0) << "it is still mapped, and nobody has it";
}

}  // namespace
}  // namespace distag
