#include "session/outgoing_stream.h"

#include <algorithm>
#include <new>
#include <utility>

namespace distag {

OutgoingStream::OutgoingStream(StreamShared& shared, const Peer& peer, Owner& owner)
    : shared_(shared),
      owner_(owner),
      connection_(shared, peer, lack_, *this),
      turn_(shared.loop, connection_.alive(), [this] { on_ready(); }),
      sender_(shared, connection_, turn_, lack_, debt_, owner) {}

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
  sender_.clear();
  farewell_ = Farewell::kSaid;
}

bool OutgoingStream::on_welcome(const wire::Welcome& welcome) {
  assert_on_loop(shared_.loop);
  if (!on_ack(welcome.next - 1)) return false;
  if (!connection_.is_greeting()) return true;
  sender_.rewind();
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
  sender_.abandon(large_[large]);
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
    sender_.note_shortage();
  }
}

// Numbers messages while the connection takes them. Small messages go first, so that they pass between chunks; LEAVE
// goes last, as nothing follows it. Each step leaves everything in its place when it throws.
void OutgoingStream::pump() {
  while (can_number() && turn_.has_more()) {
    make_spare();  // a message that is taken out is not lost then
    if (!queue_.empty()) {
      number_queued();
    } else if (sender_.has_abandoned()) {
      sender_.add_abandoned();
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
  if (!large_.front().is_ahead()) return sender_.add_chunk(large_.front());
  number_large();
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
    sender_.add(place->message, place->large, place->on_acknowledged);
    *place = {};
    if (spare_ == nullptr) spare_ = std::move(place);
  } catch (const std::bad_alloc&) {
    stick(std::move(place));
  }
}

void OutgoingStream::make_spare() {
  if (spare_ == nullptr) spare_ = std::make_unique<Stuck>();
}

void OutgoingStream::stick(std::unique_ptr<Stuck> place) {
  std::unique_ptr<Stuck>* last = &stuck_;
  while (*last != nullptr) last = &(*last)->next;
  *last = std::move(place);
  sender_.note_shortage();
}

void OutgoingStream::free_stuck() {
  while (stuck_ != nullptr && sender_.takes_more() && turn_.has_more()) {
    sender_.add(stuck_->message, stuck_->large, stuck_->on_acknowledged);
    std::unique_ptr<Stuck> gone = std::move(stuck_);
    stuck_ = std::move(gone->next);
    *gone = {};
    if (spare_ == nullptr) spare_ = std::move(gone);
  }
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
    sender_.note_shortage();
  }
  if (is_short) lack_.end_attempt();
}

// Order: messages that have a number and are not sent, then those whose on_number has run, then the others.
void OutgoingStream::go_on() {
  if (!sender_.send_all()) return;
  free_stuck();
  pump();
  if (sender_.owes_ack()) sender_.send_ack();
}

bool OutgoingStream::on_ack(uint64_t number) {
  assert_on_loop(shared_.loop);
  if (number > sender_.last_number()) return false;
  if (!sender_.acknowledge(number)) return true;
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
  } else if (is_open() && sender_.unacknowledged() == 0 &&
             now - std::max(sender_.last_numbered(), heard_at) >= lease / 8) {
    if (shared_.transport.reports_every_loss()) return;
    if (farewell_ == Farewell::kNone && can_number()) number(wire::Ping{}, {});
  }
}

}  // namespace distag
