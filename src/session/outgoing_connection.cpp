#include "session/outgoing_connection.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/each_step.h"
#include "session/debt.h"

namespace distag {
namespace {

constexpr Nanos kFirstRetry = 10 * kMillisecond;
constexpr unsigned kMaxDoublings = 5;
// Refused redials after a drop that show that the peer's process is gone.
constexpr unsigned kRefusalsToLoss = 2;
// The most bytes that handshakes may count until one has ended: more than the other side says in several (greeting,
// WELCOME and READY of CURVE, WELCOME). A sender of more is no slow listener.
constexpr uint64_t kHandshakeBytes = 4096;
// A first handshake that drops this late was given up by a slow side, not by one that is gone: transports give it 5 s
// or more.
constexpr Nanos kSlowHandshake = 2 * kSecond;

Nanos slow_handshake(const StreamShared& shared) { return std::min(kSlowHandshake, shared.config.lease / 4); }

Error why_dead(bool was_denied) {
  if (!was_denied) return {Status::kDisconnected, "connection dropped and two redials were refused"};
  return {Status::kDenied,
          "it does not let this worker in, or has another key than its name: their keys do not fit (give each the key "
          "of the "
          "other); or over ipc://, without keys of their own, they are of two users (run them as one)"};
}

}  // namespace

OutgoingConnection::OutgoingConnection(StreamShared& shared, const Peer& peer, Lack& lack, Owner& owner)
    : shared_(shared),
      peer_(peer),
      place_(shared.line, [this] { transition(Event::kTurn); }),
      lack_(lack),
      owner_(owner) {}

OutgoingConnection::~OutgoingConnection() {
  shared_.loop.cancel_timer(retry_timer_);
  if (is_open()) --shared_.stats.peers_connected;
}

//   from        event               to         action
//   Idle        Needed              InLine     wait for the turn
//   InLine      Turn                Dialling   dial
//   Dialling    Connected           Greeting   send HELLO
//   Greeting    Welcomed            Open       tell the owner, who sends again what is unacknowledged, then what waits
//   Dialling, Greeting, Open
//               Dropped, Refused    Waiting    drop the connection, dial later; dead after a drop and two refusals
//   Dialling, Greeting, Open
//               Stalled, Short      Waiting    the same, without counting; Short: this worker lacks a resource
//   Waiting     RetryDue            Dialling   dial, if it was ever open, or the last dial was refused or dropped soon
//   Waiting     RetryDue            InLine     else wait for the turn
//   any         Closed              Closed     drop the connection, tell the owner
//
// After end() every drop is Closed.
// Everything else changes nothing.
void OutgoingConnection::transition(Event event) {
  assert_on_loop(shared_.loop);
  const bool has_connection = state_ == State::kDialling || state_ == State::kGreeting || state_ == State::kOpen;
  const bool has_ended = event == Event::kDropped || event == Event::kRefused || event == Event::kStalled;
  // Whatever came of the dial, the resources for it were there.
  if (has_connection && (has_ended || event == Event::kWelcomed)) lack_.end_attempt();
  if (ending_ && (has_ended || event == Event::kShort)) event = Event::kClosed;
  switch (event) {
    case Event::kNeeded:
    case Event::kRetryDue:
      if (state_ != (event == Event::kNeeded ? State::kIdle : State::kWaiting)) break;
      if (was_open_ || history_.skips_line || ending_) return dial();
      enter(State::kInLine);
      history_.in_line_at = shared_.loop.now();
      owner_.on_in_line();
      place_.enter();
      break;
    case Event::kTurn:
      if (state_ == State::kInLine) dial(shared_.loop.now() - history_.in_line_at);
      break;
    case Event::kConnected:
      if (state_ != State::kDialling) break;
      place_.note_pace(shared_.loop.now() - attempt_.begun < slow_handshake(shared_));
      enter(State::kGreeting);
      greet();
      break;
    case Event::kWelcomed:
      if (state_ != State::kGreeting) break;
      enter(State::kOpen);
      owner_.on_ready();
      break;
    case Event::kDropped:
    case Event::kRefused:
      if (!has_connection) break;
      look_at_handshake(shared_.loop.now());
      history_.skips_line = event == Event::kRefused || shared_.loop.now() - attempt_.begun < slow_handshake(shared_);
      drop_connection();
      wait_to_retry();
      if (note_drop(event == Event::kRefused)) owner_.on_dead(why_dead(attempt_.was_denied));
      break;
    case Event::kStalled:
    case Event::kShort:
      if (!has_connection) break;
      look_at_handshake(shared_.loop.now());
      history_.skips_line = false;
      drop_connection();
      wait_to_retry();
      break;
    case Event::kClosed:
      if (state_ == State::kClosed) break;
      drop_connection();
      shared_.loop.cancel_timer(retry_timer_);
      enter(State::kClosed);
      owner_.on_closed();
      break;
  }
}

void OutgoingConnection::enter(State state) {
  if (state_ == State::kOpen) --shared_.stats.peers_connected;
  if (state == State::kOpen) ++shared_.stats.peers_connected;
  if (state != State::kDialling) place_.leave();
  state_ = state;
}

// The attempt begins before it can fail, so that a failure counts for this dial and not for the one before.
void OutgoingConnection::dial(Nanos waited) {
  enter(State::kDialling);
  owner_.on_dialling();
  const Nanos now = shared_.loop.now();
  lack_.try_again(now);
  history_.heard += attempt_.heard;
  if (history_.heard_at >= 0) history_.heard_at = std::min(now, history_.heard_at + waited);
  attempt_ = {now, now, waited > shared_.config.lease / 16};
  try {
    dropped_.reserve(dropped_.size() + 1);  // for this connection: its end needs no memory then
    connection_ = shared_.transport.dial_worker(peer_.name, peer_.endpoint, events_of(++epoch_));
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kOutOfMemory) return stall_for(error);
    EachStep each;  // without memory the warning is not logged
    each([&] { shared_.log.write(LogLevel::kWarning, fmt::format("{}: {}", describe_peer(peer_), error.message())); });
    transition(Event::kDropped);
    // The address is invalid, or the peer requires a key that this worker does not have.
    const bool is_denied = error.status() == Status::kDenied;
    if (is_denied || error.status() == Status::kInvalidArgument) {
      owner_.on_dead(Error(is_denied ? Status::kDenied : Status::kDisconnected, error.message()));
    }
  }
}

