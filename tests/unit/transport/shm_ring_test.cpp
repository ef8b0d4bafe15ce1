#include "transport/shm/ring_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"

namespace distag {
namespace {

constexpr size_t kSize = 4096;

Frame make_frame(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed + i * 7 + (i >> 8));
  return Frame::of(std::move(bytes));
}

class RingTest : public ::testing::Test {
 protected:
  void expect_equal(const Frames& got, const Frames& sent) {
    ASSERT_EQ(got.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(got[i].size(), sent[i].size()) << "frame " << i;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(got[i].data()) % 64, 0u) << "frame " << i;
      if (sent[i].size() > 0) {
        EXPECT_EQ(std::memcmp(got[i].data(), sent[i].data(), sent[i].size()), 0) << "frame " << i;
      }
    }
  }
  void put_words(const std::vector<uint32_t>& words) {
    RingWriter writer = ring_writer();
    writer.write(words.data(), words.size() * sizeof(uint32_t));
    writer.publish();
  }
  RingWriter ring_writer() { return {counts_, bytes_.data(), kSize}; }
  RingReader ring_reader() { return {counts_, bytes_.data(), kSize}; }

  RingCounts counts_{};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kSize);
};

TEST_F(RingTest, MessagesOfAllSizesPassWholeAndInOrder) {
  RingMessageWriter writer(ring_writer());
  RingMessageReader reader(ring_reader());
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    Frames sent;
    const size_t count = 1 + random() % 5;
    for (size_t i = 0; i < count; ++i) {
      const size_t limit = round % 50 == 0 ? 100'000 : 300;
      sent.push_back(make_frame(random() % limit, static_cast<unsigned>(round)));
    }
    writer.begin(sent);
    std::optional<Frames> got = reader.next();
    for (int step = 0; !got && step < 1000; ++step) {
      ASSERT_TRUE(writer.has_rest());
      ASSERT_TRUE(writer.may_go_on());
      EXPECT_TRUE(writer.go_on());
      got = reader.next();
    }
    ASSERT_TRUE(got);
    expect_equal(*got, sent);
    EXPECT_FALSE(writer.has_rest());
    EXPECT_FALSE(reader.has_bytes());
  }
}

TEST_F(RingTest, AFullRingTakesTheRestLaterAndHoldsItsOwners) {
  RingMessageWriter writer(ring_writer());
  RingMessageReader reader(ring_reader());
  auto owner = std::make_shared<std::vector<std::byte>>(3 * kSize);
  writer.begin({Frame(owner->data(), owner->size(), owner)});
  EXPECT_TRUE(writer.has_rest());
  EXPECT_FALSE(writer.may_go_on());
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_FALSE(reader.is_under_way());
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.is_under_way());
  while (writer.has_rest()) {
    ASSERT_TRUE(writer.may_go_on());
    writer.go_on();
    if (writer.has_rest()) {
      EXPECT_FALSE(reader.next());
    }
  }
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(reader.next()->at(0).size(), 3 * kSize);
  EXPECT_FALSE(reader.is_under_way());
}

TEST_F(RingTest, ALongMessageIsReadInPieces) {
  RingMessageWriter writer(ring_writer());
  RingMessageReader reader(ring_reader());
  const size_t size = kSize / 2;
  const Frames sent = {make_frame(size, 1)};
  writer.begin(sent);
  EXPECT_FALSE(writer.has_rest());
  EXPECT_FALSE(reader.next(size / 2));
  EXPECT_TRUE(reader.has_bytes());
  EXPECT_FALSE(reader.next(size / 2 - 1));
  const std::optional<Frames> got = reader.next(1);
  ASSERT_TRUE(got);
  expect_equal(*got, sent);
  EXPECT_FALSE(reader.has_bytes());
}

