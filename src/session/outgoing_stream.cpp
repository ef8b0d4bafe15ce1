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
      sender_(shared, connection_, turn_, lack_, debt_, owner),
      waiting_(sender_, turn_) {}

void OutgoingStream::end(bool is_told) {
  assert_on_loop(shared_.loop);
  connection_.end(is_told);
  drop_messages();
}

void OutgoingStream::leave() {
  assert_on_loop(shared_.loop);
  connection_.hurry();
  waiting_.leave();
}

void OutgoingStream::drop_messages() {
  waiting_.clear();
  sender_.clear();
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
    waiting_.send_large(
        LargeMessage({ticket, std::move(body), std::move(options)}, std::move(payload.frames), payload.header_bytes));
    return ticket;
  }
  return waiting_.send({ticket, std::move(body), std::move(options)}) ? 0 : ticket;
}

bool OutgoingStream::withdraw(Session::Ticket ticket) {
  assert_on_loop(shared_.loop);
  if (!waiting_.withdraw(ticket)) return false;
  owner_.on_progress();
  return true;
}

// Order: messages that have a number and are not sent, then those whose on_number has run, then the others. Without
// memory the next tick tries again.
void OutgoingStream::on_ready() {
  assert_on_loop(shared_.loop);
  if (!turn_.begin()) return;
  const bool is_short = lack_.is_unmet() && connection_.is_ready();
  if (is_short) lack_.try_again(shared_.loop.now());
  try {
    if (sender_.send_all()) {
      waiting_.pump();
      if (sender_.owes_ack()) sender_.send_ack();
    }
  } catch (const std::bad_alloc&) {
    sender_.note_shortage();
  }
  if (is_short) lack_.end_attempt();
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
    waiting_.ping();
  }
}

}  // namespace distag
