#include "session/outgoing_stream.h"

#include <algorithm>
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

OutgoingStream::OutgoingStream(StreamShared& shared, const Peer& peer, Owner& owner)
    : shared_(shared),
      owner_(owner),
      connection_(shared, peer, lack_, *this),
      turn_(shared.loop, connection_.alive(), [this] { on_ready(); }),
      sent_(shared.stats) {}

void OutgoingStream::end(bool is_told) {
  assert_on_loop(shared_.loop);
  connection_.end(is_told);
  drop_messages();
}

void OutgoingStream::leave() {
  assert_on_loop(shared_.loop);
  farewell_ = Farewell::kDue;
  connection_.hurry();
  pump_if_possible();
}

void OutgoingStream::drop_messages() {
  std::exchange(stuck_, nullptr).reset();
  queue_.clear();
  large_.clear();
  abandoned_.clear();
  sent_.clear();
  farewell_ = Farewell::kSaid;
  debt_.settle();
}

bool OutgoingStream::on_welcome(const wire::Welcome& welcome) {
  assert_on_loop(shared_.loop);
  if (!on_ack(welcome.next - 1)) return false;
  if (!connection_.is_greeting()) return true;
  sent_.rewind();
  if (sent_.is_empty()) debt_.settle();
  ack_due_ = owner_.received() > 0;
  connection_.welcome();
  return true;
}

// ---- messages ----

Session::Ticket OutgoingStream::send(Session::Ticket ticket, wire::Body body, SendOptions options, size_t size) {
  assert_on_loop(shared_.loop);
  connection_.hurry();
  if (size > kMaxDirectBytes) {
    wire::Payload payload = wire::payload_of(body, shared_.numbering_limits());
    large_.push_back(
        LargeMessage({ticket, std::move(body), std::move(options)}, std::move(payload.frames), payload.header_bytes));
    pump_if_possible();
    return ticket;
  }
  if (can_number() && queue_.empty()) {
    number(std::move(body), std::move(options));
    return 0;
  }
  queue_.push_back({ticket, std::move(body), std::move(options)});
  return ticket;
}

bool OutgoingStream::withdraw(Session::Ticket ticket) {
  assert_on_loop(shared_.loop);
  const size_t queued = queue_.find([ticket](const QueuedMessage& one) { return one.ticket == ticket; });
  if (queued < queue_.size()) {
    queue_.erase(queued);
    owner_.on_progress();
    return true;
  }
  const size_t large = large_.find([ticket](const LargeMessage& one) { return one.message().ticket == ticket; });
  if (large == large_.size()) return false;
  give_up(large_[large]);
  large_.erase(large);
  pump_if_possible();
  owner_.on_progress();
  return true;
}

// Without memory the next tick tries again.
void OutgoingStream::pump_if_possible() {
  if (!turn_.begin()) return;
  try {
    pump();
  } catch (const std::bad_alloc&) {
    note_shortage();
  }
}

// Numbers messages while the connection takes them. Small messages go first, so that they pass between chunks; LEAVE
// goes last, as nothing follows it. Each step leaves everything in its place when it throws.
void OutgoingStream::pump() {
  while (can_number() && turn_.has_more()) {
    make_spare();  // a message that is taken out is not lost then
    if (!queue_.empty()) {
      number_queued();
    } else if (!abandoned_.empty()) {
      wire::Chunk chunk;
      chunk.transfer = abandoned_.back();
      chunk.abandoned = true;
      number(std::move(chunk), {});
      abandoned_.pop_back();
    } else if (!large_.empty()) {
      if (!pump_large()) break;
    } else if (farewell_ == Farewell::kDue) {
      number(wire::Leave{}, {});
      farewell_ = Farewell::kSaid;
    } else {
      break;
    }
  }
}

// Sends the next chunk of the first large message, or the message itself. Returns false when too much is
// unacknowledged; the next acknowledgement resumes it.
bool OutgoingStream::pump_large() {
  LargeMessage& large = large_.front();
  if (large.is_ahead()) {
    number_large();
    return true;
  }
  if (sent_.chunk_bytes() >= kMaxUnacknowledgedChunkBytes) return false;
  wire::Chunk chunk = large.next_chunk(last_transfer_);
  const size_t size = chunk.piece.size();
  const auto ahead = static_cast<size_t>(chunk.total - chunk.offset) - size;
  wire::Message message{0, 0, {}, std::move(chunk)};
  Task nothing;
  keep(message, encode_next(message), size, nothing);
  sent_.last().bytes_ahead = ahead;
  large.note_sent(size);  // numbered now, the chunk goes out in any case
  transmit_last();
  return true;
}

void OutgoingStream::number(wire::Body body, SendOptions options) {
  wire::Message message{0, 0, {}, std::move(body)};
  number(message, options, nullptr);
}

