#include "base/cut_text.h"

#include <gtest/gtest.h>

namespace distag {
namespace {

TEST(CutText, LeavesTheMiddleOutBetweenCharacters) {
  EXPECT_EQ(cut_middle("0123456789abcdef", 16), "0123456789abcdef");
  EXPECT_EQ(cut_middle("0123456789abcdef", 15), "01234 ... bcdef");
  EXPECT_EQ(cut_middle("0123456789abcdef", 6), " ... ");
  EXPECT_EQ(cut_middle("\u00e9\u00e9\u00e9\u00e9\u00e9", 9), "\u00e9 ... \u00e9");
  EXPECT_EQ(cut_middle("\u20ac\u20ac\u20ac\u20ac\u20ac", 10), " ... ");  // two bytes are no whole character
}

}  // namespace
}  // namespace distag
