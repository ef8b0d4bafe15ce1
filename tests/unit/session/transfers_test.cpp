#include "session/transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <vector>

#include "session/frame_pool.h"

namespace distag {
namespace {

constexpr size_t kPiece = 1000;

// Bytes that somebody else has, and how many of their loans are still out.
struct Lender {
  std::vector<std::byte> bytes;
  int out = 0;

  explicit Lender(size_t size) : bytes(size) {
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 / 3);
  }
  Frame lend(size_t offset, size_t size) {
    ++out;
    return Frame(bytes.data() + offset, size, std::shared_ptr<const void>(bytes.data(), [this](const void*) { --out; }))
        .as_loan();
  }
};

class NoMemory final : public FrameMemory {
 public:
  std::shared_ptr<std::byte> allocate(size_t) override { throw std::bad_alloc(); }
};

wire::Chunk chunk(size_t offset, size_t total, Frame piece) {
  wire::Chunk result;
  result.transfer = 1;
  result.offset = offset;
  result.total = total;
  result.piece = std::move(piece);
  return result;
}

// As the receiver takes it: with what is left to do.
std::optional<Frame> take(Transfers& transfers) {
  std::vector<Task> rest;
  std::optional<Frame> whole = transfers.take(1, rest);
  for (Task& task : rest) task();
  return whole;
}

bool equals(const Frame& frame, const std::vector<std::byte>& bytes) {
  return frame.size() == bytes.size() && std::equal(bytes.begin(), bytes.end(), frame.data());
}

TEST(Transfers, OneThatIsAbandonedCountsNoMore) {
  FramePool memory;
  Transfers transfers(2 * kPiece, memory, false, false);
  const std::vector<std::byte> bytes(kPiece);
  const Frame piece(bytes.data(), kPiece, nullptr);
  for (uint64_t number = 1; number <= 100; ++number) {
    wire::Chunk begun = chunk(0, 2 * kPiece, piece);
    begun.transfer = number;
    transfers.add(begun);
    wire::Chunk given_up;
    given_up.transfer = number;
    given_up.abandoned = true;
    transfers.add(given_up);
  }
}

TEST(Transfers, LoansThatLieBehindEachOtherAreTheFrameWhereTheyLie) {
  FramePool memory;
  Transfers transfers(1 << 20, memory, false, true);
  Lender lender(3 * kPiece);
  for (size_t i = 0; i < 3; ++i) transfers.add(chunk(i * kPiece, 3 * kPiece, lender.lend(i * kPiece, kPiece)));
  std::optional<Frame> whole = take(transfers);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->is_loan());
  EXPECT_EQ(whole->data(), lender.bytes.data()) << "nothing was copied";
  EXPECT_TRUE(equals(*whole, lender.bytes));
  EXPECT_EQ(lender.out, 3);
  whole.reset();
  EXPECT_EQ(lender.out, 0) << "each goes back with the frame";
}

// In a transfer of five pieces, one piece is no loan, or lies elsewhere, at each place in turn.
TEST(Transfers, APieceThatLiesElsewhereMovesTheFrameToMemory) {
  for (size_t odd = 0; odd < 5; ++odd) {
    for (const bool is_loan : {false, true}) {
      FramePool memory;
      Transfers transfers(1 << 20, memory, false, true);
      Lender lender(5 * kPiece);
      Lender other(5 * kPiece);
      for (size_t i = 0; i < 5; ++i) {
        Frame piece = lender.lend(i * kPiece, kPiece);
        if (i == odd) piece = is_loan ? other.lend(i * kPiece, kPiece) : Frame::copy_of(piece.data(), kPiece);
        transfers.add(chunk(i * kPiece, 5 * kPiece, std::move(piece)));
      }
      const std::optional<Frame> whole = take(transfers);
      ASSERT_TRUE(whole);
      EXPECT_FALSE(whole->is_loan());
      EXPECT_TRUE(equals(*whole, lender.bytes)) << "piece " << odd;
      EXPECT_EQ(lender.out + other.out, 0) << "all loans went back once they were copied";
    }
  }
}

// There was no memory for one piece, at each place in turn: the frame is lost, and all else goes back.
TEST(Transfers, APieceThatIsLostLosesTheFrameAlone) {
  for (size_t lost = 0; lost < 5; ++lost) {
    for (const bool is_lent : {false, true}) {
      FramePool memory;
      Transfers transfers(1 << 20, memory, false, true);
      Lender lender(5 * kPiece);
      for (size_t i = 0; i < 5; ++i) {
        Frame piece = lender.lend(i * kPiece, kPiece);
        if (!is_lent) piece = Frame::copy_of(piece.data(), kPiece);
        if (i == lost) piece = is_lent ? Frame::lost(kPiece).as_loan() : Frame::lost(kPiece);
        transfers.add(chunk(i * kPiece, 5 * kPiece, std::move(piece)));
      }
      EXPECT_EQ(lender.out, 0);
      EXPECT_FALSE(take(transfers)) << "piece " << lost;
      wire::Chunk next = chunk(0, kPiece, lender.lend(0, kPiece));
      next.transfer = 2;
      transfers.add(next);
      std::vector<Task> rest;
      EXPECT_TRUE(transfers.take(2, rest));
    }
  }
}

// A move copies a bit at a time, so that no step takes long, and leaves the rest to a task that may take long.
TEST(Transfers, ALargeFrameThatMovesIsWhole) {
  constexpr size_t kLarge = size_t{3} << 20;
  FramePool memory;
  Transfers transfers(size_t{64} << 20, memory, false, true);
  Lender lender(4 * kLarge);
  for (size_t i = 0; i < 4; ++i) {
    Frame piece = lender.lend(i * kLarge, kLarge);
    transfers.add(chunk(i * kLarge, 4 * kLarge, i < 3 ? piece : Frame::copy_of(piece.data(), kLarge)));
  }
  const std::optional<Frame> whole = take(transfers);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(equals(*whole, lender.bytes));
  EXPECT_EQ(lender.out, 0);
}

TEST(Transfers, AForeignMemoryTakesLoansToo) {
  FramePool memory;
  Transfers transfers(1 << 20, memory, false, false);
  Lender lender(2 * kPiece);
  for (size_t i = 0; i < 2; ++i) transfers.add(chunk(i * kPiece, 2 * kPiece, lender.lend(i * kPiece, kPiece)));
  const std::optional<Frame> whole = take(transfers);
  ASSERT_TRUE(whole);
  EXPECT_FALSE(whole->is_loan());
  EXPECT_TRUE(equals(*whole, lender.bytes));
  EXPECT_EQ(lender.out, 0);
}

TEST(Transfers, WithoutMemoryForTheMoveTheFrameIsMissing) {
  NoMemory memory;
  Transfers transfers(1 << 20, memory, false, true);
  Lender lender(3 * kPiece);
  transfers.add(chunk(0, 3 * kPiece, lender.lend(0, kPiece)));
  transfers.add(chunk(kPiece, 3 * kPiece, Frame::copy_of(lender.bytes.data() + kPiece, kPiece)));
  transfers.add(chunk(2 * kPiece, 3 * kPiece, lender.lend(2 * kPiece, kPiece)));
  EXPECT_FALSE(take(transfers));
  EXPECT_EQ(lender.out, 0);
}

}  // namespace
}  // namespace distag
