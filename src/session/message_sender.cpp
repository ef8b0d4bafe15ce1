#include "session/message_sender.h"

#include <new>
#include <span>
#include <utility>

namespace distag {
namespace {

Frame take_long_header(wire::Encoded& encoded) {
  Frame header = std::move(encoded.payload.front());
  encoded.payload.erase(encoded.payload.begin());
  return header;
}

}  // namespace

// ---- numbers ----

void MessageSender::add(wire::Message& message, const std::optional<LargeMessage>& large, Task& on_acknowledged) {
  assert_on_loop(shared_.loop);
  wire::Encoded encoded = encode_next(message);
  if (large && !message.transfers.empty() && !large->matches(encoded)) {
    // The payload changed when the message was numbered, as for an answer that failed. The chunks that went ahead do
    // not belong to it.
    abandon(*large);
    message.transfers.clear();
    encoded = encode_next(message);
  }
  keep(message, std::move(encoded), 0, on_acknowledged);
  transmit_last();
}

bool MessageSender::add_chunk(LargeMessage& large) {
  assert_on_loop(shared_.loop);
  if (sent_.chunk_bytes() >= kMaxUnacknowledgedChunkBytes) return false;
  wire::Chunk chunk = large.next_chunk(last_transfer_);
  const size_t size = chunk.piece.size();
  keep_chunk(std::move(chunk));
  large.note_sent(size);  // numbered now, the chunk goes out in any case
  transmit_last();
  return true;
}

void MessageSender::add_abandoned() {
  assert_on_loop(shared_.loop);
  wire::Chunk chunk;
  chunk.transfer = abandoned_.back();
  chunk.abandoned = true;
  keep_chunk(std::move(chunk));
  abandoned_.pop_back();
  transmit_last();
}

void MessageSender::abandon(const LargeMessage& large) {
  assert_on_loop(shared_.loop);
  abandoned_.reserve(abandoned_.size() + large.transfers().size());  // all of them or none
  for (const wire::Transfer& transfer : large.transfers()) {
    if (transfer.id != 0) abandoned_.push_back(transfer.id);
  }
}

// Encodes the message with the next number.
wire::Encoded MessageSender::encode_next(wire::Message& message) {
  message.number = sent_.last_number() + 1;
  message.ack = arrivals_.received();
  return wire::encode(message, shared_.numbering_limits());
}

// The message has its number from here on, after the chunks that go ahead of it. If there is no memory, it gets no
// number, and nothing of it is lost.
void MessageSender::keep(wire::Message& message, wire::Encoded encoded, size_t chunk_bytes, Task& on_acknowledged) {
  Frame long_header;
  if (encoded.is_long) {
    long_header = take_long_header(encoded);
    encoded.payload_bytes -= long_header.size();
  }
  // Backwards, so that the indices of the others stay valid.
  for (auto transfer = message.transfers.rbegin(); transfer != message.transfers.rend(); ++transfer) {
    encoded.payload_bytes -= encoded.payload[transfer->frame].size();
    encoded.payload.erase(encoded.payload.begin() + transfer->frame);
  }
  if (encoded.is_long) {
    uint64_t transfer = 0;
    if (long_header.size() + encoded.payload_bytes > kChunkBytes) {
      transfer = send_ahead(long_header);
      message.number = sent_.last_number() + 1;
    } else {
      encoded.payload_bytes += long_header.size();
      encoded.payload.insert(encoded.payload.begin(), std::move(long_header));
    }
    encoded.header = wire::encode_long(message, transfer);
  }

  const size_t bytes = encoded.header.size() + encoded.payload_bytes;
  last_numbered_ = shared_.loop.now();
  sent_.add({message.number, std::move(encoded.header), std::move(encoded.payload), bytes, chunk_bytes, {}});
  sent_.last().on_acknowledged = std::move(on_acknowledged);
  arrivals_.on_ack_sent(message.ack);
  debt_.begin(last_numbered_);
}

void MessageSender::keep_chunk(wire::Chunk chunk) {
  const size_t size = chunk.piece.size();
  const auto ahead = static_cast<size_t>(chunk.total - chunk.offset) - size;
  wire::Message message{0, 0, {}, std::move(chunk)};
  Task nothing;
  keep(message, encode_next(message), size, nothing);
  sent_.last().bytes_ahead = ahead;
}

// Sends the frame in chunks that take the next numbers, even above the limit of unacknowledged chunks: the message that
// follows has its place already.
uint64_t MessageSender::send_ahead(const Frame& frame) {
  abandoned_.reserve(abandoned_.size() + 1);
  const uint64_t transfer = ++last_transfer_;
  for (size_t offset = 0; offset < frame.size(); offset += kChunkBytes) {
    try {
      keep_chunk(chunk_at(frame, transfer, offset));
      transmit_last();
    } catch (...) {
      if (offset != 0) abandoned_.push_back(transfer);
      throw;
    }
  }
  return transfer;
}

// ---- the connection ----

// A repeated message gets the current acknowledgement in its header, as the old one may be lower than an
// acknowledgement that went alone.
bool MessageSender::send_all() {
  assert_on_loop(shared_.loop);
  while (connection_.is_ready()) {
    SentMessages::Sent* const sent = sent_.next_to_transmit();
    if (sent == nullptr) break;
    if (!turn_.has_more()) return false;
    if (sent->is_transmitted) {
      sent->header = wire::with_numbers(sent->header, sent->number, arrivals_.received());
      arrivals_.on_ack_sent(arrivals_.received());
    }
    if (!transmit(*sent)) return false;
  }
  return true;
}

// Does nothing if others have to go before it. The message is kept: without memory it goes later, and its sender sees
// no failure.
void MessageSender::transmit_last() {
  SentMessages::Sent* const next = sent_.next_to_transmit();
  if (next == nullptr || next->number != sent_.last_number()) return;
  try {
    transmit(*next);
  } catch (const std::bad_alloc&) {
    note_shortage();
  }
}

bool MessageSender::transmit(SentMessages::Sent& sent) {
  scratch_.clear();  // an earlier call may have failed half way
  scratch_.push_back(sent.header);
  scratch_.insert(scratch_.end(), sent.payload.begin(), sent.payload.end());
  if (!shared_.transport.is_exact()) {
    if (scratch_.size() > 1) connection_.lend(scratch_, sent.bytes_ahead);
    scratch_.front() = wire::seal(sent.header, std::span(scratch_).subspan(1));
  }
  const bool is_taken = connection_.send(scratch_);
  scratch_.clear();
  if (!is_taken) return false;
  sent_.note_transmitted(sent);
  turn_.note_sent(sent.bytes);
  ack_due_ = false;
  return true;
}

void MessageSender::send_ack() {
  assert_on_loop(shared_.loop);
  const uint64_t number = arrivals_.received();
  ack_due_ = true;
  try {
    ack_due_ = !connection_.is_ready() ||
               !connection_.send(wire::pack({0, number, {}, wire::Ack{}}, shared_.config.limits, shared_.transport));
  } catch (const std::bad_alloc&) {
    note_shortage();
  }
  if (!ack_due_) arrivals_.on_ack_sent(number);
}

bool MessageSender::acknowledge(uint64_t number) {
  assert_on_loop(shared_.loop);
  bool progress = false;
  while (std::optional<SentMessages::Sent> sent = sent_.take_acknowledged(number)) {
    progress = true;
    if (sent->on_acknowledged) sent->on_acknowledged();
  }
  if (!progress) return false;
  debt_.settle();
  if (!sent_.is_empty()) debt_.begin(shared_.loop.now());
  return true;
}

void MessageSender::rewind() {
  assert_on_loop(shared_.loop);
  sent_.rewind();
  if (sent_.is_empty()) debt_.settle();
  ack_due_ = arrivals_.received() > 0;
}

void MessageSender::clear() {
  assert_on_loop(shared_.loop);
  sent_.clear();
  abandoned_.clear();
  debt_.settle();
}

void MessageSender::note_shortage() noexcept {
  assert_on_loop(shared_.loop);
  lack_.note(Error(Status::kOutOfMemory, "no memory"), shared_.loop.now());
}

}  // namespace distag
