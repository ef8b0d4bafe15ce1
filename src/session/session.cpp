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

// ---- the table ----

Session::State::State(Loop& loop, Transport& transport, Random& random, Log& log_of_worker, SessionConfig config,
                      SessionEvents& session_events)
    : shared{loop, transport, random, log_of_worker, std::move(config), {}},
      events(session_events),
      log(shared),
      replies(shared),
      acks(shared, replies),
      peers(shared, shared.config.memory ? *shared.config.memory : pool, *this),
      self(shared, log, session_events, *this) {
  shared.config.self.max_message_bytes = shared.config.limits.max_message_bytes;
}

Session::State::~State() { cancel_timers(); }

void Session::State::cancel_timers() {
  for (Loop::TimerId* timer : {&tick_timer, &leave_timer}) {
    shared.loop.cancel_timer(std::exchange(*timer, 0));
  }
}

bool Session::State::add_peer(const Peer& peer) {
  if (PeerRecord* known = peers.find(peer.incarnation)) return known->standing != Standing::kLost;
  if (const Tombstone* grave = peers.find_grave(peer.incarnation)) return grave->standing == Standing::kLeft;
  NamedPeer& name = peers.name_of(peer);
  if (name.latest.incarnation != 0 && name.latest.generation < peer.generation) replace_latest(name);
  if (name.latest.incarnation == 0 || name.latest.generation <= peer.generation) name.latest = peer;
  acks.make_room(peers.make_room());
  peers.add(peer);
  return true;
}

// A message that was meant for the one before fails with PEER_RESTARTED from now on.
void Session::State::replace_latest(NamedPeer& name) {
  const Peer before = name.latest;
  PeerRecord* record = peers.find(before.incarnation);
  const Error why = loss_error(before, shared, record == nullptr ? -1 : record->last.heard, Status::kPeerRestarted,
                               "it has restarted");
  const bool is_member = record != nullptr && record->is_member();
  // First: without memory for it the next HELLO does all of this.
  if (!leaving && !is_member) shared.post([this, before, why] { events.on_restarted(before, why); });
  name.restarted = why;
  if (record == nullptr) {
    peers.mark_restarted(name);
  } else if (is_member) {
    lose(*record, why, wire::RefuseReason::kReplaced);
    record->standing = Standing::kRestarted;
  } else {
    record->standing = Standing::kRestarted;
    record->gone = why;
  }
}

// Not while anything of a record runs.
void Session::State::bury_those_that_are_over() {
  for (PeerRecord* record : std::vector<PeerRecord*>(peers.all())) {
    if (record->is_member() || !record->outgoing.is_over() || record->has_events_to_tell()) continue;
    settled = 0;  // counted anew
    acks.forget(*record);
    peers.bury(*record);
  }
}

void Session::State::set_self(Peer peer) {
  shared.config.self = std::move(peer);
  for (PeerRecord* record : std::vector<PeerRecord*>(peers.all())) {
    if (record->is_member() && (!record->connection.empty() || !record->outgoing.is_drained())) open(*record);
  }
}

// ---- sending ----

