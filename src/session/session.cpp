#include "session/session.h"

#include <utility>

#include "base/block_pool.h"
#include "base/each_step.h"
#include "session/frame_pool.h"
#include "session/receiver.h"

namespace distag {
namespace {

constexpr size_t kStreamsATurn = 4;  // closed at a time; each has its lane

// The peer would treat a larger message as a violation.
void check_size_for(const PeerRecord& record, const wire::Body& body, size_t size, uint64_t own_limit) {
  const uint64_t limit = record.peer.max_message_bytes;
  if (limit == 0 || size <= limit) return;
  fail(Status::kInvalidArgument,
       "{} of {} bytes is above the max_message_bytes of {}, which is {} (that of this worker is {}): send less at a "
       "time, or raise it there",
       wire::body_name(body), size, describe_peer(record.peer), limit, own_limit);
}

}  // namespace

std::string describe_peer(const Peer& peer) { return fmt::format("worker \"{}\" (rank {})", peer.name, peer.rank); }

// The parts of a session, and the calls from its streams to them. A part calls only those above it.
struct Session::State final : PeerRecord::Events, SelfStream::Owner {
  State(Loop& loop, Transport& transport, Random& random, Log& log_of_worker, SessionConfig config,
        SessionEvents& events);
  ~State() override { shared.alive.reset(); }

  Ticket send(Incarnation to, wire::Body body, SendOptions options);
  void keep_house();

  void on_answer(PeerRecord& record, Frames frames) override { handshake.on_answer(record, frames); }
  void on_dead(PeerRecord& record, const Error& why) override {
    standings.lose_once_heard(record, why.status(), why.message(), wire::RefuseReason::kUnreachable);
  }
  void on_progress() override { farewell.on_progress(); }
  bool on_decoded(PeerRecord& record, Inbox::Decoded& decoded) override { return receiver.on_decoded(record, decoded); }

  // Destroyed in reverse order: timers first, then the records with their streams, then the acceptor.
  StreamShared shared;
  FramePool pool;
  SessionLog log;
  Replies replies;
  Acknowledgements acks;
  PeerTable peers;
  SelfStream self;
  Farewell farewell;
  Standings standings;
  Liveness liveness;
  Handshake handshake;
  Receiver receiver;
  Ticket last_ticket = 0;
};

Session::State::State(Loop& loop, Transport& transport, Random& random, Log& log_of_worker, SessionConfig config,
                      SessionEvents& events)
    : shared{loop, transport, random, log_of_worker, std::move(config), {}},
      log(shared),
      replies(shared),
      acks(shared, replies),
      peers(shared, shared.config.memory ? *shared.config.memory : pool, *this),
      self(shared, log, events, *this),
      farewell(shared, peers, self),
      standings(shared, events, replies, acks, peers, farewell),
      liveness(shared, acks, peers, standings, [this] { keep_house(); }),
      handshake(shared, log, events, replies, acks, peers, farewell, standings, liveness),
      receiver(shared, log, events, replies, acks, peers, standings, handshake) {
  shared.config.self.max_message_bytes = shared.config.limits.max_message_bytes;
}

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
  check_size_for(*record, body, size, shared.config.limits.max_message_bytes);
  liveness.open(*record);
  return record->outgoing.send(++last_ticket, std::move(body), std::move(options), size);
}

// Runs with each tick. If one step fails for lack of memory, the next tick tries again.
void Session::State::keep_house() {
  EachStep each;
  each([this] { pool.trim(); });
  trim_blocks();
  each([this] { standings.bury_those_that_are_over(); });
  replies.keep_words_ready();
  each([this] { handshake.settle_late_strangers(); });
  each([this] { self.drain(); });
}

Session::Session(Loop& loop, Transport& transport, Random& random, Log& log, SessionConfig config,
                 SessionEvents& events)
    : state_(std::make_unique<State>(loop, transport, random, log, std::move(config), events)) {}

Session::~Session() = default;

std::string Session::listen(const std::string& address) {
  assert_on_loop(state_->shared.loop);
  AcceptorEvents acceptor_events;
  acceptor_events.on_message = [state = state_.get()](const ConnectionToken& from, Frames frames) {
    state->receiver.on_message(from, std::move(frames));
  };
  acceptor_events.on_part = [state = state_.get()](const ConnectionToken& from) { state->receiver.on_part(from); };
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
  state_->shared.config.self = std::move(self);
  for (PeerRecord* record : std::vector<PeerRecord*>(state_->peers.all())) {
    const bool is_used = !record->connection.empty() || !record->outgoing.is_drained();
    if (record->is_member() && is_used) state_->liveness.open(*record);
  }
}

void Session::hear_strangers_again() {
  assert_on_loop(state_->shared.loop);
  state_->handshake.hear_strangers_again();
}

void Session::settle_stranger(Incarnation incarnation, const Peer* vouched) {
  assert_on_loop(state_->shared.loop);
  state_->handshake.settle_stranger(incarnation, vouched);
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
  state_->shared.line.close();
  state_->liveness.close();
  state_->farewell.close();
  state_->acks.close();
  return state_->peers.close_some(kStreamsATurn) || state_->replies.close_some();
}

bool Session::is_drained() const { return state_->farewell.is_drained(); }

SessionStats Session::stats() const { return state_->shared.stats; }

}  // namespace distag