// A message that finds no memory before on_number has run stays in front.
void OutgoingStream::number_queued() {
  std::unique_ptr<QueuedMessage> queued = queue_.borrow_front();
  wire::Message message{0, 0, {}, std::move(queued->body)};
  try {
    number(message, queued->options, nullptr);
  } catch (const std::bad_alloc&) {
    queued->body = std::move(message.body);
    queue_.put_back(std::move(queued));
    throw;
  }
  queue_.tidy();
}

void OutgoingStream::number_large() {
  wire::Message message{0, 0, large_.front().transfers(), {}};
  std::unique_ptr<LargeMessage> large = large_.borrow_front();
  message.body = std::move(large->message().body);
  try {
    number(message, large->message().options, large.get());
  } catch (const std::bad_alloc&) {
    large->message().body = std::move(message.body);
    large_.put_back(std::move(large));
    throw;
  }
  large_.tidy();
}

// on_number runs first: what it sends to the same peer goes before. From then on other messages depend on this one, so
// it goes out in any case. The place where it may have to wait for memory is allocated before.
void OutgoingStream::number(wire::Message& message, SendOptions& options, LargeMessage* large) {
  make_spare();
  std::unique_ptr<Stuck> place = std::move(spare_);
  if (options.on_number) options.on_number(message);
  if (connection_.is_closed()) return;
  *place = {std::move(message), std::move(options.on_acknowledged), std::nullopt, nullptr};
  if (large != nullptr) place->large = std::move(*large);
  if (stuck_ != nullptr) return stick(std::move(place));
  try {
    keep_whole(place->message, place->large, place->on_acknowledged);
    *place = {};
    if (spare_ == nullptr) spare_ = std::move(place);
  } catch (const std::bad_alloc&) {
    stick(std::move(place));
  }
}

void OutgoingStream::keep_whole(wire::Message& message, const std::optional<LargeMessage>& large,
                                Task& on_acknowledged) {
  wire::Encoded encoded = encode_next(message);
  if (large && !message.transfers.empty() && !large->matches(encoded)) {
    // The payload changed when the message was numbered, as for an answer that failed. The chunks that went ahead do
    // not belong to it.
    give_up(*large);
    message.transfers.clear();
    encoded = encode_next(message);
  }
  keep(message, std::move(encoded), 0, on_acknowledged);
  transmit_last();
}

void OutgoingStream::make_spare() {
  if (spare_ == nullptr) spare_ = std::make_unique<Stuck>();
}

void OutgoingStream::stick(std::unique_ptr<Stuck> place) {
  std::unique_ptr<Stuck>* last = &stuck_;
  while (*last != nullptr) last = &(*last)->next;
  *last = std::move(place);
  note_shortage();
}

void OutgoingStream::free_stuck() {
  while (stuck_ != nullptr && connection_.is_ready() && sent_.has_all_transmitted() && turn_.has_more()) {
    keep_whole(stuck_->message, stuck_->large, stuck_->on_acknowledged);
    std::unique_ptr<Stuck> gone = std::move(stuck_);
    stuck_ = std::move(gone->next);
    *gone = {};
    if (spare_ == nullptr) spare_ = std::move(gone);
  }
}

// Tells the peer to forget the chunks that went ahead.
void OutgoingStream::give_up(const LargeMessage& large) {
  abandoned_.reserve(abandoned_.size() + large.transfers().size());  // all of them or none
  for (const wire::Transfer& transfer : large.transfers()) {
    if (transfer.id != 0) abandoned_.push_back(transfer.id);
  }
}

void OutgoingStream::keep_and_transmit(wire::Message& message, size_t chunk_bytes, size_t ahead) {
  Task nothing;
  keep(message, encode_next(message), chunk_bytes, nothing);
  sent_.last().bytes_ahead = ahead;
  transmit_last();
}

// Encodes the message with the next number.
wire::Encoded OutgoingStream::encode_next(wire::Message& message) {
  message.number = sent_.last_number() + 1;
  message.ack = owner_.received();
  return wire::encode(message, shared_.numbering_limits());
}

// The message has its number from here on, after the chunks that go ahead of it. If there is no memory, it gets no
// number, and nothing of it is lost.
void OutgoingStream::keep(wire::Message& message, wire::Encoded encoded, size_t chunk_bytes, Task& on_acknowledged) {
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
  owner_.on_ack_sent(message.ack);
  debt_.begin(last_numbered_);
}

// A send failed for lack of memory: the peer may have heard nothing.
void OutgoingStream::note_shortage() noexcept {
  lack_.note(Error(Status::kOutOfMemory, "no memory"), shared_.loop.now());
}

// Does nothing if others have to go before it. The message is kept: without memory it goes later, and its sender sees
// no failure.
void OutgoingStream::transmit_last() {
  SentMessages::Sent* const next = sent_.next_to_transmit();
  if (next == nullptr || next->number != sent_.last_number()) return;
  try {
    transmit(*next);
  } catch (const std::bad_alloc&) {
    note_shortage();
  }
}

