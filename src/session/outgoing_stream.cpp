#include "session/outgoing_stream.h"

#include <algorithm>
#include <utility>

namespace distag {
namespace {

constexpr Nanos kFirstRetry = 10 * kMillisecond;
constexpr unsigned kMaxDoublings = 5;
// Of the frames of a large message, those up to here go with the message itself as long as there is room.
constexpr size_t kDirectFrameBytes = size_t{64} << 10;
// Redials that nobody answers, after a drop: then the peer's process is gone.
constexpr unsigned kRefusalsToLoss = 2;

}  // namespace

OutgoingStream::OutgoingStream(StreamShared& shared, const Peer& peer, Owner& owner)
    : shared_(shared), peer_(peer), owner_(owner) {}

OutgoingStream::~OutgoingStream() {
  shared_.loop.cancel_timer(retry_timer_);
  if (state_ == State::kOpen) --shared_.stats.peers_connected;
}

void OutgoingStream::open() { transition(Event::kNeeded); }
void OutgoingStream::close() { transition(Event::kClosed); }
void OutgoingStream::on_damaged() { transition(Event::kDropped); }

void OutgoingStream::end() {
  ending_ = true;
  drop_messages();
}

void OutgoingStream::leave() {
  farewell_ = Farewell::kDue;
  pump();
}

// ---- the connection ----
//
//   from        event               to         action
//   Idle        Needed              Dialling   dial
//   Dialling    Connected           Greeting   send HELLO
//   Greeting    Welcomed            Open       send again what is unacknowledged, then what waits
//   Dialling, Greeting, Open
//               Dropped, Refused    Waiting    drop the connection, dial later; dead after a drop and two refusals
//   Dialling, Greeting, Open
//               Stalled             Waiting    the same, without counting
//   Waiting     RetryDue            Dialling   dial
//   any         Closed              Closed     drop everything
//
// Of a stream that ends, every drop is Closed.
// Everything else changes nothing.
void OutgoingStream::transition(Event event) {
  const bool has_connection = state_ == State::kDialling || state_ == State::kGreeting || state_ == State::kOpen;
  if (ending_ && (event == Event::kDropped || event == Event::kRefused || event == Event::kStalled)) {
    event = Event::kClosed;
  }
  switch (event) {
    case Event::kNeeded:
      if (state_ == State::kIdle) dial();
      break;
    case Event::kRetryDue:
      if (state_ == State::kWaiting) dial();
      break;
    case Event::kConnected:
      if (state_ != State::kDialling) break;
      enter(State::kGreeting);
      greet();
      break;
    case Event::kWelcomed:
      if (state_ != State::kGreeting) break;
      enter(State::kOpen);
      flush();
      break;
    case Event::kDropped:
    case Event::kRefused:
      if (!has_connection) break;
      drop_connection();
      wait_to_retry();
      if (note_drop(event == Event::kRefused)) owner_.on_dead("connection dropped and two redials were refused");
      break;
    case Event::kStalled:
      if (!has_connection) break;
      drop_connection();
      wait_to_retry();
      break;
    case Event::kClosed:
      if (state_ == State::kClosed) break;
      drop_connection();
      shared_.loop.cancel_timer(retry_timer_);
      enter(State::kClosed);
      drop_messages();
      break;
  }
}

void OutgoingStream::drop_messages() {
  queue_.clear();
  large_.clear();
  abandoned_.clear();
  for (const Sent& sent : unacknowledged_) shared_.stats.bytes_in_flight -= sent.bytes;
  unacknowledged_.clear();
  next_to_transmit_ = last_number_ + 1;
  unacknowledged_chunk_bytes_ = 0;
  farewell_ = Farewell::kSaid;
  owed_since_ = kNever;
}

void OutgoingStream::enter(State state) {
  if (state_ == State::kOpen) --shared_.stats.peers_connected;
  if (state == State::kOpen) ++shared_.stats.peers_connected;
  state_ = state;
}

void OutgoingStream::dial() {
  enter(State::kDialling);
  owe_from_now();
  connected_since_ = shared_.loop.now();
  greeted_ = false;
  blocked_ = false;
  const uint64_t epoch = ++epoch_;
  ConnectionEvents events;
  events.on_connected = [this, epoch] {
    if (epoch == epoch_) transition(Event::kConnected);
  };
  events.on_message = [this, epoch](Frames frames) {
    if (epoch == epoch_) owner_.on_answer(std::move(frames));
  };
  events.on_writable = [this, epoch] {
    if (epoch != epoch_) return;
    blocked_ = false;
    greet();
    flush();
  };
  events.on_dropped = [this, epoch](bool refused) {
    if (epoch == epoch_) transition(refused ? Event::kRefused : Event::kDropped);
  };
  try {
    connection_ = shared_.transport.dial(peer_.endpoint, std::move(events));
  } catch (...) {
    const Error error = current_error();
    // Out of descriptors or memory: by the next attempt that may have changed, and the lease bounds it.
    shared_.log.write(LogLevel::kWarning, fmt::format("{}: {}", describe(peer_), error.message()));
    transition(Event::kDropped);
    if (error.status() == Status::kInvalidArgument) owner_.on_dead(error.message());
  }
}

void OutgoingStream::greet() {
  if (state_ != State::kGreeting || greeted_) return;
  const Peer& self = shared_.config.self;
  wire::Hello hello;
  hello.job = shared_.config.job;
  hello.name = self.name;
  hello.rank = self.rank;
  hello.incarnation = self.incarnation;
  hello.generation = self.generation;
  hello.endpoint = self.endpoint;
  hello.wanted = peer_.incarnation;
  hello.max_message_bytes = shared_.config.limits.max_message_bytes;
  greeted_ = transmit(std::move(hello), 0);
}

void OutgoingStream::drop_connection() {
  ++epoch_;
  if (!connection_) return;
  // It may be the one whose callback runs.
  dropped_.push_back(std::move(connection_));
  shared_.loop.post_or_drop([this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.lock()) dropped_.clear();
  });
}

