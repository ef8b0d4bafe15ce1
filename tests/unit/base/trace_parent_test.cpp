#include "base/trace_parent.h"

#include <gtest/gtest.h>

#include <string>

namespace distag {
namespace {

const std::string kGood = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceParent, KeepsTheTextOfVersion00) {
  const auto parsed = TraceParent::parse(kGood);
  ASSERT_NE(parsed, nullptr);
  EXPECT_EQ(parsed->c_str(), kGood);
  EXPECT_EQ(parsed->text(), kGood);
  EXPECT_EQ(parsed->trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
}

TEST(TraceParent, ALaterVersionGoesOnAsVersion00WithTheFlagSampled) {
  const std::string later = "ab" + kGood.substr(2);
  EXPECT_EQ(TraceParent::parse(later + "-any -thing")->text(), kGood);
  const char* const digits = "0123456789abcdef";
  for (int digit = 0; digit < 16; ++digit) {
    const std::string flags = std::string("f") + digits[digit];
    const auto parsed = TraceParent::parse(later.substr(0, 53) + flags);
    ASSERT_NE(parsed, nullptr);
    EXPECT_EQ(parsed->text().substr(53), digit % 2 == 1 ? "01" : "00") << flags;
    EXPECT_EQ(parsed->text().substr(0, 53), kGood.substr(0, 53));
  }
}

// Each place holds one kind of character; every other one there makes it malformed.
TEST(TraceParent, EachCharacterIsOfItsKind) {
  for (size_t at = 0; at < kGood.size(); ++at) {
    const bool is_divider = kGood[at] == '-';
    for (int c = 0; c < 256; ++c) {
      std::string text = kGood;
      text[at] = static_cast<char>(c);
      const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
      const bool is_good = is_divider ? c == '-' : is_hex;
      EXPECT_EQ(TraceParent::parse(text) != nullptr, is_good) << at << ": " << c;
    }
  }
}

TEST(TraceParent, LengthsVersionAndIdsOfZeros) {
  const std::string later = "01" + kGood.substr(2);
  for (size_t size = 0; size < kGood.size(); ++size) {
    EXPECT_EQ(TraceParent::parse(kGood.substr(0, size)), nullptr) << size;
    EXPECT_EQ(TraceParent::parse(later.substr(0, size)), nullptr) << size;
  }
  EXPECT_EQ(TraceParent::parse(kGood + "-"), nullptr);
  EXPECT_EQ(TraceParent::parse(kGood + "0"), nullptr);
  EXPECT_EQ(TraceParent::parse(later + "0"), nullptr);
  EXPECT_NE(TraceParent::parse(later + "-0"), nullptr);
  EXPECT_EQ(TraceParent::parse("ff" + kGood.substr(2)), nullptr);
  EXPECT_NE(TraceParent::parse("fe" + kGood.substr(2)), nullptr);
  EXPECT_EQ(TraceParent::parse("00-" + std::string(32, '0') + kGood.substr(35)), nullptr);
  EXPECT_EQ(TraceParent::parse(kGood.substr(0, 36) + std::string(16, '0') + "-01"), nullptr);
}

}  // namespace
}  // namespace distag
