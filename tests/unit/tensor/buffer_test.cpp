#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "base/error.h"

namespace distag {
namespace {

TEST(BufferTest, IsAlignedAndWritableWhileItHasOneHolder) {
  BufferRef buffer = Buffer::allocate(100);
  EXPECT_EQ(buffer->size(), 100u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
  EXPECT_TRUE(buffer->is_writable());
  {
    BufferRef second = buffer;
    EXPECT_FALSE(buffer->is_writable());
  }
  EXPECT_TRUE(buffer->is_writable());
}

TEST(BufferTest, GivesForeignMemoryBackOnceTheLastHolderIsGone) {
  int released = 0;
  double memory[2] = {1, 2};
  BufferRef buffer = Buffer::borrow(memory, sizeof memory, [&released] { ++released; });
  EXPECT_TRUE(buffer->is_borrowed());
  EXPECT_FALSE(buffer->is_writable());
  BufferRef second = buffer;
  buffer = BufferRef();
  EXPECT_EQ(released, 0);
  second = BufferRef();
  EXPECT_EQ(released, 1);
}

TEST(BufferTest, IsNeverWrittenWhenAdopted) {
  char memory[8] = {};
  BufferRef buffer = Buffer::adopt(memory, sizeof memory, {});
  EXPECT_FALSE(buffer->is_borrowed());
  EXPECT_FALSE(buffer->is_writable());
}

TEST(BufferTest, RefusesWhatNoMemoryCanHold) {
  try {
    Buffer::allocate(SIZE_MAX - 8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kOutOfMemory);
  }
}

TEST(BufferTest, IsReleasedOnceByManyThreads) {
  int released = 0;
  char memory[8] = {};
  BufferRef buffer = Buffer::adopt(memory, sizeof memory, [&released] { ++released; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([buffer] {
      for (int k = 0; k < 1000; ++k) BufferRef copy = buffer;
    });
  }
  buffer = BufferRef();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace distag
