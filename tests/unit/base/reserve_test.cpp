#include "base/reserve.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>
#include <vector>

#include "base/fd_loop.h"
#include "base/future.h"
#include "base/parker.h"
#include "base/pool.h"

namespace distag {
namespace {

std::vector<void*> take_all(Reserve& reserve, size_t size) {
  std::vector<void*> taken;
  while (void* block = reserve.take(size)) taken.push_back(block);
  return taken;
}

void free_all(const std::vector<void*>& blocks) {
  for (void* block : blocks) ::operator delete(block);
}

TEST(Reserve, GivesBlocksOfTheSmallestSizeThatFitsAndThenLargerOnes) {
  Reserve reserve;
  EXPECT_FALSE(reserve.is_short());
  const std::vector<void*> large = take_all(reserve, size_t{128} << 10);
  EXPECT_EQ(large.size(), 1u);
  const std::vector<void*> small = take_all(reserve, 1);
  EXPECT_EQ(small.size(), 96u + 16u + 4u);
  EXPECT_EQ(reserve.take(1), nullptr);
  EXPECT_TRUE(reserve.is_short());
  free_all(large);
  free_all(small);
}

TEST(Reserve, HasNoBlockForWhatIsTooLarge) {
  Reserve reserve;
  EXPECT_EQ(reserve.take((size_t{128} << 10) + 1), nullptr);
}

TEST(Reserve, IsWholeAgainOnceThereIsMemory) {
  Reserve reserve;
  free_all(take_all(reserve, 1));
  EXPECT_TRUE(reserve.refill());
  EXPECT_FALSE(reserve.is_short());
  const std::vector<void*> again = take_all(reserve, 1);
  EXPECT_EQ(again.size(), 96u + 16u + 4u + 1u);
  free_all(again);
}

TEST(Reserve, IsThatOfTheThreadForAsLongAsTheScopeLasts) {
  Reserve outer, inner;
  EXPECT_EQ(current_reserve(), nullptr);
  {
    const ReserveScope scope(&outer);
    EXPECT_EQ(current_reserve(), &outer);
    {
      const ReserveScope nested(&inner);
      EXPECT_EQ(current_reserve(), &inner);
    }
    EXPECT_EQ(current_reserve(), &outer);
    std::thread([] { EXPECT_EQ(current_reserve(), nullptr); }).join();
  }
  EXPECT_EQ(current_reserve(), nullptr);
}

TEST(Reserve, IsThatOfTheWorkerOnItsLoopAndItsPool) {
  const auto reserve = std::make_shared<Reserve>();
  const auto on_loop = Future<Reserve*>::make(), on_pool = Future<Reserve*>::make();
  {
    Pool pool("test", 1, {}, reserve);
    FdLoop loop("test", {}, reserve);
    loop.start();
    loop.post_or_drop([on_loop] { on_loop->complete(current_reserve()); });
    pool.post_or_drop([on_pool] { on_pool->complete(current_reserve()); });
    EXPECT_TRUE(park_until_done(*on_loop, 120 * kSecond));
    EXPECT_TRUE(park_until_done(*on_pool, 120 * kSecond));
  }
  EXPECT_EQ(on_loop->value(), reserve.get());
  EXPECT_EQ(on_pool->value(), reserve.get());
}

}  // namespace
}  // namespace distag
