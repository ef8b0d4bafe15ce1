#include "session/handshake.h"

#include <utility>

#include "base/each_step.h"
#include "base/violation.h"

namespace distag {
namespace {

constexpr size_t kMostStrangers = 4096;

Peer peer_of(const wire::Hello& hello) {
  return {hello.rank, hello.name, hello.endpoint, hello.incarnation, hello.generation, hello.max_message_bytes};
}

// The difference between how the rendezvous describes a peer and how the peer describes itself; empty: none.
std::string difference(const Peer& vouched, const Peer& said) {
  const bool is_same = vouched.name == said.name && vouched.rank == said.rank && vouched.endpoint == said.endpoint &&
                       vouched.generation == said.generation;
  if (is_same) return {};
  return fmt::format(
      "the rendezvous knows it as {}, generation {}, at \"{}\", "
      "and not as {}, generation {}, at \"{}\"",
      describe_peer(vouched), vouched.generation, vouched.endpoint, describe_peer(said), said.generation,
      said.endpoint);
}

}  // namespace

// ---- from workers that dial us ----

void Handshake::on_hello(const ConnectionToken& from, const wire::Hello& hello, const Peer* vouched) {
  assert_on_loop(shared_.loop);
  PeerRecord* record = admit(from, hello, vouched);
  if (record == nullptr) return;
  record->note_spoken(shared_.loop.now());
  peers_.connect(*record, from);

  // WELCOME goes first: the peer can send then, even if the dial back fails.
  wire::Welcome welcome{shared_.config.self.incarnation, record->next_number};
  replies_.send(from, std::move(welcome));
  record->note_acknowledged(record->next_number - 1);
  record->ack.welcomed = shared_.loop.now();
  liveness_.open(*record);
  if (record->outgoing.lack().is_there(shared_.loop.now())) acks_.send(*record);
}

// Returns the member that says HELLO, or nullptr when it was refused or waits. `vouched`: the rendezvous's description
// of a stranger.
//
// The checks go from the group to the peer: the protocol, the job and the keys, then whether this incarnation is meant,
// then whether the other one is a member, was one, or may become one. A former member never becomes a member again.
PeerRecord* Handshake::admit(const ConnectionToken& from, const wire::Hello& hello, const Peer* vouched) {
  const Peer& self = shared_.config.self;
  auto refuse_it = [this, &from, &hello](wire::RefuseReason reason, const std::string& text) {
    refuse(from, hello, reason, text);
    return nullptr;
  };
  if (hello.protocol != wire::kProtocolVersion) {
    return refuse_it(wire::RefuseReason::kVersion, fmt::format("it speaks version {} of the protocol, not version {}",
                                                               wire::kProtocolVersion, hello.protocol));
  }
  if (hello.job != shared_.config.job) {
    return refuse_it(wire::RefuseReason::kJob,
                     fmt::format("it belongs to job \"{}\", not to \"{}\"", shared_.config.job, hello.job));
  }
  if (!hello.proof.empty()) {
    return refuse_it(wire::RefuseReason::kKey,
                     "it has no key of its group, and cannot check the proof "
                     "that the other gives of one");
  }
  if (const std::string owner = replies_.name_of(from); !owner.empty() && owner != hello.name) {
    return refuse_it(wire::RefuseReason::kDenied,
                     fmt::format("its key is that of \"{}\", not of \"{}\"", owner, hello.name));
  }
  if (hello.incarnation == self.incarnation || (hello.wanted != 0 && hello.wanted != self.incarnation)) {
    return refuse_it(wire::RefuseReason::kIncarnation, "another incarnation listens at its address");
  }
  PeerRecord* record = peers_.find(hello.incarnation);
  // The receivers of LEAVE may still have to dial back to acknowledge it.
  if (farewell_.has_begun() && (record == nullptr || record->outgoing.is_idle())) {
    return refuse_it(wire::RefuseReason::kStopping, "it is shutting down");
  }
  if (const Error* why = peers_.gone(hello.incarnation)) return refuse_it(wire::RefuseReason::kFenced, why->message());
  if (record != nullptr) {
    if (record->peer.name == hello.name && record->peer.rank == hello.rank) return record;
    return refuse_it(wire::RefuseReason::kProtocol,
                     fmt::format("this incarnation is known as {}, not as {}", describe_peer(record->peer),
                                 describe_peer({hello.rank, hello.name, {}, 0, 0, 0})));
  }
  const Peer stranger = peer_of(hello);
  if (const NamedPeer* known = peers_.find_name(hello.name);
      (known != nullptr && known->latest.generation >= hello.generation) || hello.name == self.name) {
    return refuse_it(wire::RefuseReason::kReplaced,
                     fmt::format("another worker named \"{}\" has joined the group", hello.name));
  }
  try {
    shared_.transport.check_endpoint(stranger.endpoint);
  } catch (...) {
    return refuse_it(wire::RefuseReason::kUnreachable, "it cannot be dialled back: " + current_error().message());
  }
  if (vouched == nullptr) {
    hold(from, hello);
    return nullptr;
  }
  if (const std::string lie = difference(*vouched, stranger); !lie.empty()) {
    return refuse_it(wire::RefuseReason::kDenied, lie);
  }
  return &standings_.admit(stranger);
}

// A worker that dials while this one ends, or dials the address of an earlier one, does nothing wrong: that fills no
// log.
void Handshake::refuse(const ConnectionToken& from, const wire::Hello& hello, wire::RefuseReason reason,
                       const std::string& text) {
  using wire::RefuseReason;
  const bool is_no_fault = reason == RefuseReason::kStopping || reason == RefuseReason::kIncarnation;
  if (!is_no_fault) {
    log_.note_refusal(fmt::format("{} was refused, and told: {}", describe_peer(peer_of(hello)), text));
  } else {
    ++shared_.stats.messages_refused;
  }
  replies_.refuse(from, reason, text);
}

// A stranger whose connection has dropped says HELLO again; the rendezvous is asked only once.
void Handshake::hold(const ConnectionToken& from, const wire::Hello& hello) {
  const bool is_asked_for = strangers_.contains(hello.incarnation);
  if (!is_asked_for && strangers_.size() >= kMostStrangers) return replies_.ask_to_dial_again(from);
  // The latest HELLO is answered: the connection of an earlier one has dropped.
  Stranger& stranger = strangers_[hello.incarnation];
  stranger.connection = from;
  stranger.hello = hello;
  if (is_asked_for) return;
  stranger.until = deadline_after(shared_.loop.now(), shared_.config.lease);
  liveness_.start();
  const Peer peer = peer_of(hello);
  bool may_wait = false;
  EachStep each;
  each([&] { may_wait = events_.on_stranger(peer); });
  if (!may_wait && strangers_.erase(peer.incarnation) != 0 && !each.has_failed()) {
    refuse(from, hello, wire::RefuseReason::kUnknown,
           fmt::format("{} is not a member of the group", describe_peer(peer)));
  }
  each.check();
}

void Handshake::settle_stranger(Incarnation incarnation, const Peer* vouched) {
  assert_on_loop(shared_.loop);
  const auto held = strangers_.extract(incarnation);
  if (held.empty()) return;
  const Stranger& stranger = held.mapped();
  if (vouched != nullptr) return answer(stranger, vouched);
  EachStep each;
  each([this, &stranger] {
    refuse(stranger.connection, stranger.hello, wire::RefuseReason::kDenied,
           fmt::format("the rendezvous does not know {}", describe_peer(peer_of(stranger.hello))));
  });
  if (each.has_failed()) replies_.ask_to_dial_again(stranger.connection);
}

void Handshake::hear_strangers_again() {
  assert_on_loop(shared_.loop);
  for (const auto& [incarnation, stranger] : std::exchange(strangers_, {})) answer(stranger, nullptr);
}

void Handshake::answer(const Stranger& stranger, const Peer* vouched) {
  try {
    on_hello(stranger.connection, stranger.hello, vouched);
  } catch (...) {
    log_.note_failure(peer_of(stranger.hello), current_error());
    replies_.ask_to_dial_again(stranger.connection);
  }
}

// The stranger is taken out before the answer: an answer that fails is not tried again, and the stranger dials.
void Handshake::settle_late_strangers() {
  assert_on_loop(shared_.loop);
  const Nanos now = shared_.loop.now();
  for (auto next = strangers_.begin(); next != strangers_.end();) {
    const auto stranger = next++;
    if (stranger->second.until > now) continue;
    const auto held = strangers_.extract(stranger);
    refuse(held.mapped().connection, held.mapped().hello, wire::RefuseReason::kUnknown,
           fmt::format("the rendezvous did not say in time whether {} is a member",
                       describe_peer(peer_of(held.mapped().hello))));
  }
}

// ---- from peers that we dialled ----

void Handshake::on_answer(PeerRecord& record, const Frames& frames) {
  assert_on_loop(shared_.loop);
  if (!record.is_member() && record.standing != Standing::kLeft) return;
  try {
    for (const Frame& frame : frames) shared_.stats.bytes_received += frame.size();
    const wire::Message message = wire::unpack(frames, shared_.config.limits, shared_.transport);
    record.last.heard = shared_.loop.now();
    if (const auto* refusal = std::get_if<wire::Refuse>(&message.body)) {
      on_refuse(record, *refusal);
    } else if (const auto* welcome = std::get_if<wire::Welcome>(&message.body)) {
      on_welcome(record, *welcome);
    } else {
      violation("{} as answer to HELLO", wire::body_name(message.body));
    }
  } catch (const wire::Damaged& damage) {
    log_.note_damage(damage, &record.peer);
    record.outgoing.on_damaged();
  } catch (const Violation& error) {
    standings_.lose_for(record, error);
  } catch (...) {
    const Error error = current_error();
    log_.note_failure(record.peer, error);
    // The peer's answer is lost: dial again.
    record.outgoing.on_damaged(error.status() == Status::kOutOfMemory ? &error : nullptr);
  }
}

// A WELCOME on an open stream counts as an acknowledgement: the peer hears this worker, but does not answer by its own
// stream yet, or cannot because of the lack that it names.
void Handshake::on_welcome(PeerRecord& record, const wire::Welcome& welcome) {
  if (welcome.incarnation != record.peer.incarnation) {
    return standings_.lose_once_heard(record, Status::kPeerRestarted, "another incarnation listens at its address",
                                      wire::RefuseReason::kFenced);
  }
  if (!welcome.proof.empty()) violation("it proves that it knows the key of a group, and this worker has none");
  const bool was_open = record.outgoing.is_open();
  if (!record.outgoing.on_welcome(welcome)) violation("it expects message {}, which was never sent", welcome.next);
  if (was_open || !welcome.lack.empty()) record.last.ack = record.last.heard;
  if (!welcome.lack.empty()) {
    record.lack.note(Error(Status::kOutOfMemory, welcome.lack), record.last.heard);
  } else if (was_open) {  // not for the answer to HELLO, which comes before the lack is named again
    record.lack.end();
  }
}

void Handshake::on_refuse(PeerRecord& record, const wire::Refuse& refusal) {
  using wire::RefuseReason;
  if (refusal.reason == RefuseReason::kStopping) {
    return standings_.end_once_heard(record, [this, &record] {
      if (record.is_member()) standings_.on_leave(record);
    });
  }
  if (refusal.reason == RefuseReason::kDamaged) return record.outgoing.on_damaged();
  Status status = Status::kDisconnected;
  const bool is_misunderstanding = refusal.reason == RefuseReason::kVersion ||
                                   refusal.reason == RefuseReason::kProtocol || refusal.reason == RefuseReason::kKey;
  if (is_misunderstanding) status = Status::kProtocol;
  if (refusal.reason == RefuseReason::kDenied) status = Status::kDenied;
  const bool is_other = refusal.incarnation != 0 && refusal.incarnation != record.peer.incarnation;
  if (refusal.reason == RefuseReason::kIncarnation && is_other) status = Status::kPeerRestarted;
  standings_.lose_once_heard(record, status, "it refused this worker: " + refusal.text, RefuseReason::kFenced);
}

}  // namespace distag