// Sends the frame in chunks that take the next numbers, even above the limit of unacknowledged chunks: the message that
// follows has its place already.
uint64_t OutgoingStream::send_ahead(const Frame& frame) {
  abandoned_.reserve(abandoned_.size() + 1);
  const uint64_t transfer = ++last_transfer_;
  for (size_t offset = 0; offset < frame.size(); offset += kChunkBytes) {
    wire::Chunk chunk = chunk_at(frame, transfer, offset);
    const size_t size = chunk.piece.size();
    wire::Message message{0, 0, {}, std::move(chunk)};
    try {
      keep_and_transmit(message, size, frame.size() - offset - size);
    } catch (...) {
      if (offset != 0) abandoned_.push_back(transfer);
      throw;
    }
  }
  return transfer;
}

bool OutgoingStream::transmit(SentMessages::Sent& sent) {
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

// Without memory the next tick tries again.
void OutgoingStream::on_ready() {
  assert_on_loop(shared_.loop);
  if (!turn_.begin()) return;
  const bool is_short = lack_.is_unmet() && connection_.is_ready();
  if (is_short) lack_.try_again(shared_.loop.now());
  try {
    go_on();
  } catch (const std::bad_alloc&) {
    note_shortage();
  }
  if (is_short) lack_.end_attempt();
}

// Order: messages that have a number and are not sent, then those whose on_number has run, then the others. A repeated
// message gets the current acknowledgement in its header, as the old one may be lower than an acknowledgement that went
// alone.
void OutgoingStream::go_on() {
  while (connection_.is_ready()) {
    SentMessages::Sent* const sent = sent_.next_to_transmit();
    if (sent == nullptr) break;
    if (!turn_.has_more()) return;
    if (sent->is_transmitted) {
      sent->header = wire::with_numbers(sent->header, sent->number, owner_.received());
      owner_.on_ack_sent(owner_.received());
    }
    if (!transmit(*sent)) return;
  }
  free_stuck();
  pump();
  if (ack_due_) send_ack();
}

void OutgoingStream::send_ack() {
  assert_on_loop(shared_.loop);
  const uint64_t number = owner_.received();
  ack_due_ = true;
  try {
    ack_due_ = !connection_.is_ready() ||
               !connection_.send(wire::pack({0, number, {}, wire::Ack{}}, shared_.config.limits, shared_.transport));
  } catch (const std::bad_alloc&) {
    note_shortage();
  }
  if (!ack_due_) owner_.on_ack_sent(number);
}

bool OutgoingStream::on_ack(uint64_t number) {
  assert_on_loop(shared_.loop);
  if (number > sent_.last_number()) return false;
  bool progress = false;
  while (std::optional<SentMessages::Sent> sent = sent_.take_acknowledged(number)) {
    progress = true;
    if (sent->on_acknowledged) sent->on_acknowledged();
  }
  if (!progress) return true;
  debt_.settle();
  if (!sent_.is_empty()) debt_.begin(shared_.loop.now());
  if (connection_.is_ready()) on_ready();
  owner_.on_progress();
  return true;
}

// ---- liveness ----

OutgoingStream::Owed OutgoingStream::owed(Nanos now) {
  assert_on_loop(shared_.loop);
  debt_.excuse(now, lack_.take_time(now));
  if (!debt_.is_there()) return {};
  return {now - debt_.since(), connection_.look_at_handshake(now)};
}

// A shortage until now belongs to the debt that is put off.
void OutgoingStream::on_in_line() {
  const Nanos now = shared_.loop.now();
  debt_.excuse(now, lack_.take_time(now));
  debt_.put_off(now);
}

// A shortage within that time is excused once, not twice.
void OutgoingStream::excuse(Nanos now, Nanos time) {
  assert_on_loop(shared_.loop);
  debt_.excuse(now, std::max(time, lack_.take_time(now)));
  connection_.excuse(now, time);
}

void OutgoingStream::tick(Nanos now, Nanos heard_at, Nanos hears_at) {
  assert_on_loop(shared_.loop);
  const Nanos lease = shared_.config.lease;
  connection_.tick(now);
  if (lack_.is_unmet() && connection_.is_ready()) {
    on_ready();
  } else if (lack_.is_unmet() && connection_.is_open()) {
    lack_.try_again(now);  // what waits for the peer to take more does not wait for want of something here
  }
  const bool is_slow = hears_at >= 0 && now - hears_at < lease / 2;
  const Nanos patience = is_slow ? 2 * lease : is_open() ? lease / 2 : lease / 4 * 3;
  if (debt_.is_there() && now - std::max(debt_.since(), connection_.silent_since()) >= patience) {
    connection_.stall();
  } else if (is_open() && sent_.is_empty() && now - std::max(last_numbered_, heard_at) >= lease / 8) {
    if (shared_.transport.reports_every_loss()) return;
    if (farewell_ == Farewell::kNone && can_number()) number(wire::Ping{}, {});
  }
}

}  // namespace distag
