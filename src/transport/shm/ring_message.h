#pragma once

#include <optional>
#include <vector>

#include "transport/shm/ring.h"
#include "transport/transport.h"

namespace distag {

// A message in a ring: the number of its frames, the size of each (32 bits, as the machine has them), then their bytes,
// one after the other. A message larger than the ring goes on as there is room.

// Writes messages. Of one thread.
class RingMessageWriter {
 public:
  explicit RingMessageWriter(RingWriter ring) : ring_(ring) {}

  // A part of a message waits for room.
  bool has_rest() const { return !rest_.empty(); }
  // Whether there may be room for more of the rest.
  bool may_go_on() const noexcept { return has_rest() && ring_.has_more_room(); }
  // Only without a rest. Writes all of it, or what there is room for; owners of frames are held for the rest. Throws
  // bad_alloc when nothing of it was written.
  void begin(const Frames& frames);
  // Writes more of the rest. False when there was no room.
  bool go_on();

 private:
  bool write_from(const Frames& frames);

  RingWriter ring_;
  std::vector<uint32_t> head_;  // count and sizes
  Frames rest_;
  size_t part_ = 0;  // the head, then the frames
  size_t done_ = 0;  // bytes of it
};

// Reads messages. Of one thread.
class RingMessageReader {
 public:
  explicit RingMessageReader(RingReader ring) : ring_(ring) {}

  bool has_bytes() const noexcept { return ring_.has_bytes(); }
  // A part of a message has come.
  bool is_under_way() const noexcept { return is_under_way_ || head_done_ != 0; }
  void freeze() { ring_.freeze(); }
  // The next whole message, once all of it was read, of which `most` bytes are read now. Small frames lie together in
  // one block, each aligned to 64 bytes; a large one has its own. Throws PROTOCOL for what is none or too large,
  // bad_alloc; then the ring is of no more use.
  std::optional<Frames> next(size_t most = SIZE_MAX);

 private:
  bool read_head();
  void make_frames();

  RingReader ring_;
  std::vector<uint32_t> head_ = {0};
  size_t head_done_ = 0;  // bytes of it
  // The message under way.
  Frames frames_;
  std::vector<std::byte*> places_;
  size_t current_ = 0;
  size_t done_ = 0;  // bytes of it
  bool is_under_way_ = false;
};

}  // namespace distag
