#include "session/session.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "session/session_state.h"

namespace distag {
namespace {

constexpr size_t kStreamsATurn = 4;  // of the end, each with its lane

}  // namespace

std::string describe_peer(const Peer& peer) { return fmt::format("worker \"{}\" (rank {})", peer.name, peer.rank); }

Session::State::State(Loop& loop, Transport& transport, Random& random, Log& log_of_worker, SessionConfig config,
                      SessionEvents& session_events)
    : shared{loop, transport, random, log_of_worker, std::move(config), {}},
      events(session_events),
      log(shared),
      replies(shared),
      acks(shared, replies),
      peers(shared, shared.config.memory ? *shared.config.memory : pool, *this),
      self(shared, log, session_events, *this),
      farewell(shared, peers, self),
      standings(shared, session_events, replies, acks, peers, farewell) {
  shared.config.self.max_message_bytes = shared.config.limits.max_message_bytes;
}

Session::State::~State() { shared.loop.cancel_timer(tick_timer); }

void Session::State::set_self(Peer peer) {
  shared.config.self = std::move(peer);
  for (PeerRecord* record : std::vector<PeerRecord*>(peers.all())) {
    if (record->is_member() && (!record->connection.empty() || !record->outgoing.is_drained())) open(*record);
  }
}

// ---- sending ----

Session::Ticket Session::State::send(Incarnation to, wire::Body body, SendOptions options) {
  if (farewell.has_begun()) fail(Status::kInvalidState, "the worker is leaving: nothing more can be sent");
  if (to == shared.config.self.incarnation) {
    self.send(std::move(body), std::move(options));
    return 0;
  }
  PeerRecord* record = peers.find(to);
  if (const Error* why = peers.gone(to)) throw *why;
  if (record == nullptr) fail(Status::kNotFound, "no worker of incarnation {:016x} is known", to);
  const size_t size = wire::check(body, shared.config.limits);
  check_size_for(*record, body, size);
  open(*record);
  return record->outgoing.send(++last_ticket, std::move(body), std::move(options), size);
}

// The peer would have to take it for a violation.
void Session::State::check_size_for(const PeerRecord& record, const wire::Body& body, size_t size) const {
  const uint64_t limit = record.peer.max_message_bytes;
  if (limit == 0 || size <= limit) return;
  fail(Status::kInvalidArgument,
       "a {} of {} bytes is above the max_message_bytes of {}, which is {} (that of this worker is {}): send less at a "
       "time, or raise it there",
       wire::body_name(body), size, describe_peer(record.peer), limit, shared.config.limits.max_message_bytes);
}

void Session::State::open(PeerRecord& record) {
  // A worker that has no rank yet cannot say HELLO: set_self follows.
  if (!record.outgoing.is_idle() || shared.config.self.rank < 0) return;
  start_ticking();
  record.outgoing.open();
}

// ---- the interface ----

Session::Session(Loop& loop, Transport& transport, Random& random, Log& log, SessionConfig config,
                 SessionEvents& events)
    : state_(std::make_unique<State>(loop, transport, random, log, std::move(config), events)) {}

Session::~Session() = default;

std::string Session::listen(const std::string& address) {
  assert_on_loop(state_->shared.loop);
  AcceptorEvents acceptor_events;
  acceptor_events.on_message = [state = state_.get()](const ConnectionToken& from, Frames frames) {
    state->on_message(from, std::move(frames));
  };
  acceptor_events.on_part = [state = state_.get()](const ConnectionToken& from) { state->on_part(from); };
  acceptor_events.on_denied = [state = state_.get()](const std::string& why) { state->log.note_refusal(why); };
  acceptor_events.on_lack = [shared = &state_->shared](const Error& why) {
    shared->deafness.note(why, shared->loop.now());
  };
  state_->replies.listen(address, std::move(acceptor_events));
  return endpoint();
}

const std::string& Session::endpoint() const { return state_->replies.endpoint(); }
const Peer& Session::self() const { return state_->shared.config.self; }
const wire::Limits& Session::limits() const { return state_->shared.config.limits; }

void Session::set_self(Peer self) {
  assert_on_loop(state_->shared.loop);
  state_->set_self(std::move(self));
}

void Session::hear_strangers_again() {
  assert_on_loop(state_->shared.loop);
  state_->hear_strangers_again();
}

void Session::settle_stranger(Incarnation incarnation, const Peer* vouched) {
  assert_on_loop(state_->shared.loop);
  state_->settle_stranger(incarnation, vouched);
}

bool Session::add_peer(const Peer& peer) {
  assert_on_loop(state_->shared.loop);
  return state_->standings.add(peer);
}

const Peer* Session::find(Incarnation incarnation) const {
  assert_on_loop(state_->shared.loop);
  if (PeerRecord* record = state_->peers.find(incarnation)) return &record->peer;
  const Tombstone* grave = state_->peers.find_grave(incarnation);
  return grave == nullptr ? nullptr : &grave->name->latest;
}

const Error* Session::gone(Incarnation incarnation) const {
  assert_on_loop(state_->shared.loop);
  return state_->peers.gone(incarnation);
}

std::string Session::lack_text(Incarnation incarnation) const noexcept {
  assert_on_loop(state_->shared.loop);
  std::string text;
  EachStep each;
  each([this, incarnation, &text] {
    PeerRecord* const record = state_->peers.find(incarnation);
    if (record == nullptr) return;
    const Obstacle obstacle = obstacle_between(*record, state_->shared);
    if (obstacle.lack != nullptr) text = "; " + text_of(obstacle, record->peer);
  });
  return text;
}

bool Session::is_connected(Incarnation incarnation) const {
  assert_on_loop(state_->shared.loop);
  PeerRecord* record = state_->peers.find(incarnation);
  return record != nullptr && record->outgoing.is_open();
}

Session::Ticket Session::send(Incarnation to, wire::Body body, SendOptions options) {
  assert_on_loop(state_->shared.loop);
  return state_->send(to, std::move(body), std::move(options));
}

bool Session::withdraw(Incarnation to, Ticket ticket) {
  assert_on_loop(state_->shared.loop);
  PeerRecord* record = state_->peers.find(to);
  return record != nullptr && ticket != 0 && record->outgoing.withdraw(ticket);
}

void Session::fence(Incarnation incarnation, const Error& why) {
  assert_on_loop(state_->shared.loop);
  const auto word = why.status() == Status::kProtocol ? wire::RefuseReason::kProtocol : wire::RefuseReason::kFenced;
  if (PeerRecord* record = state_->peers.find(incarnation)) state_->standings.lose(*record, why, word);
}

void Session::leave(Nanos deadline, Task done) {
  assert_on_loop(state_->shared.loop);
  state_->farewell.begin(deadline, std::move(done));
}

bool Session::close_some() {
  assert_on_loop(state_->shared.loop);
  state_->shared.alive.reset();
  state_->shared.loop.cancel_timer(std::exchange(state_->tick_timer, 0));
  state_->farewell.close();
  state_->acks.close();
  return state_->peers.close_some(kStreamsATurn) || state_->replies.close_some();
}

bool Session::is_drained() const { return state_->farewell.is_drained(); }

SessionStats Session::stats() const { return state_->shared.stats; }

}  // namespace distag
