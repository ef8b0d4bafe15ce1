#include "base/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fork_handlers.h"
#include "base/memory.h"

namespace distag::shared_memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class SharedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(stats().blocks, 0u); }
  std::vector<std::byte*> kept_;
  void TearDown() override { EXPECT_EQ(stats().blocks, 0u) << "all blocks go with the last use and the last place"; }
};

TEST_F(SharedMemoryTest, ThereIsNoneWithoutAUseAndNoneForSmallBuffers) {
  EXPECT_EQ(allocate(kMiB), nullptr);
  const Use use;
  EXPECT_EQ(allocate(kLeastBytes - 1), nullptr);
  std::byte* const place = allocate(kLeastBytes);
  ASSERT_NE(place, nullptr);
  free(place);
}

TEST_F(SharedMemoryTest, PlacesAreApartAndAlignedAndUsedAgainLastFirst) {
  const Use use;
  std::vector<std::byte*> places;
  for (size_t i = 0; i < 100; ++i) {
    places.push_back(allocate(100'000 + i));
    ASSERT_NE(places.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(places.back()) % 4096, 0u);
    std::memset(places.back(), static_cast<int>(i), 100'000 + i);
  }
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(places[i][0], static_cast<std::byte>(i));
    EXPECT_EQ(places[i][100'000 + i - 1], static_cast<std::byte>(i));
  }
  free(places[7]);
  free(places[3]);
  EXPECT_EQ(allocate(100'000), places[3]);
  EXPECT_EQ(allocate(100'000), places[7]);
  for (std::byte* place : places) free(place);
  EXPECT_EQ(stats().bytes_in_use, 0u);
}

TEST_F(SharedMemoryTest, ABlockShownToOthersIsReadAndNeverWritten) {
  const Use use;
  std::byte* const place = allocate(3 * kMiB);
  std::memset(place, 7, 3 * kMiB);
  const auto found = find(place + kMiB, kMiB);
  ASSERT_TRUE(found);
  EXPECT_FALSE(find(place, found->block->size() + 1)) << "it reaches beyond the block";
  EXPECT_EQ(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, found->block->fd(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  void* const mapped = mmap(nullptr, found->block->size(), PROT_READ, MAP_SHARED, found->block->fd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(mprotect(mapped, kMiB, PROT_READ | PROT_WRITE), 0);
  const std::byte* const seen = static_cast<const std::byte*>(mapped) + found->offset;
  EXPECT_EQ(seen[0], std::byte{7});
  place[kMiB] = std::byte{9};
  EXPECT_EQ(seen[0], std::byte{9}) << "it is the same memory";
  EXPECT_NE(ftruncate(found->block->fd(), 0), 0);
  munmap(mapped, found->block->size());
  free(place);
}

TEST_F(SharedMemoryTest, AnAbandonedPlaceIsNeitherWrittenNorUsedAgain) {
  const Use use;
  std::byte* const place = allocate(kMiB);
  EXPECT_TRUE(is_writable(place));
  abandon(place + 4096);
  EXPECT_FALSE(is_writable(place));
  free(place);
  std::vector<std::byte*> others;
  for (int i = 0; i < 40; ++i) others.push_back(allocate(kMiB));
  for (std::byte* other : others) {
    EXPECT_NE(other, place);
    free(other);
  }
}

TEST_F(SharedMemoryTest, BlocksGoBackOnceNothingHasLainInThemBetweenTwoTrims) {
  const Use use;
  std::byte* const place = allocate(20 * kMiB);
  const auto block = find(place, 1)->block;
  free(place);
  EXPECT_TRUE(trim().empty()) << "something has lain in it lately";
  std::byte* const again = allocate(20 * kMiB);
  EXPECT_EQ(again, place);
  EXPECT_TRUE(trim().empty());
  EXPECT_TRUE(trim().empty()) << "it is in use";
  free(again);
  trim();
  const auto retired = trim();
  ASSERT_EQ(retired.size(), 1u);
  EXPECT_EQ(retired[0], block);
  EXPECT_TRUE(block->is_retired());
  EXPECT_FALSE(find(place, 1));
}

TEST_F(SharedMemoryTest, WhatLiesThereOutlivesTheUse) {
  std::byte* place = nullptr;
  {
    const Use use;
    place = allocate(kMiB);
    free(allocate(9 * kMiB));
  }
  EXPECT_EQ(stats().blocks, 1u);
  std::memset(place, 3, kMiB);
  EXPECT_EQ(allocate(kMiB), nullptr);
  free(place);
}

TEST_F(SharedMemoryTest, IdleBlocksAreBounded) {
  const Use use;
  for (size_t i = 0; i < 60; ++i) free(allocate((20 + i) * kMiB));
  EXPECT_LE(stats().bytes, 256 * kMiB);
}

// The parent's values stay, whatever the child does; and it reads them.
TEST_F(SharedMemoryTest, AForkedChildHasPlacesOfItsOwnOnly) {
  const Use use;
  std::byte* const place = allocate(kMiB);
  std::memset(place, 5, kMiB);
  const pid_t child = fork();
  if (child == 0) {
    bool is_right = place[0] == std::byte{5} && !is_writable(place) && allocate(kMiB) == nullptr && !find(place, 1);
    free(place);
    abandon(place);
    {
      const Use own;
      std::byte* const fresh = allocate(kMiB);
      is_right = is_right && fresh != nullptr && fresh != place && is_writable(fresh);
      if (fresh != nullptr) std::memset(fresh, 6, kMiB);
      free(place);
      free(fresh);
    }
    _exit(is_right && stats().blocks == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(place[kMiB - 1], std::byte{5});
  EXPECT_FALSE(is_writable(place)) << "a child may still read there";
  free(place);
}

// The child keeps the values of the time of the fork, whatever the parent does meanwhile.
TEST_F(SharedMemoryTest, AForkedChildReadsTheValuesOfThen) {
  const Use use;
  std::byte* const place = allocate(kMiB);
  std::memset(place, 5, kMiB);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pipes[1]);
    char word = 0;
    while (read(pipes[0], &word, 1) > 0) continue;
    _exit(std::count(place, place + kMiB, std::byte{5}) == static_cast<ptrdiff_t>(kMiB) ? 0 : 1);
  }
  free(place);
  for (int i = 0; i < 40; ++i) {
    std::byte* const other = allocate(kMiB);
    std::memset(other, 9, kMiB);
    if (i % 2 == 0) free(other);
    if (i % 2 != 0) kept_.push_back(other);
  }
  for (int i = 0; i < 2; ++i) {
    for (const auto& block : trim()) block->close();
  }
  close(pipes[0]);
  close(pipes[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (std::byte* other : kept_) free(other);
}

// Fork handlers of other libraries may take long before a fork.
TEST_F(SharedMemoryTest, WhileAForkBeginsNothingWaitsAndNoPlaceIsGivenOut) {
  const Use use;
  std::byte* const place = allocate(kMiB);
  std::byte* const other = allocate(kMiB);
  kSharedMemoryStep.before();
  EXPECT_EQ(allocate(kMiB), nullptr);
  EXPECT_TRUE(find(place, kMiB));
  EXPECT_FALSE(is_writable(place));
  free(other);
  kSharedMemoryStep.after();
  kept_.push_back(allocate(kMiB));
  ASSERT_NE(kept_.back(), nullptr);
  EXPECT_NE(kept_.back(), other) << "a child may read there";
  free(place);
  for (std::byte* fresh : kept_) free(fresh);
}

TEST_F(SharedMemoryTest, AChildThatIsForkedAtAnyMomentHasPlaces) {
  const Use use;
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([t, &is_over] {
      for (size_t i = t; !is_over; ++i) free(allocate(kLeastBytes << (i % 6)));
    });
  }
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      const Use own;
      std::byte* const fresh = allocate(kMiB);
      free(fresh);
      _exit(fresh != nullptr ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
}

// Limits that would end the process by a signal.
TEST_F(SharedMemoryTest, NoneIsMadeBeyondTheLimitsOfTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const Use use;
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &limit);
    bool is_right = allocate(kMiB) == nullptr;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    is_right = is_right && allocate(machine_memory() + kMiB) == nullptr;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    is_right = is_right && allocate(kMiB) == nullptr;
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(SharedMemoryTest, ManyThreadsUseItAtOnce) {
  const Use use;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      std::vector<std::pair<std::byte*, size_t>> mine;
      for (size_t i = 0; i < 3000; ++i) {
        const size_t size = kLeastBytes << (i * 7 % 5);
        if (mine.size() < 6) {
          std::byte* const place = allocate(size);
          if (place == nullptr) continue;
          place[0] = place[size - 1] = static_cast<std::byte>(t);
          mine.emplace_back(place, size);
        } else {
          const auto [place, of] = mine[i % 6];
          if (place[0] != static_cast<std::byte>(t) || place[of - 1] != static_cast<std::byte>(t)) ++wrong;
          free(place);
          mine.erase(mine.begin() + static_cast<ptrdiff_t>(i % 6));
        }
        if (i % 500 == 0) {
          for (const auto& block : trim()) block->close();
        }
      }
      for (const auto& [place, size] : mine) free(place);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(stats().bytes_in_use, 0u);
}

}  // namespace
}  // namespace distag::shared_memory