// The shortage may be over by the next attempt.
void OutgoingConnection::stall_for(const Error& lack) {
  assert_on_loop(shared_.loop);
  const Nanos now = shared_.loop.now();
  const bool is_new = !lack_.is_there(now);
  lack_.note(lack, now);
  transition(Event::kShort);
  if (!is_new) return;
  EachStep each;  // without memory the warning is not logged
  each([&] { shared_.log.write(LogLevel::kWarning, fmt::format("{}: {}", describe_peer(peer_), lack.message())); });
}

ConnectionEvents OutgoingConnection::events_of(uint64_t epoch) {
  ConnectionEvents events;
  events.is_redial = was_open_;
  events.on_connected = [this, epoch] {
    if (epoch == epoch_) transition(Event::kConnected);
  };
  events.on_message = [this, epoch](Frames frames) {
    if (epoch == epoch_) owner_.on_answer(std::move(frames));
  };
  events.on_writable = [this, epoch] {
    if (epoch != epoch_) return;
    attempt_.is_blocked = false;
    greet();
    if (is_open()) owner_.on_ready();
  };
  // A peer that no longer has the key of this group is as good as gone.
  events.on_denied = [this, epoch] {
    if (epoch != epoch_) return;
    attempt_.was_denied = true;
    transition(Event::kRefused);
  };
  events.on_lack = [this, epoch](const Error& lack) {
    if (epoch == epoch_) stall_for(lack);
  };
  events.on_dropped = [this, epoch](bool refused) {
    if (epoch == epoch_) transition(refused ? Event::kRefused : Event::kDropped);
  };
  return events;
}

// Without memory for HELLO the connection is dialled again.
void OutgoingConnection::greet() {
  if (!is_greeting() || attempt_.has_greeted) return;
  try {
    attempt_.has_greeted = send(make_hello());
  } catch (const std::bad_alloc&) {
    stall_for(current_error());
  }
}

Frames OutgoingConnection::make_hello() const {
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
  return wire::pack({0, 0, {}, std::move(hello)}, shared_.config.limits, shared_.transport);
}

void OutgoingConnection::welcome() {
  assert_on_loop(shared_.loop);
  was_open_ = true;
  attempt_.heard = 0;
  history_ = {};
  transition(Event::kWelcomed);
}

