#include "base/plain_numbers.h"

#include <gtest/gtest.h>

#include <clocale>
#include <thread>

namespace distag {
namespace {

locale_t current() { return uselocale(nullptr); }

TEST(PlainNumbersTest, TheThreadHasALocaleOfItsOwnUntilTheLastOneEnds) {
  ASSERT_EQ(current(), LC_GLOBAL_LOCALE);
  {
    const PlainNumbers outer;
    {
      const PlainNumbers inner;
      EXPECT_NE(current(), LC_GLOBAL_LOCALE);
    }
    EXPECT_NE(current(), LC_GLOBAL_LOCALE);
    EXPECT_STREQ(localeconv()->decimal_point, ".");
  }
  EXPECT_EQ(current(), LC_GLOBAL_LOCALE);
}

TEST(PlainNumbersTest, OtherThreadsKeepTheirLocale) {
  const PlainNumbers numbers;
  std::thread([] { EXPECT_EQ(current(), LC_GLOBAL_LOCALE); }).join();
}

TEST(PlainNumbersTest, TheLocaleThatAThreadOfTheHostHasChosenComesBack) {
  const locale_t chosen = newlocale(LC_ALL_MASK, "C.UTF-8", nullptr);
  ASSERT_NE(chosen, nullptr);
  const locale_t before = uselocale(chosen);
  { const PlainNumbers numbers; }
  EXPECT_EQ(current(), chosen);
  uselocale(before);
  freelocale(chosen);
}

}  // namespace
}  // namespace distag
