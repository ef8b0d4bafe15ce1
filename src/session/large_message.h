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

// A message whose larger frames go ahead of it in chunks, each frame as a transfer of its own, one after the other. A
// chunk that was noted as sent has its number: it goes, whatever becomes of the message.
class LargeMessage {
 public:
  // Of `payload` those frames stay with the message that are small and for which it has room beside the header.
  LargeMessage(QueuedMessage message, Frames payload, size_t header_bytes);

  QueuedMessage& message() { return message_; }
  const QueuedMessage& message() const { return message_; }
  const std::vector<wire::Transfer>& transfers() const { return transfers_; }
  // All chunks have been sent: the message itself is next.
  bool is_ahead() const { return current_ == transfers_.size(); }
  // The next chunk, which stays the next one until it is noted as sent. Counts `last_transfer` up when a frame begins.
  wire::Chunk next_chunk(uint64_t& last_transfer);
  void note_sent(size_t bytes);
  // Whether the payload that it has now that it has its number is the one that went ahead.
  bool matches(const wire::Encoded& encoded) const;

 private:
  QueuedMessage message_;
  Frames payload_;
  std::vector<wire::Transfer> transfers_;  // with the id 0 until the first chunk
  size_t current_ = 0;                     // of transfers
  size_t offset_ = 0;                      // of its frame
};

}  // namespace distag