TEST_F(RingTest, APartOfANumberIsTakenOutAndIsNoWork) {
  RingWriter writer = ring_writer();
  RingMessageReader reader(ring_reader());
  const uint32_t words[] = {1, 2};
  const auto* const bytes = reinterpret_cast<const std::byte*>(words);
  const size_t total = sizeof words + 2;
  for (size_t i = 0; i < total; ++i) {
    EXPECT_FALSE(reader.has_bytes());
    const std::byte letter{'x'};
    writer.write(i < sizeof words ? bytes + i : &letter, 1);
    writer.publish();
    EXPECT_TRUE(reader.has_bytes());
    EXPECT_EQ(reader.next().has_value(), i + 1 == total) << i;
    EXPECT_EQ(reader.is_under_way(), i + 1 != total) << i;
  }
}

TEST_F(RingTest, CountsOfTheWriterThatCannotBeAreRefused) {
  for (const uint64_t bad : {uint64_t{kSize + 1}, uint64_t{1} << 63, ~uint64_t{0}}) {
    counts_.written = bad;
    RingMessageReader reader(ring_reader());
    EXPECT_TRUE(reader.has_bytes());
    EXPECT_THROW(reader.next(), Error) << bad;
  }
}

TEST_F(RingTest, ACountOfTheWriterThatGoesBackIsRefused) {
  RingReader reader = ring_reader();
  std::byte room[100];
  counts_.written = 100;
  EXPECT_EQ(reader.available(1), 100u);
  reader.read(room, 50);
  counts_.written = 99;
  EXPECT_EQ(reader.available(50), 50u);  // as it was seen
  EXPECT_THROW(reader.available(51), Error);
}

TEST_F(RingTest, CountsOfTheReaderThatCannotBeAreRefused) {
  for (const uint64_t bad : {uint64_t{1001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    counts_.read = 0;
    RingWriter writer = ring_writer();
    std::vector<std::byte> some(1000);
    writer.write(some.data(), some.size());
    counts_.read = bad;
    EXPECT_TRUE(writer.has_more_room());
    EXPECT_THROW(writer.room(kSize), Error) << bad;
  }
}

TEST_F(RingTest, NothingIsSeenOfWhatIsWrittenAfterTheFreeze) {
  RingWriter writer = ring_writer();
  RingReader reader = ring_reader();
  writer.write("abc", 3);
  writer.publish();
  reader.freeze();
  writer.write("def", 3);
  writer.publish();
  EXPECT_EQ(reader.available(6), 3u);
  char room[3];
  reader.read(room, 3);
  EXPECT_FALSE(reader.has_bytes());
}

TEST_F(RingTest, LyingHeadsAreRefused) {
  const std::vector<std::vector<uint32_t>> heads = {
      {0},      {1u << 17},
      {~0u},    {1, static_cast<uint32_t>(kMaxMessageBytes + 1)},
      {1, ~0u}, {3, static_cast<uint32_t>(kMaxMessageBytes), static_cast<uint32_t>(kMaxMessageBytes), 1}};
  for (const std::vector<uint32_t>& head : heads) {
    counts_.written = 0;
    counts_.read = 0;
    put_words(head);
    RingMessageReader reader(ring_reader());
    EXPECT_THROW(reader.next(), Error) << head[0];
  }
}

// Any bytes and counts: a message, an error or nothing, and never a byte outside of the ring (AddressSanitizer).
TEST_F(RingTest, RandomRingsAreReadOrRefused) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20'000; ++round) {
    counts_.written = 0;
    counts_.read = 0;
    RingMessageReader reader(ring_reader());
    RingMessageWriter writer(ring_writer());
    try {
      for (int step = 0; step < 20; ++step) {
        for (int i = 0; i < 8; ++i) bytes_[random() % kSize] = static_cast<std::byte>(random() % 4);
        counts_.written = counts_.written + (random() % 10 == 0 ? random() : random() % 600);
        static_cast<void>(reader.next());
        if (random() % 10 == 0) counts_.read = random() % 5000;
        if (!writer.has_rest()) writer.begin({make_frame(random() % 2000, 1)});
        writer.go_on();
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kProtocol);
    }
  }
}

}  // namespace
}  // namespace distag