void OutgoingStream::wait_to_retry() {
  enter(State::kWaiting);
  owe_from_now();
  const Nanos longest = kFirstRetry << std::min(drops_, kMaxDoublings);
  const auto jitter = static_cast<Nanos>(shared_.random.next() % static_cast<uint64_t>(longest));
  shared_.loop.cancel_timer(retry_timer_);
  retry_timer_ = shared_.loop.start_timer(shared_.loop.now() + longest / 2 + jitter / 2, [this] {
    retry_timer_ = 0;
    transition(Event::kRetryDue);
  });
}

// True: the peer is gone. The first drop may itself be a refusal.
bool OutgoingStream::note_drop(bool refused) {
  refusals_ = refused && drops_ > 0 ? refusals_ + 1 : 0;
  ++drops_;
  return refusals_ >= kRefusalsToLoss;
}

bool OutgoingStream::on_welcome(const wire::Welcome& welcome) {
  if (state_ != State::kGreeting) return true;
  if (!on_ack(welcome.next - 1)) return false;
  drops_ = 0;
  refusals_ = 0;
  next_to_transmit_ = unacknowledged_.empty() ? last_number_ + 1 : unacknowledged_.front().number;
  if (unacknowledged_.empty()) owed_since_ = kNever;
  ack_due_ = owner_.received() > 0;
  transition(Event::kWelcomed);
  return true;
}

// ---- messages ----

bool OutgoingStream::can_number() const {
  return state_ == State::kOpen && !blocked_ && next_to_transmit_ == last_number_ + 1;
}

