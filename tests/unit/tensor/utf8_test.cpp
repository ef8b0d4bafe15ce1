#include "tensor/utf8.h"

#include <gtest/gtest.h>

namespace distag {
namespace {

TEST(Utf8Test, TakesWhatIsWellFormed) {
  for (const char* text :
       {"", "plain", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF", "a\xC3\xA4z"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
  }
}

TEST(Utf8Test, RefusesWhatIsNot) {
  for (const char* text : {"\x80", "\xC3", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xE2\x82",
                           "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "a\xE2\x28\xA1"}) {
    EXPECT_FALSE(is_valid_utf8(text));
  }
}

}  // namespace
}  // namespace distag
