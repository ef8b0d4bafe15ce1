#include "worker/arrivals.h"

#include <new>
#include <utility>

#include "base/violation.h"

namespace distag {

Heard Arrivals::on_message(const Peer& from, wire::Message& message) {
  assert_on_loop(loop_);
  switch (phase_) {
    case WorkerPhase::kStarting:
      return hold(from, message);
    case WorkerPhase::kStarted:
    case WorkerPhase::kStopping:
      return gate_.is_open() ? router_.lead(from, message) : hold(from, message);
    case WorkerPhase::kCreated:
    case WorkerPhase::kStopped:
      break;
  }
  return Heard::kStale;
}

void Arrivals::on_unstored(const Peer& from, wire::Message& outline, const Error& why) {
  assert_on_loop(loop_);
  if (phase_ == WorkerPhase::kCreated || phase_ == WorkerPhase::kStopped) return;
  if (route_of(outline.body).memory == Without::kWaits) {
    on_message(from, outline);  // the message has no payload: it is complete
  } else if (phase_ == WorkerPhase::kStarting) {
    refuse_early(from, outline, why);
  } else {
    router_.refuse(from, outline, why);
  }
}

// ---- messages that come early ----

// The sender met the group before this worker did. Before any program ran here, a peer can have a reason only for calls
// and passes of the FAST kind.
Heard Arrivals::hold(const Peer& from, wire::Message& message) {
  // There is always room for this one: requests that are refused here may wait for it.
  if (std::holds_alternative<wire::WantCredit>(message.body)) return layers_.rpc.handle(from, message);
  const wire::Limits& limits = links_.session->limits();
  const size_t bytes = wire::check(message.body, limits);
  auto early = std::make_shared<wire::Message>();
  UniqueFunction<bool()> lead_it = [this, from, early] { return lead_early(from, *early); };
  std::swap(*early, message);
  bool is_kept = false;
  try {
    is_kept = gate_.hold_message(std::move(lead_it), bytes, limits.max_message_bytes);
  } catch (...) {
    std::swap(*early, message);  // it comes again
    throw;
  }
  if (is_kept) return Heard::kHandled;
  std::swap(*early, message);
  if (phase_ != WorkerPhase::kStarting) throw std::bad_alloc();  // no room yet: the message comes again
  refuse_early(
      from, message,
      Error(Status::kOverloaded, fmt::format("worker \"{}\" is starting, and keeps no more messages until then",
                                             links_.session->self().name)));
  return Heard::kStale;
}

void Arrivals::refuse_early(const Peer& from, const wire::Message& outline, Error why) {
  Session& session = *links_.session;
  why.set_origin_rank(session.self().rank);
  if (const auto* call = std::get_if<wire::Call>(&outline.body)) {
    const uint64_t taken = layers_.rpc.taken(from) + call->cost;
    session.send(from.incarnation, wire::Reply{call->call, true, std::move(why), {}, {}, {}, taken});
    layers_.rpc.drop(from, *call);
    gate_.count_refused(from);  // counted once, also when this is tried again
  } else if (const auto* begun = std::get_if<wire::Start>(&outline.body)) {
    session.send(from.incarnation, wire::Done{begun->context, begun->pass, true, std::move(why), 0, 0, {}});
  } else if (const auto* planned = std::get_if<wire::Expect>(&outline.body)) {  // a false plan
    session.send(from.incarnation, wire::Done{planned->context, planned->pass, true, std::move(why), 0, 0, {}, true});
  }
}

// False: there is no memory for the message now.
bool Arrivals::lead_early(const Peer& from, wire::Message& message) {
  if (links_.session->gone(from.incarnation) != nullptr) return true;
  try {
    router_.lead(from, message);
  } catch (const Violation& error) {
    links_.session->fence(from.incarnation, error);
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kOutOfMemory) return false;
    events_.add("an early message was lost: " + error.message());
  }
  return true;
}

// ---- members ----

void Arrivals::on_lost(const Peer& peer, const Error& error) {
  assert_on_loop(loop_);
  start_.on_lost(peer, error);
  gate_.pass([this, peer, error] { members_.on_lost(peer, error); });
}

void Arrivals::on_left(const Peer& peer) {
  assert_on_loop(loop_);
  start_.on_left(peer);
  gate_.pass([this, peer] { members_.on_left(peer); });
}

// Asks the rendezvous once the roster is there: members of this group may know it earlier, and say HELLO again.
bool Arrivals::on_stranger(const Peer& peer) {
  assert_on_loop(loop_);
  if (!links_.rendezvous || (gate_.is_open() && !members_.may_join(peer))) return false;
  if (start_.has_roster()) members_.look_up(peer);
  return true;
}

void Arrivals::on_admitted(const Peer& peer) {
  assert_on_loop(loop_);
  gate_.pass([this, peer] { members_.on_admitted(peer, phase_ == WorkerPhase::kStarted); });
}

void Arrivals::on_restarted(const Peer& peer, const Error& error) {
  assert_on_loop(loop_);
  gate_.pass([this, peer, error] { layers_.dautograd.on_restarted(peer, error); });
}

}  // namespace distag