Session::Ticket OutgoingStream::send(Session::Ticket ticket, wire::Body body, SendOptions options, size_t size) {
  if (size > kMaxDirectBytes) {
    wire::Encoded encoded = wire::encode({0, 0, {}, body}, shared_.numbering_limits());
    size_t direct = encoded.header.size();
    if (encoded.is_long) take_long_header(encoded);  // it is made anew with the number
    Large large{{ticket, std::move(body), std::move(options)}, std::move(encoded.payload), {}};
    for (uint32_t i = 0; i < large.payload.size(); ++i) {
      const size_t frame_bytes = large.payload[i].size();
      if (frame_bytes <= kDirectFrameBytes && direct + frame_bytes <= kMaxDirectBytes) {
        direct += frame_bytes;
      } else {
        large.transfers.push_back({0, i});
      }
    }
    large_.push_back(std::move(large));
    pump();
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
  auto has_ticket = [ticket](const Queued& queued) { return queued.ticket == ticket; };
  auto queued = std::find_if(queue_.begin(), queue_.end(), has_ticket);
  if (queued != queue_.end()) {
    queue_.erase(queued);
    owner_.on_progress();
    return true;
  }
  auto large = std::find_if(large_.begin(), large_.end(),
                            [&has_ticket](const Large& candidate) { return has_ticket(candidate.message); });
  if (large == large_.end()) return false;
  give_up(*large);
  large_.erase(large);
  pump();
  owner_.on_progress();
  return true;
}

// Goes on numbering while the connection takes it. Small messages first, so that they pass between chunks.
void OutgoingStream::pump() {
  while (can_number()) {
    if (!queue_.empty()) {
      Queued queued = std::move(queue_.front());
      queue_.pop_front();
      number(std::move(queued.body), std::move(queued.options));
    } else if (!abandoned_.empty()) {
      wire::Chunk chunk;
      chunk.transfer = abandoned_.back();
      chunk.abandoned = true;
      abandoned_.pop_back();
      number(std::move(chunk), {});
    } else if (!large_.empty()) {
      if (!pump_large()) break;
    } else if (farewell_ == Farewell::kDue) {
      farewell_ = Farewell::kSaid;
      number(wire::Leave{}, {});
    } else {
      break;
    }
  }
}

// The next chunk of the first large message, or the message itself. False when too much is unacknowledged.
bool OutgoingStream::pump_large() {
  Large& large = large_.front();
  if (large.current == large.transfers.size()) {
    Large whole = std::move(large);
    large_.pop_front();
    number_large(std::move(whole));
    return true;
  }
  if (unacknowledged_chunk_bytes_ >= kMaxUnacknowledgedChunkBytes) return false;
  wire::Transfer& transfer = large.transfers[large.current];
  const Frame& frame = large.payload[transfer.frame];
  if (transfer.id == 0) transfer.id = ++last_transfer_;
  const size_t size = std::min(kChunkBytes, frame.size() - large.offset);
  wire::Chunk chunk;
  chunk.transfer = transfer.id;
  chunk.offset = large.offset;
  chunk.total = frame.size();
  chunk.piece = Frame(frame.data() + large.offset, size, frame.owner());
  large.offset += size;
  if (large.offset == frame.size()) {
    ++large.current;
    large.offset = 0;
  }
  wire::Message message{0, 0, {}, std::move(chunk)};
  keep_and_transmit(message, size, {});
  return true;
}

// on_number first: what it sends to the same peer goes before.
void OutgoingStream::number(wire::Body body, SendOptions options) {
  wire::Message message{0, 0, {}, std::move(body)};
  if (options.on_number) options.on_number(message);
  if (state_ == State::kClosed) return;
  keep_and_transmit(message, 0, std::move(options.on_acknowledged));
}

void OutgoingStream::number_large(Large large) {
  wire::Message message{0, 0, large.transfers, std::move(large.message.body)};
  SendOptions& options = large.message.options;
  if (options.on_number) options.on_number(message);
  if (state_ == State::kClosed) return;
  wire::Encoded encoded = wire::encode(message, shared_.numbering_limits());
  if (encoded.is_long) take_long_header(encoded);
  const Frames& ahead = encoded.payload;
  const bool same = std::equal(ahead.begin(), ahead.end(), large.payload.begin(), large.payload.end(),
                               [](const Frame& a, const Frame& b) { return a.size() == b.size(); });
  if (!same) {
    // It became something else when it was numbered: an answer that failed. What went ahead is not for it.
    give_up(large);
    message.transfers.clear();
  }
  keep_and_transmit(message, 0, std::move(options.on_acknowledged));
}

// What went ahead of it is to be forgotten.
void OutgoingStream::give_up(Large& large) {
  for (const wire::Transfer& transfer : large.transfers) {
    if (transfer.id != 0) abandoned_.push_back(transfer.id);
  }
}

void OutgoingStream::keep_and_transmit(wire::Message& message, size_t chunk_bytes, Task on_acknowledged) {
  message.number = last_number_ + 1;
  message.ack = owner_.received();
  wire::Encoded encoded = wire::encode(message, shared_.numbering_limits());
  Frame long_header;
  if (encoded.is_long) {
    long_header = take_long_header(encoded);
    encoded.payload_bytes -= long_header.size();
  }
  // Backwards, so that the places of the others stay.
  for (auto transfer = message.transfers.rbegin(); transfer != message.transfers.rend(); ++transfer) {
    encoded.payload_bytes -= encoded.payload[transfer->frame].size();
    encoded.payload.erase(encoded.payload.begin() + transfer->frame);
  }
  if (encoded.is_long) {
    uint64_t transfer = 0;
    if (long_header.size() + encoded.payload_bytes > kChunkBytes) {
      transfer = send_ahead(long_header);
      message.number = last_number_ + 1;
    } else {
      encoded.payload_bytes += long_header.size();
      encoded.payload.insert(encoded.payload.begin(), std::move(long_header));
    }
    encoded.header = wire::encode_long(message, transfer);
  }
  owner_.on_ack_sent(message.ack);

  const size_t bytes = encoded.header.size() + encoded.payload_bytes;
  last_number_ = message.number;
  last_numbered_ = shared_.loop.now();
  unacknowledged_chunk_bytes_ += chunk_bytes;
  shared_.stats.bytes_in_flight += bytes;
  unacknowledged_.push_back({message.number, std::move(encoded.header), std::move(encoded.payload), bytes, chunk_bytes,
                             std::move(on_acknowledged)});
  if (owed_since_ == kNever) owed_since_ = last_numbered_;
  Sent& sent = unacknowledged_.back();
  if (next_to_transmit_ == sent.number) transmit(sent);
}

Frame OutgoingStream::take_long_header(wire::Encoded& encoded) {
  Frame header = std::move(encoded.payload.front());
  encoded.payload.erase(encoded.payload.begin());
  return header;
}

// In chunks that take the next numbers, however many are unacknowledged: what follows them has its place already.
uint64_t OutgoingStream::send_ahead(const Frame& frame) {
  const uint64_t transfer = ++last_transfer_;
  for (size_t offset = 0; offset < frame.size(); offset += kChunkBytes) {
    const size_t size = std::min(kChunkBytes, frame.size() - offset);
    wire::Chunk chunk;
    chunk.transfer = transfer;
    chunk.offset = offset;
    chunk.total = frame.size();
    chunk.piece = Frame(frame.data() + offset, size, frame.owner());
    wire::Message message{0, 0, {}, std::move(chunk)};
    keep_and_transmit(message, size, {});
  }
  return transfer;
}

bool OutgoingStream::transmit(Sent& sent) {
  if (!transmit(sent.header, sent.payload)) return false;
  if (sent.transmitted) ++shared_.stats.messages_replayed;
  sent.transmitted = true;
  ++next_to_transmit_;
  ack_due_ = false;
  return true;
}

bool OutgoingStream::transmit(const Frame& header, const Frames& payload) {
  scratch_.push_back(shared_.transport.is_exact() ? header : wire::seal(header, payload));
  scratch_.insert(scratch_.end(), payload.begin(), payload.end());
  const bool taken = put_on_connection(scratch_);
  scratch_.clear();
  return taken;
}

// Without a number.
bool OutgoingStream::transmit(wire::Body body, uint64_t ack) {
  return put_on_connection(wire::pack({0, ack, {}, std::move(body)}, shared_.config.limits, shared_.transport));
}

bool OutgoingStream::put_on_connection(const Frames& frames) {
  if (!connection_->send(frames)) {
    blocked_ = true;
    return false;
  }
  for (const Frame& frame : frames) shared_.stats.bytes_sent += frame.size();
  return true;
}

// What has a number and is not on its way, then what has none.
void OutgoingStream::flush() {
  if (state_ != State::kOpen) return;
  while (!blocked_ && next_to_transmit_ <= last_number_) {
    Sent& sent = unacknowledged_[static_cast<size_t>(next_to_transmit_ - unacknowledged_.front().number)];
    if (sent.transmitted) {
      sent.header = wire::with_numbers(sent.header, sent.number, owner_.received());
      owner_.on_ack_sent(owner_.received());
    }
    if (!transmit(sent)) return;
  }
  pump();
  if (ack_due_) send_ack();
}

void OutgoingStream::send_ack() {
  const uint64_t number = owner_.received();
  ack_due_ = state_ != State::kOpen || blocked_ || !transmit(wire::Ack{}, number);
  if (!ack_due_) owner_.on_ack_sent(number);
}

bool OutgoingStream::on_ack(uint64_t number) {
  if (number > last_number_) return false;
  bool progress = false;
  while (!unacknowledged_.empty() && unacknowledged_.front().number <= number) {
    Sent sent = std::move(unacknowledged_.front());
    unacknowledged_.pop_front();
    shared_.stats.bytes_in_flight -= sent.bytes;
    unacknowledged_chunk_bytes_ -= sent.chunk_bytes;
    next_to_transmit_ = std::max(next_to_transmit_, sent.number + 1);
    progress = true;
    if (sent.on_acknowledged) sent.on_acknowledged();
  }
  if (!progress) return true;
  owed_since_ = kNever;
  if (!unacknowledged_.empty()) owe_from_now();
  pump();
  owner_.on_progress();
  return true;
}

// ---- liveness ----

void OutgoingStream::owe_from_now() {
  if (owed_since_ == kNever) owed_since_ = shared_.loop.now();
}

void OutgoingStream::restart_lease(Nanos now) {
  if (owed_since_ != kNever) owed_since_ = now;
  connected_since_ = now;
}

void OutgoingStream::tick(Nanos now) {
  const Nanos lease = shared_.config.lease;
  if (owed_since_ != kNever && now - std::max(owed_since_, connected_since_) >= lease / 2) {
    transition(Event::kStalled);
  } else if (state_ == State::kOpen && unacknowledged_.empty() && now - last_numbered_ >= lease / 8) {
    if (farewell_ == Farewell::kNone && can_number()) number(wire::Ping{}, {});
  }
}

}  // namespace distag
