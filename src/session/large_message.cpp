#include "session/large_message.h"

#include <algorithm>
#include <utility>

#include "session/stream_shared.h"

namespace distag {
namespace {

// Frames up to this size go with the message itself as long as there is room.
constexpr size_t kDirectFrameBytes = size_t{64} << 10;

}  // namespace

wire::Chunk chunk_at(const Frame& frame, uint64_t transfer, size_t offset) {
  wire::Chunk chunk;
  chunk.transfer = transfer;
  chunk.offset = offset;
  chunk.total = frame.size();
  chunk.piece = Frame(frame.data() + offset, std::min(kChunkBytes, frame.size() - offset), frame.owner());
  return chunk;
}

LargeMessage::LargeMessage(QueuedMessage message, Frames payload, size_t header_bytes)
    : message_(std::move(message)), payload_(std::move(payload)) {
  size_t direct = header_bytes;
  for (uint32_t i = 0; i < payload_.size(); ++i) {
    const size_t frame_bytes = payload_[i].size();
    if (frame_bytes <= kDirectFrameBytes && direct + frame_bytes <= kMaxDirectBytes) {
      direct += frame_bytes;
    } else {
      transfers_.push_back({0, i});
    }
  }
}

wire::Chunk LargeMessage::next_chunk(uint64_t& last_transfer) {
  wire::Transfer& transfer = transfers_[current_];
  const Frame& frame = payload_[transfer.frame];
  if (transfer.id == 0) transfer.id = ++last_transfer;
  return chunk_at(frame, transfer.id, offset_);
}

void LargeMessage::note_sent(size_t bytes) {
  offset_ += bytes;
  if (offset_ < payload_[transfers_[current_].frame].size()) return;
  ++current_;
  offset_ = 0;
}

bool LargeMessage::matches(const wire::Encoded& encoded) const {
  const auto begin = encoded.payload.begin() + (encoded.is_long ? 1 : 0);  // behind a long header
  return std::equal(begin, encoded.payload.end(), payload_.begin(), payload_.end(),
                    [](const Frame& a, const Frame& b) { return a.size() == b.size(); });
}

}  // namespace distag
