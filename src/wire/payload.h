#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "transport/transport.h"
#include "wire/format.h"

namespace distag::wire {

// Collects pieces of payload: small ones in the tail of the header frame, the others as frames; see schemas/values.fbs.
class PayloadWriter {
 public:
  // kLong: all small pieces go to the tail, for a header that is long in any case.
  enum class Tail : bool { kShort, kLong };
  explicit PayloadWriter(Tail tail = Tail::kShort) : is_tail_long_(tail == Tail::kLong) {}

  // True: the bytes went to the tail. `make_owner` gives the object that keeps the bytes of a frame alive.
  template <typename MakeOwner>
  bool add(const void* data, size_t size, MakeOwner&& make_owner) {
    if (size <= tail_.size() - tail_size_) {
      if (size != 0) std::memcpy(tail_.data() + tail_size_, data, size);
      tail_size_ += size;
      return true;
    }
    if (size <= tail_.size() ? is_tail_long_ : size <= kMaxJoinedBytes && frames_.size() >= kManyFrames) {
      const auto* bytes = static_cast<const std::byte*>(data);
      if (long_tail_.empty()) long_tail_.assign(tail_.begin(), tail_.begin() + static_cast<ptrdiff_t>(tail_size_));
      long_tail_.insert(long_tail_.end(), bytes, bytes + size);
      tail_size_ = tail_.size();  // no other piece may go to the tail
      return true;
    }
    frames_.emplace_back(data, size, make_owner());
    frame_bytes_ += size;
    return false;
  }

  std::span<const std::byte> tail() const {
    return long_tail_.empty() ? std::span(tail_.data(), tail_size_) : std::span(long_tail_);
  }
  size_t frame_bytes() const { return frame_bytes_; }
  const Frames& frames() const { return frames_; }
  Frames take_frames() { return std::move(frames_); }

 private:
  // A header names at most 4,096 frames that went ahead of it. A payload of 1 GiB makes no more: beyond the first
  // kManyFrames, pieces are joined to the tail, which makes the header a long one.
  static constexpr size_t kManyFrames = 1024;
  static constexpr size_t kMaxJoinedBytes = size_t{1} << 20;

  bool is_tail_long_;
  std::array<std::byte, kMaxTailBytes> tail_;
  size_t tail_size_ = 0;
  std::vector<std::byte> long_tail_;
  Frames frames_;
  size_t frame_bytes_ = 0;
};

// Hands out the pieces again, in the same order.
class PayloadReader {
 public:
  PayloadReader(std::span<const std::byte> tail, std::span<const Frame> frames) : tail_(tail), frames_(frames) {}

  // False when the tail has fewer bytes left.
  bool take_from_tail(uint64_t size, const std::byte** data) {
    if (size > tail_.size()) return false;
    *data = tail_.data();
    tail_ = tail_.subspan(static_cast<size_t>(size));
    return true;
  }
  // nullptr when there is no frame left.
  const Frame* take_frame() { return next_frame_ < frames_.size() ? &frames_[next_frame_++] : nullptr; }
  bool is_used_up() const { return tail_.empty() && next_frame_ == frames_.size(); }

 private:
  std::span<const std::byte> tail_;
  std::span<const Frame> frames_;
  size_t next_frame_ = 0;
};

}  // namespace distag::wire
