#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/shm/ring.h"
#include "transport/transport.h"

namespace distag {

// A message in a ring: the number of its frames, the size of each (32 bits, in the byte order of the machine), then
// their bytes, one after the other. A message larger than the ring goes on as there is room. The highest bit of a size
// marks a loan: the ring has its place instead of the bytes.

struct Loan {
  uint64_t block = 0;
  uint64_t offset = 0;
  uint32_t number = 0;  // with or without kGivenBack
  uint32_t check = 0;

  // A checksum of the other fields and the frame's size: that of the message covers only bytes that travel.
  uint32_t checksum(size_t size) const;
};
// A bit in the number of a loan: the block is the reader's own, which it has lent to the writer.
inline constexpr uint32_t kGivenBack = 1u << 31;

// Makes frames of received loans.
class LoanReader {
 public:
  virtual ~LoanReader() = default;
  // Throws PROTOCOL for an invalid loan.
  virtual Frame read(const Loan& loan, size_t size) = 0;
};

// Writes messages. One thread.
class RingMessageWriter {
 public:
  explicit RingMessageWriter(RingWriter ring) : ring_(ring) {}

  // Whether a part of a message waits for room.
  bool has_rest() const { return !rest_.empty(); }
  // Whether there may be room for more of the rest.
  bool may_go_on() const noexcept { return has_rest() && ring_.has_more_room(); }
  // Only without a rest. Writes the message, or as much as there is room for; the rest holds the owners of frames. If
  // it throws bad_alloc, nothing was written. `loans`: one for each frame that is a loan.
  void begin(const Frames& frames, std::vector<Loan> loans = {});
  // Writes more of the rest. False when there was no room.
  bool go_on();

 private:
  bool write_from(const Frames& frames);
  std::span<const std::byte> bytes_of(const Frame& frame) const;

  RingWriter ring_;
  std::vector<uint32_t> head_;  // count and sizes
  std::vector<Loan> loans_;
  Frames rest_;
  size_t next_loan_ = 0;
  size_t part_ = 0;  // the head, then the frames
  size_t done_ = 0;  // bytes of the part
};

// Reads messages. One thread.
class RingMessageReader {
 public:
  // `loans`: nullptr if loans are not allowed.
  explicit RingMessageReader(RingReader ring, LoanReader* loans = nullptr) : ring_(ring), loan_reader_(loans) {}

  bool has_bytes() const noexcept { return ring_.has_bytes(); }
  // Whether a part of a message has been read.
  bool is_under_way() const noexcept { return is_under_way_ || head_done_ != 0; }
  void freeze() { ring_.freeze(); }
  // The next whole message, once all of it was read; reads at most `most` bytes now. Small frames lie together in one
  // block, each aligned to 64 bytes; a large one has its own. Without memory for a frame other than the first, that
  // frame is lost. Throws PROTOCOL for an invalid or too large message, and bad_alloc; then the ring cannot be used any
  // more.
  std::optional<Frames> next(size_t most = SIZE_MAX);

 private:
  bool read_head();
  void make_frames();
  void check_loan(bool is_header, size_t size, size_t total) const;

  RingReader ring_;
  LoanReader* const loan_reader_;
  std::vector<uint32_t> head_ = {0};
  size_t head_done_ = 0;  // bytes of the head
  // The message under way.
  Frames frames_;
  std::vector<std::byte*> places_;
  size_t current_ = 0;
  size_t done_ = 0;  // bytes of the current frame
  Loan loan_;        // the current one
  bool is_under_way_ = false;
};

}  // namespace distag
