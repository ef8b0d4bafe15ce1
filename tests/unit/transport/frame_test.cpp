#include <gtest/gtest.h>

#include <cstring>

#include "transport/transport.h"

namespace distag {
namespace {

TEST(Frame, CopyDoesNotDependOnItsSource) {
  char text[] = "abc";
  const Frame frame = Frame::copy_of(text, 3);
  text[0] = 'x';
  ASSERT_EQ(frame.size(), 3u);
  EXPECT_EQ(std::memcmp(frame.data(), "abc", 3), 0);
}

TEST(Frame, CopiesShareTheirOwner) {
  const Frame frame = Frame::of(std::vector<std::byte>(10));
  const Frame copy = frame;
  EXPECT_EQ(copy.data(), frame.data());
  EXPECT_EQ(frame.owner().use_count(), 2);
}

TEST(Frame, MayBeEmpty) {
  EXPECT_EQ(Frame().size(), 0u);
  EXPECT_EQ(Frame::copy_of(nullptr, 0).size(), 0u);
}

}  // namespace
}  // namespace distag