bool OutgoingConnection::send(const Frames& frames) {
  assert_on_loop(shared_.loop);
  if (!connection_->send(frames)) {
    attempt_.is_blocked = true;
    return false;
  }
  for (const Frame& frame : frames) shared_.stats.bytes_sent += frame.size();
  return true;
}

void OutgoingConnection::drop() {
  assert_on_loop(shared_.loop);
  if (connection_) connection_->distrust();
  transition(Event::kDropped);
}

void OutgoingConnection::stall() {
  assert_on_loop(shared_.loop);
  if (connection_) connection_->distrust();
  transition(Event::kStalled);
}

void OutgoingConnection::drop_connection() {
  ++epoch_;
  if (!connection_) return;
  // The callback that runs may belong to this connection.
  dropped_.push_back(std::move(connection_));
  try {
    shared_.loop.post_or_drop([this, alive = std::weak_ptr<char>(alive_)] {
      if (alive.lock()) dropped_.clear();
    });
  } catch (const std::bad_alloc&) {
    // Destroyed with the next dropped connection, or at the next tick.
  }
}

// The wait doubles after each drop, up to kMaxDoublings times; the jitter keeps the workers of a group from dialling at
// once.
void OutgoingConnection::wait_to_retry() {
  enter(State::kWaiting);
  owner_.on_dialling();
  const bool is_short = lack_.is_there(shared_.loop.now());
  const Nanos longest = kFirstRetry << (is_short ? kMaxDoublings : std::min(history_.drops, kMaxDoublings));
  const auto jitter = static_cast<Nanos>(shared_.random.next() % static_cast<uint64_t>(longest));
  shared_.loop.cancel_timer(retry_timer_);
  retry_timer_ = 0;
  try {
    retry_timer_ = shared_.loop.start_timer(shared_.loop.now() + longest / 2 + jitter / 2, [this] {
      retry_timer_ = 0;
      transition(Event::kRetryDue);
    });
  } catch (const std::bad_alloc&) {
    // tick() dials.
  }
}

void OutgoingConnection::tick(Nanos now) {
  assert_on_loop(shared_.loop);
  dropped_.clear();  // connections that could not be destroyed before for lack of memory
  if (retry_timer_ == 0) transition(Event::kRetryDue);
  look_at_handshake(now);
  if (!place_.has_turn()) return;
  const Nanos lease = shared_.config.lease;
  const bool has_stalled = attempt_.heard == 0 && now - silent_since() >= lease / 4;
  const bool is_long = now - attempt_.begun >= lease;
  if (attempt_.heard > 0 && now - attempt_.begun >= slow_handshake(shared_)) place_.note_pace(false);
  if (has_stalled || is_long) place_.leave();
}

OutgoingConnection::HandshakeSign OutgoingConnection::look_at_handshake(Nanos now) {
  assert_on_loop(shared_.loop);
  const bool goes_on = state_ == State::kDialling || state_ == State::kGreeting;
  if (!goes_on || connection_ == nullptr) return {history_.heard_at, false};
  if (state_ == State::kDialling) {
    const uint64_t heard = std::min(connection_->heard_bytes(), kHandshakeBytes - history_.heard);
    if (heard > attempt_.heard) attempt_.heard_at = history_.heard_at = now;
    attempt_.heard = std::max(attempt_.heard, heard);
  }
  const Nanos lease = shared_.config.lease;
  return {history_.heard_at, attempt_.has_waited && now - attempt_.at < lease / 2 - lease / 16};
}

// Bytes that have come by now were heard in the excused time.
void OutgoingConnection::excuse(Nanos now, Nanos time) {
  assert_on_loop(shared_.loop);
  look_at_handshake(now);
  for (Nanos* const moment : {&attempt_.at, &attempt_.heard_at, &history_.heard_at}) {
    if (*moment >= 0) *moment = excused(*moment, now, time);
  }
}

void OutgoingConnection::end(bool is_told) {
  assert_on_loop(shared_.loop);
  ending_ = true;
  if (was_open_ || is_idle()) return;
  if (is_told) return close();
  place_.leave();
  if (state_ == State::kInLine) dial();
}

// True: the peer is gone. The first drop may itself be a refusal.
bool OutgoingConnection::note_drop(bool refused) {
  history_.refusals = refused && history_.drops > 0 ? history_.refusals + 1 : 0;
  ++history_.drops;
  return history_.refusals >= kRefusalsToLoss;
}

}  // namespace distag
