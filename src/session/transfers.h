#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "transport/transport.h"
#include "wire/message.h"

namespace distag {

// Payload frames of one peer that come in chunks: each piece is copied once, to where the whole frame will lie; or is
// the whole frame, if it need not go to that memory. On the loop. Throws Violation for what a sender may not do, and
// nothing for a shortage here.
class Transfers {
 public:
  // At most `limit` bytes at a time, in transfers that no message has named yet.
  Transfers(size_t limit, FrameMemory& memory, bool keeps_whole)
      : limit_(limit), memory_(memory), keeps_whole_(keeps_whole) {}

  void add(const wire::Chunk& chunk);
  // The whole frame, for the message that names it; nullopt: there was no memory for it.
  std::optional<Frame> take(uint64_t transfer);
  void clear();

 private:
  struct Partial {
    std::shared_ptr<std::byte> memory;  // none for a frame that came in one piece
    Frame whole;
    size_t received = 0;
  };

  void begin(const wire::Chunk& chunk);
  bool is_forgotten(uint64_t transfer) const { return forgets_ && transfer <= last_begun_; }

  const size_t limit_;
  FrameMemory& memory_;
  const bool keeps_whole_;
  std::map<uint64_t, Partial> partial_;
  uint64_t last_begun_ = 0;
  bool forgets_ = false;  // there was no memory even for the note that one has begun
  size_t bytes_ = 0;
};

}  // namespace distag
