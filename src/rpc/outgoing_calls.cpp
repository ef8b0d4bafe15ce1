#include "rpc/outgoing_calls.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/violation.h"
#include "rpc/call_names.h"
#include "rpc/incoming_call.h"
#include "rpc/references.h"
#include "tensor/value.h"

namespace distag {
namespace {

// Waiting requests that go out before the loop looks at everything else again.
constexpr int kCallsPerTurn = 64;
constexpr uint64_t kBytesPerTurn = uint64_t{4} << 20;
constexpr Nanos kSendOnAgain = 100 * kMillisecond;  // after a shortage of memory

// Frees the arguments of a call that was never sent, while the host may keep its future.
void free_where_there_is_time(Executor& compute, Values args) {
  if (!takes_long_to_free(args)) return;
  EachStep each;
  each([&compute, &args] { compute.post_or_drop([args = std::move(args)] {}); });
}

}  // namespace

OutgoingCalls::OutgoingCalls(RpcShared& shared)
    : shared_(shared),
      deadlines_(
          shared.environment.loop, [this](const Id& id) { return open_.contains(id); },
          [this](const Id& id) { on_due(id); }),
      turns_(shared.environment.loop),
      credit_(shared.config.max_in_flight, shared.config.bounds.made) {}

void OutgoingCalls::start(const std::shared_ptr<OutgoingCall>& call) {
  assert_on_loop(shared_.environment.loop);
  if (call->future.is_done()) {  // it was cancelled before its turn came
    trace(*call, call->future.error()->status());
    forget(*call);
    shared_.counters.failed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  TraceScope scope(shared_.group->trace, TraceCategory::kCall, call->function, call->peer->name);
  try {
    if (call->kept) shared_.references->on_creation_queued(*call->kept);
    check(*call);
    if (call->context) {
      shared_.hook->on_call_begun(call->context);
      call->is_in_context = true;
    }
    call->id = {shared_.group->self.incarnation, ++last_counter_};
    scope.set_flow(TraceEvent::Flow::kOut, TraceCategory::kCall, call->id);
    scope.set_bytes(call->claim.cost);
    scope.set_trace_parent(call->trace_parent.get());
    by_context_.add(call->context, call->id);
    open_.emplace(call->id, call);
    shared_.counters.open_made.fetch_add(1, std::memory_order_relaxed);
    deadlines_.add(call->id, call->times.deadline);
    if (call->within) {
      if (auto* invocation = dynamic_cast<IncomingCall*>(call->within.get())) invocation->nested().add(call);
    }
    if (credit_.admit(call)) {
      send(call);
    } else {
      send_waiting(call->to);
    }
  } catch (...) {
    credit_.give_back(*call);
    end(call, call->named(current_error()));
  }
}

// Sends the calls that the budget allows; if more wait, asks the peer to report what it has taken.
void OutgoingCalls::send_waiting(Incarnation peer) noexcept {
  if (is_stopped_) return;
  EachStep each;
  each([this, peer] {
    uint64_t bytes = 0;
    for (int i = 0; i < kCallsPerTurn && bytes < kBytesPerTurn; ++i) {
      const std::shared_ptr<OutgoingCall> call = credit_.next(peer);
      if (call == nullptr) break;
      bytes += call->claim.cost;
      send_or_end(call);
    }
    if (credit_.has_next(peer)) {
      send_on(0);
    } else if (const uint64_t taken = credit_.to_ask(peer); taken != 0) {
      shared_.group->session->send(peer, wire::WantCredit{taken});
      credit_.note_asked(peer, taken);
    }
  });
  if (each.has_failed()) send_on(kSendOnAgain);
}

// Sends waiting calls to any peer later. Needs no memory.
void OutgoingCalls::send_on(Nanos delay) noexcept {
  if (std::exchange(next_->is_posted, true)) return;
  Task task = [next = next_] {
    next->is_posted = false;
    if (next->owner == nullptr) return;
    EachStep each;
    each([&next] {
      for (const Incarnation peer : next->owner->credit_.peers_with_waiting()) next->owner->send_waiting(peer);
    });
    if (each.has_failed()) next->owner->send_on(kSendOnAgain);
  };
  Loop& loop = shared_.environment.loop;
  if (delay == 0) {
    loop.post_or_drop(next_->place, std::move(task));
  } else {
    loop.start_timer(next_->place, loop.now() + delay, std::move(task));
  }
}

void OutgoingCalls::send_or_end(const std::shared_ptr<OutgoingCall>& call) {
  try {
    send(call);
  } catch (...) {
    credit_.give_back(*call);
    Error error = call->named(current_error());
    EachStep each;
    each([&] { end(call, std::move(error)); });
  }
}

void OutgoingCalls::on_taken(const Peer& from, uint64_t total) {
  assert_on_loop(shared_.environment.loop);
  if (credit_.on_taken(from.incarnation, total)) send_waiting(from.incarnation);
}

bool OutgoingCalls::withdraw(OutgoingCall& call) {
  if (call.claim.state != CreditClaim::State::kWaiting && !shared_.group->session->withdraw(call.to, call.ticket))
    return false;
  credit_.give_back(call);
  send_waiting(call.to);
  return true;
}

void OutgoingCalls::check(const OutgoingCall& call) const {
  if (is_stopped_) fail(Status::kCancelled, "the worker was shut down");
  if (call.within && call.within->is_cancelled()) {
    fail(Status::kCancelled, "call \"{}\", within which it was made, is over", call.within->function());
  }
  if (call.times.deadline <= shared_.environment.loop.now()) {
    fail(Status::kDeadline, "its time was up before it was sent{}", shared_.group->lack_text(call.to));
  }
  if (call.context && shared_.hook == nullptr) {
    fail(Status::kInvalidArgument, "this worker keeps no contexts");
  }
  for (const Value& arg : call.payload.args) {
    if (arg.has_external()) shared_.references->check_made(*call.peer, arg);
  }
  shared_.group->check_present(call.to);
}

void OutgoingCalls::send(const std::shared_ptr<OutgoingCall>& call) {
  wire::Call body;
  body.call = call->id;
  body.function = call->function;
  body.args = std::move(call->payload.args);
  body.packed = std::move(call->payload.packed);
  body.label = call->label;
  body.trace_parent = call->trace_parent;
  body.cost = call->claim.cost;
  SendOptions options;
  if (call->kept) {
    body.keep = call->kept->value;
    options.on_acknowledged = [this, weak = std::weak_ptr(call->kept)] {
      if (const auto kept = weak.lock()) shared_.references->on_creation_acknowledged(*kept);
    };
  }
  options.on_number = [this, call](wire::Message& message) { on_number(*call, std::get<wire::Call>(message.body)); };
  call->ticket = shared_.group->session->send(call->to, std::move(body), std::move(options));
}

// From here on the callee decides. A call that has ended meanwhile goes out with no time left, so that it does not run.
void OutgoingCalls::on_number(OutgoingCall& call, wire::Call& body) {
  assert_on_loop(shared_.environment.loop);
  GroupPeer& peer = shared_.group->peer_of(*call.peer);
  if (call.kept) shared_.environment.loop.post_or_drop([held = call.kept] {});
  convert_references(shared_, *call.peer, body.args);
  // Nothing before this line has any effect if there was no memory: the call does not go out then.
  call.is_numbered = true;
  ++peer.requests_sent;
  if (call.kept) shared_.references->on_creation_numbered(*std::exchange(call.kept, nullptr));
  body.time_left = 0;
  if (!call.future.mark_begun()) return;
  try {
    if (call.context) record(call, body);
    body.time_left = call.times.deadline == kNever
                         ? kForever
                         : std::max<Nanos>(0, call.times.deadline - shared_.environment.loop.now());
  } catch (...) {
    // The call cannot have run, as it has no time left: the callee's answer finds no call.
    const auto found = open_.find(call.id);
    if (found == open_.end()) return;
    const std::shared_ptr<OutgoingCall> kept = found->second;
    EachStep each;
    each([this, &kept, error = current_error()]() mutable { end(kept, kept->named(std::move(error))); });
  }
}

void OutgoingCalls::record(OutgoingCall& call, wire::Call& body) {
  std::vector<const Value*> values;
  values.reserve(call.payload.originals.size());
  for (const Value& value : call.payload.originals) values.push_back(&value);
  body.metadata =
      shared_.hook->on_send(call.context, *call.peer, values, name_call(call.function, call.label, *call.peer), false);
  call.payload.originals.clear();
}

Heard OutgoingCalls::on_reply(const Peer& from, wire::Reply& reply, const Error* shortage) {
  assert_on_loop(shared_.environment.loop);
  if (reply.call.maker != shared_.group->self.incarnation || reply.call.counter > last_counter_) {
    violation("{} answers a call that was never made", describe_peer(from));
  }
  const auto found = open_.find(reply.call);
  const std::shared_ptr<OutgoingCall> call = found == open_.end() ? nullptr : found->second;
  if (call != nullptr && call->to != from.incarnation) violation("{} answers a call to another", describe_peer(from));
  TraceScope scope(shared_.group->trace, TraceCategory::kAnswer, call == nullptr ? "" : call->function, from.name);
  scope.set_flow(TraceEvent::Flow::kIn, TraceCategory::kAnswer, reply.call);
  receive_references(shared_, from, reply.result);  // if there is no memory for them, the answer comes again
  try {
    if (call == nullptr) {
      if (shared_.hook != nullptr) shared_.hook->on_thrown_away(reply.metadata, from);
      return Heard::kStale;
    }
    if (shortage != nullptr) throw *shortage;
    receive_metadata(*call, from, reply);
  } catch (const Violation&) {
    throw;
  } catch (...) {
    if (call == nullptr) throw;
    end(call, call->named(current_error().set_may_have_run(true)));
    return Heard::kHandled;
  }
  if (reply.failed) {
    end(call, call->named(std::move(reply.error)));
  } else {
    end(call, std::exchange(reply.result, Value()));  // the reply may come here again, when a callback finds no memory
  }
  return Heard::kHandled;
}

void OutgoingCalls::receive_metadata(const OutgoingCall& call, const Peer& from, const wire::Reply& reply) {
  if (!reply.metadata.context) return;
  if (reply.metadata.context != call.context) violation("the answer of {} is for another context", describe_peer(from));
  std::vector<const Value*> values;
  if (!reply.failed) values.push_back(&reply.result);
  shared_.hook->on_receive(reply.metadata, from, values, name_call(call.function, call.label, from), true);
}

void OutgoingCalls::on_due(const Id& id) {
  assert_on_loop(shared_.environment.loop);
  const std::shared_ptr<OutgoingCall> call = open_.at(id);
  EachStep each;  // a failure in the text or the message to the callee does not prevent the end
  std::string lack;
  each([this, &call, &lack] { lack = shared_.group->lack_text(call->to); });
  each([this, &call] { recall(*call, false); });
  std::string text = "no answer";
  each([&call, &text] {
    text = call->within && call->times.timeout == kForever
               ? "no answer before the deadline of the call within which it was made"
               : fmt::format("no answer within {}", describe_time(call->times.timeout));
  });
  each([&text, &lack] { text += lack; });
  end(call, call->failure(Status::kDeadline, std::move(text)));
}

void OutgoingCalls::recall(OutgoingCall& call, bool tell_callee) {
  if (!call.is_numbered) {
    // A call that makes a value goes out once the stream has it, so that the owner can report the state of the value.
    if ((!call.kept || call.claim.state == CreditClaim::State::kWaiting) && withdraw(call)) return;
    call.is_numbered = true;
  }
  if (!tell_callee) return;
  try {
    shared_.group->session->send(call.to, wire::Cancel{call.id});
  } catch (const Error&) {
    // The callee is lost; the loss also cancels the call there.
  }
}

void OutgoingCalls::on_future_cancelled(const std::shared_ptr<OutgoingCall>& call) {
  assert_on_loop(shared_.environment.loop);
  if (!open_.contains(call->id)) return;
  recall(*call, true);
  end(call, call->future.cancelled());
}

void OutgoingCalls::cancel(const std::shared_ptr<OutgoingCall>& call, const std::string& reason) {
  assert_on_loop(shared_.environment.loop);
  if (!open_.contains(call->id)) return;
  recall(*call, true);
  end(call, call->failure(Status::kCancelled, reason));
}

void OutgoingCalls::end_calls_to(Incarnation peer, const Error& error, Why why) {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::shared_ptr<OutgoingCall>> hit;
  for (const auto& [id, call] : open_) {
    if (call->to == peer && (why != Why::kLack || !call->is_numbered)) hit.push_back(call);
  }
  // In the order in which they wait to be sent: each is the first one when it is taken back.
  std::sort(hit.begin(), hit.end(), [](const auto& a, const auto& b) { return a->ticket < b->ticket; });
  turns_.for_each(
      std::move(hit),
      [this, error, why](const std::shared_ptr<OutgoingCall>& call) {
        if (!open_.contains(call->id) || (why == Why::kLack && call->is_numbered)) return;
        EachStep each;  // if there is no memory for the message to the callee, the call still ends here
        each([this, &call, why] {
          if (why != Why::kGone) recall(*call, true);
        });
        end(call, call->failure(error.status(), error.message()));
      },
      [this, peer, why] {
        if (why == Why::kGone) credit_.forget(peer);
      });
}

void OutgoingCalls::end_context(const Id& context) {
  assert_on_loop(shared_.environment.loop);
  turns_.for_each(by_context_.take(context), [this](const Id& id) {
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    const std::shared_ptr<OutgoingCall> call = found->second;
    cancel(call, "its context has ended");
  });
}

std::vector<std::shared_ptr<OutgoingCall>> OutgoingCalls::begin_stop() {
  assert_on_loop(shared_.environment.loop);
  is_stopped_ = true;
  deadlines_.clear();
  std::vector<std::shared_ptr<OutgoingCall>> open;
  open.reserve(open_.size());
  for (const auto& [id, call] : open_) open.push_back(call);
  return open;
}

bool OutgoingCalls::end_open(const std::shared_ptr<OutgoingCall>& call, const Error& why) {
  assert_on_loop(shared_.environment.loop);
  if (!open_.contains(call->id)) return false;
  EachStep each;
  each([this, &call] {
    if (!call->is_numbered) withdraw(*call);
  });
  each([this, &call, &why] { end(call, call->failure(why.status(), why.message())); });
  fail_dropped(call->future);  // if there was no memory for a better error
  if (open_.contains(call->id)) {
    forget(*call);
    if (std::exchange(call->is_in_context, false)) shared_.hook->on_call_ended(call->context);
  }
  return true;
}

size_t OutgoingCalls::stop(const Error& why) {
  assert_on_loop(shared_.environment.loop);
  is_stopped_ = true;
  deadlines_.clear();
  size_t count = 0;
  while (!open_.empty()) {
    const std::shared_ptr<OutgoingCall> call = open_.begin()->second;
    EachStep each;
    each([this, &call, &why] { end_open(call, why); });
    ++count;
    if (each.has_failed() && open_.contains(call->id)) forget(*call);
  }
  return count;
}

void OutgoingCalls::abandon() {
  is_stopped_ = true;
  while (!open_.empty()) {
    const std::shared_ptr<OutgoingCall> call = open_.begin()->second;
    call->is_in_context = false;
    call->kept.reset();
    finish(call, call->failure(Status::kCancelled, "its worker is gone"));
  }
}

void OutgoingCalls::end(const std::shared_ptr<OutgoingCall>& call, Value value) {
  trace(*call, Status::kOk);
  forget(*call);
  EachStep each;  // a callback that finds no memory does not prevent the end
  each([&call, &value] { call->future.complete(std::move(value)); });
  each([this, &call] {
    if (std::exchange(call->is_in_context, false)) shared_.hook->on_call_ended(call->context);
  });
  each.check();
}

void OutgoingCalls::end(const std::shared_ptr<OutgoingCall>& call, Error error) {
  trace(*call, error.status());
  finish(call, std::move(error));
}

void OutgoingCalls::finish(const std::shared_ptr<OutgoingCall>& call, Error error) {
  forget(*call);
  shared_.counters.failed.fetch_add(1, std::memory_order_relaxed);
  EachStep each;  // a callback or a message that finds no memory does not prevent the end
  if (call->kept && !call->is_numbered && shared_.references != nullptr) {
    each([this, &call, &error] {
      shared_.references->on_creation_failed(*std::exchange(call->kept, nullptr), *call->peer, error);
    });
  }
  each([&call, &error] { call->future.fail(std::move(error)); });
  each([this, &call] {
    if (std::exchange(call->is_in_context, false)) shared_.hook->on_call_ended(call->context);
  });
  each.check();
}

// Traces a call from its start to its end. A call that was refused here has no id and was never sent.
void OutgoingCalls::trace(const OutgoingCall& call, Status status) const {
  if (call.function == kLook) return;
  Trace& trace = shared_.group->trace;
  TraceEvent event;
  event.category = TraceCategory::kCall;
  event.status = status;
  event.begin = call.times.begun;
  event.end = shared_.environment.loop.now();
  event.id = call.id;
  event.bytes = call.claim.cost;
  if (call.id) {
    trace.add_ended(event, call.function, call.peer->name, trace_id_of(call.trace_parent));
  } else {
    trace.recorder().add(event, call.function, call.peer->name);
  }
}

void OutgoingCalls::forget(OutgoingCall& call) {
  call.within.reset();
  call.payload.originals.clear();
  if (call.claim.state == CreditClaim::State::kWaiting) credit_.give_back(call);
  credit_.end(call);
  call.payload.packed.reset();
  free_where_there_is_time(shared_.environment.compute, std::exchange(call.payload.args, {}));
  if (!call.id) return;  // the call was refused before it got an id
  by_context_.remove(call.context, call.id);
  if (open_.erase(call.id) != 0) {
    shared_.counters.open_made.fetch_sub(1, std::memory_order_relaxed);
    if (!is_stopped_) deadlines_.note_end(call.times.deadline);
  }
}

void OutgoingCalls::describe(std::vector<OpenCall>& calls, size_t most, Nanos now) const {
  assert_on_loop(shared_.environment.loop);
  for (const auto* call : oldest_of(open_, most, [](const OutgoingCall& one) { return one.times.begun; })) {
    calls.push_back({call->is_numbered ? OpenCall::Stage::kSent : OpenCall::Stage::kQueued, call->function, call->label,
                     call->peer->name, call->peer->rank, call->context, now - call->times.begun,
                     call->times.deadline == kNever ? kForever : std::max<Nanos>(0, call->times.deadline - now),
                     call->within ? call->within->function() : ""});
  }
}

}  // namespace distag
