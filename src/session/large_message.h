#pragma once

#include <cstdint>
#include <vector>

#include "session/session.h"

namespace distag {

// A message that has no number yet.
struct QueuedMessage {
  Session::Ticket ticket;
  wire::Body body;
  SendOptions options;
};

// The piece of `frame` that begins at `offset`, at most kChunkBytes of it.
wire::Chunk chunk_at(const Frame& frame, uint64_t transfer, size_t offset);

// A message whose larger frames go ahead of it in chunks. Each such frame is a transfer of its own; transfers go one
// after the other. A chunk that was noted as sent has its number, so it goes out even if the message does not.
class LargeMessage {
 public:
  // A frame of `payload` stays with the message if it is small and there is room for it beside the header.
  LargeMessage(QueuedMessage message, Frames payload, size_t header_bytes);

  QueuedMessage& message() { return message_; }
  const QueuedMessage& message() const { return message_; }
  const std::vector<wire::Transfer>& transfers() const { return transfers_; }
  // True when all chunks have been sent and the message itself is next.
  bool is_ahead() const { return current_ == transfers_.size(); }
  // Returns the same chunk until it is noted as sent. Increments `last_transfer` when a frame begins.
  wire::Chunk next_chunk(uint64_t& last_transfer);
  void note_sent(size_t bytes);
  // Whether the payload, as it was encoded with the message's number, is the payload that went ahead.
  bool matches(const wire::Encoded& encoded) const;

 private:
  QueuedMessage message_;
  Frames payload_;
  std::vector<wire::Transfer> transfers_;  // the id is 0 until the first chunk is sent
  size_t current_ = 0;                     // index into transfers_
  size_t offset_ = 0;                      // offset within the current frame
};

}  // namespace distag