Session::Ticket Session::State::send(Incarnation to, wire::Body body, SendOptions options) {
  if (leaving) fail(Status::kInvalidState, "the worker is leaving: nothing more can be sent");
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

// ---- ends ----

// Nothing of it is heard or said any more.
void Session::State::retire(PeerRecord& record, Standing standing, Error why) {
  record.standing = standing;
  record.gone = std::move(why);
  record.transfers.clear();
  record.inbox.clear();
  record.on_heard.reset();
  record.ack.due = kNever;
}

void Session::State::lose(PeerRecord& record, Error why, wire::RefuseReason word) {
  if (!record.is_member()) return;
  retire(record, Standing::kLost, std::move(why));
  record.outgoing.close();
  ++shared.stats.peers_lost;
  EachStep each;  // without memory for the words the loss is a loss
  if (!record.connection.empty()) {
    each([this, &record, word] {
      replies.refuse(record.connection, word,
                     word == wire::RefuseReason::kUnreachable
                         ? fmt::format("it cannot dial back to {}", record.peer.endpoint)
                         : record.gone.message());
    });
  }
  if (!leaving) {
    each([this, &record] { shared.log.write(LogLevel::kWarning, record.gone.message()); });
    tell_soon(record, record.ending, [](SessionEvents& to, PeerRecord& lost) { to.on_lost(lost.peer, lost.gone); });
  }
  end_leave_when_done();
}

// It is acknowledged at once; the connection stays for that until the peer drops it.
void Session::State::on_leave(PeerRecord& record) {
  Error why(Status::kDisconnected, fmt::format("{} has left the group", describe_peer(record.peer)));
  acks.send(record);
  retire(record, Standing::kLeft, std::move(why));
  record.outgoing.end();
  if (!leaving) {
    tell_soon(record, record.ending, [](SessionEvents& to, PeerRecord& left) { to.on_left(left.peer); });
  }
  end_leave_when_done();
}

void Session::State::leave(Nanos deadline, Task done) {
  for (PeerRecord* record : std::vector<PeerRecord*>(peers.all())) {
    if (!record->is_member() || record->outgoing.is_idle()) continue;
    record->outgoing.leave();
  }
  leaving = true;
  left_all = std::make_shared<LeftAll>();
  left_all->done = std::move(done);
  leave_timer = shared.loop.start_timer(deadline, [this] {
    leave_timer = 0;
    tell_left_all();
  });
  end_leave_when_done();
}

// By a task of its own, in which the session may be destroyed.
void Session::State::tell_left_all() noexcept {
  if (left_all == nullptr) return;
  TaskPlace& place = left_all->place;
  shared.loop.post_or_drop(place, [told = std::exchange(left_all, nullptr)] { told->done(); });
}

void Session::State::end_leave_when_done() {
  if (left_all == nullptr || !self.is_drained()) return;
  // Nothing is sent any more, so who is passed here stays so.
  while (settled < peers.all().size() && is_drained(*peers.all()[settled])) ++settled;
  if (settled < peers.all().size()) return;
  shared.loop.cancel_timer(std::exchange(leave_timer, 0));
  tell_left_all();
}

bool Session::State::close_some() {
  shared.alive.reset();
  cancel_timers();
  acks.close();
  return peers.close_some(kStreamsATurn) || replies.close_some();
}

bool Session::State::is_drained() const {
  return self.is_drained() && std::all_of(peers.all().begin(), peers.all().end(),
                                          [](const PeerRecord* record) { return is_drained(*record); });
}

void Session::State::on_dead(PeerRecord& record, const Error& why) {
  assert_on_loop(shared.loop);
  end_once_heard(record, [this, &record, why] {
    lose(record, loss_error(record, shared, why.status(), why.message()), wire::RefuseReason::kUnreachable);
  });
}

void Session::State::end_once_heard(PeerRecord& record, Task end) {
  if (record.inbox.is_empty()) {
    end();
  } else if (!record.on_heard) {
    record.on_heard = std::move(end);
  }
}

void Session::State::on_progress() {
  assert_on_loop(shared.loop);
  end_leave_when_done();
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
  return state_->add_peer(peer);
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
  if (PeerRecord* record = state_->peers.find(incarnation)) state_->lose(*record, why, word);
}

void Session::leave(Nanos deadline, Task done) {
  assert_on_loop(state_->shared.loop);
  state_->leave(deadline, std::move(done));
}

bool Session::close_some() {
  assert_on_loop(state_->shared.loop);
  return state_->close_some();
}

bool Session::is_drained() const {
  assert_on_loop(state_->shared.loop);
  return state_->is_drained();
}

SessionStats Session::stats() const { return state_->shared.stats; }

}  // namespace distag
