#include "rpc/incoming_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/each_step.h"
#include "base/violation.h"
#include "rpc/call_names.h"
#include "rpc/references.h"
#include "tensor/access.h"
#include "tensor/shape_only.h"
#include "wire/codec.h"

namespace distag {

IncomingCalls::IncomingCalls(RpcShared& shared, OutgoingCalls& outgoing)
    : shared_(shared),
      outgoing_(outgoing),
      accounts_(shared),
      answers_(shared),
      deadlines_(
          shared.environment.loop, [this](const Id& id) { return open_.contains(id); },
          [this](const Id& id) { on_due(id); }),
      turns_(shared.environment.loop) {}

Heard IncomingCalls::on_call(const std::shared_ptr<RpcShared>& owner, const Peer& from, wire::Call& request,
                             const Error* shortage) {
  assert_on_loop(shared_.environment.loop);
  if (is_stopped_) return Heard::kStale;  // the peer will get this worker's LEAVE
  if (request.call.maker != from.incarnation) violation("{} makes a call under the id of another", describe_peer(from));
  if (open_.contains(request.call)) {
    violation("{} makes a call under the id of one that is open", describe_peer(from));
  }
  GroupPeer& peer = shared_.group->peer_of(from);
  // If there is no memory for them, the call comes again.
  for (Value& arg : request.args) receive_references(shared_, from, arg);
  const std::shared_ptr<CallerAccount> account = accounts_.of(from.incarnation);
  const Id id = request.call;
  const bool is_expired = request.time_left == 0;
  Heard heard = Heard::kHandled;
  std::shared_ptr<IncomingCall> call;
  try {
    call = take_in(owner, peer.peer, request, account);
    if (shortage != nullptr) throw *shortage;
    if (is_expired) fail(Status::kDeadline, "its time was up when it arrived");
    if (refuses_new_ && from.incarnation != shared_.group->self.incarnation) {
      fail(Status::kDisconnected, "{} is leaving the group", describe_peer(shared_.group->self));
    }
    Target target = find_target(call->function());
    if (target.function == nullptr || !target.function->is_control) check_bounds(*call);
    heard = Heard::kRefused;
    check_caller(target, call->function(), from);
    heard = Heard::kHandled;
    receive_metadata(*call);
    dispatch_when_ready(call, std::move(target));
  } catch (const Violation& error) {
    if (call != nullptr) refuse(call, error);
    throw;
  } catch (...) {
    Error error = current_error();
    // Another worker may wait for the value, so the call comes again.
    if (call == nullptr && request.keep && error.status() == Status::kOutOfMemory) throw;
    if (call != nullptr) {
      note_refused(*call);
      refuse(call, std::move(error));
    } else {
      account->taken->add(shared_.gate, std::exchange(request.cost, 0));
      answers_.send_refusal(from, id, std::move(error), account->taken->total());
    }
  }
  ++peer.requests_received;  // once, even if the call comes again as a refusal
  return heard;
}

// References among the arguments get their handles before anything else is decided, so that they end with the call.
std::shared_ptr<IncomingCall> IncomingCalls::take_in(const std::shared_ptr<RpcShared>& owner,
                                                     const std::shared_ptr<const Peer>& from, wire::Call& request,
                                                     const std::shared_ptr<CallerAccount>& account) {
  if (request.keep && shared_.references == nullptr) {
    fail(Status::kUnsupported, "this worker knows no remote references");
  }
  const Id id = request.call;
  const Nanos deadline = deadline_after(shared_.environment.loop.now(), request.time_left);
  auto call = std::make_shared<IncomingCall>(owner, *this, from, std::move(request), deadline, account);
  try {
    deadlines_.add(id, deadline);
    open_.emplace(id, call);
    by_context_.add(call->context(), id);
    if (call->request().keep) begin_value(*call);
  } catch (...) {
    by_context_.remove(call->context(), id);
    open_.erase(id);
    request = call->give_back();
    throw;
  }
  request.keep = {};  // has taken effect, and must not again if the message comes a second time
  request.cost = 0;
  shared_.counters.served.fetch_add(1, std::memory_order_relaxed);
  shared_.counters.open_served.fetch_add(1, std::memory_order_relaxed);
  if (call->request().has_bad_trace_parent) shared_.counters.note_trace_parent_dropped();
  ++account->open;
  return call;
}

// The last step that may fail: a value is made once, though its call may come again for lack of memory.
void IncomingCalls::begin_value(IncomingCall& call) {
  const Peer& from = *call.peer();
  call.delivery().kept = shared_.references->on_creation(
      from, call.request().keep,
      fmt::format("{} from \"{}\"", name_call(call.function(), call.request().label, shared_.group->self), from.name));
}

// A function starts when the values to which its arguments refer are made.
void IncomingCalls::dispatch_when_ready(const std::shared_ptr<IncomingCall>& call, Target target) {
  const Values& args = call->args();
  if (std::none_of(args.begin(), args.end(), [](const Value& arg) { return arg.has_external(); })) {
    dispatch(call, std::move(target));
    return;
  }
  call->room().give_back();  // not its turn is awaited, but what others may have to do
  shared_.references->when_ready(args, [this, call, target = std::move(target)](const Error* failure) mutable {
    if (!open_.contains(call->id())) return;
    try {
      if (failure != nullptr && target.function != nullptr && target.function->on_loop) {
        call->answer(*failure);  // a fetch fails with the failure of the value
        return;
      }
      if (failure != nullptr) throw *failure;
      dispatch(call, std::move(target));
    } catch (...) {
      refuse(call, current_error());
    }
  });
}

// An honest caller is stopped earlier by its own bounds, unless they differ from the bounds here.
void IncomingCalls::check_bounds(const IncomingCall& call) const {
  const CallBounds& bounds = shared_.config.bounds;
  const CallerAccount& account = call.room().account();
  if (account.open > bounds.served) {
    fail(Status::kOverloaded, "{} has {} calls of this caller open, and takes no more: wait for earlier ones first",
         describe_peer(shared_.group->self), account.open - 1);
  }
  const uint64_t others = account.taken->not_taken() - call.room().bytes();
  const uint64_t most = std::max(bounds.not_begun, 2 * shared_.config.max_in_flight);
  if (others != 0 && (others > most || call.room().bytes() > most - others)) {
    fail(Status::kOverloaded,
         "{} has {} bytes of requests of this caller that it has not begun, and takes {}: "
         "wait for earlier ones first, or raise max_in_flight_bytes there",
         describe_peer(shared_.group->self), others, most);
  }
}

void IncomingCalls::check_caller(const Target& target, const std::string& function, const Peer& from) {
  if (target.function == nullptr || target.function->callers.empty()) return;
  const std::vector<std::string>& callers = target.function->callers;
  const bool is_self = from.incarnation == shared_.group->self.incarnation;
  if (is_self || std::find(callers.begin(), callers.end(), from.name) != callers.end()) return;
  const std::string text = fmt::format("worker \"{}\" may not call \"{}\" on {}: it is not among the callers of it",
                                       from.name, function, describe_peer(shared_.group->self));
  denial_log_.write(shared_.environment.log, LogLevel::kWarning, shared_.environment.loop.now(), text);
  throw Error(Status::kDenied, text);
}

IncomingCalls::Target IncomingCalls::find_target(const std::string& name) const {
  Target target;
  target.function = shared_.functions.find(name);
  if (target.function == nullptr && shared_.op_runner) target.op = ops::find_op(name);
  if (target.function == nullptr && target.op == nullptr) {
    fail(Status::kNotFound, "{} has no function \"{}\", and no built-in op has that name",
         describe_peer(shared_.group->self), name);
  }
  return target;
}

void IncomingCalls::receive_metadata(const IncomingCall& call) {
  if (!call.context()) return;
  if (shared_.hook == nullptr) {
    fail(Status::kUnsupported, "{} keeps no contexts", describe_peer(shared_.group->self));
  }
  std::vector<const Value*> values;
  values.reserve(call.args().size());
  for (const Value& value : call.args()) values.push_back(&value);
  shared_.hook->on_receive(call.request().metadata, *call.peer(), values,
                           name_call(call.function(), call.request().label, shared_.group->self), false);
}

// If there is no memory for the note, it is dropped: the refusal goes out nevertheless.
void IncomingCalls::note_refused(const IncomingCall& call) {
  if (!call.context() || shared_.hook == nullptr) return;
  EachStep each;
  each([this, &call] { shared_.hook->on_thrown_away(call.request().metadata, *call.peer()); });
}

void IncomingCalls::dispatch(const std::shared_ptr<IncomingCall>& call, Target target) {
  if (target.op != nullptr) {
    prepare_op(call, *target.op);
  } else {
    Executor* const where = target.function->on_loop ? nullptr : &shared_.environment.functions;
    const bool is_control = target.function->is_control;
    call->prepare([function = std::move(target.function)](Invocation& invocation) { function->run(invocation); }, where,
                  is_control);
  }
  call->go_on();
}

void IncomingCalls::prepare_op(const std::shared_ptr<IncomingCall>& call, const ops::Op& op) {
  const bool has_references = std::any_of(call->args().begin(), call->args().end(),
                                          [](const Value& arg) { return arg.kind() == ValueKind::kRref; });
  OpCall op_call = make_op_call(op, has_references ? shared_.references->resolve(call->args()) : call->args());
  for (const Tensor& input : op_call.inputs) {
    if (!input || input.shard_slot() == nullptr) continue;
    check_not_shape_only(input);
    fail(Status::kUnsupported, "{}: {} is sharded: all members of its mesh call the op, each on its worker", op.name,
         distag::describe(input));
  }
  // Another thread may be writing to a tensor of this worker, and the loop does not wait for writers. A view of it is
  // read once more when the answer is sent.
  const bool is_brief = is_cheap(op_call) || (open_.size() == 1 && is_one_short_pass(op_call));
  const bool is_now = is_brief && (!has_references || (!op.is_view && try_hold(std::span<Tensor>(op_call.inputs))));
  call->prepare(
      [&runner = shared_.op_runner, op_call = std::move(op_call)](Invocation& invocation) {
        invocation.set_result(run_op_call(op_call, runner, static_cast<bool>(invocation.context())));
      },
      is_now ? nullptr : &shared_.environment.compute);
}

void IncomingCalls::refuse(const std::shared_ptr<IncomingCall>& call, Error error) {
  call->answer(std::move(error.set_may_have_run(false)));
}

bool IncomingCalls::remove(const IncomingCall& call) {
  by_context_.remove(call.context(), call.id());
  if (open_.erase(call.id()) == 0) return false;
  shared_.counters.open_served.fetch_sub(1, std::memory_order_relaxed);
  --call.room().account().open;
  deadlines_.note_end(call.deadline());
  return true;
}

// ---- answers ----

void IncomingCalls::send_answer(std::shared_ptr<IncomingCall> call) {
  assert_on_loop(shared_.environment.loop);
  if (remove(*call)) {  // the caller waits for it
    trace(*call, call->delivery().answer.error ? call->delivery().answer.error->status() : Status::kOk);
    call->close();
    answers_.send(call);
  } else {
    call->delivery().answer.share = {};  // the answer never goes out
  }
  free_where_there_is_time(std::move(call));
}

// Traces a call from its arrival to its answer, or to the loss of its caller.
void IncomingCalls::trace(const IncomingCall& call, Status status) const {
  if (call.function() == kLook) return;
  TraceEvent event;
  event.category = TraceCategory::kServed;
  event.status = status;
  event.begin = call.stage().arrived();
  event.end = shared_.environment.loop.now();
  event.queued = call.stage().queued();
  event.id = call.id();
  event.bytes = call.room().bytes();
  shared_.group->trace.add_ended(event, call.function(), call.caller(), trace_id_of(call.trace_parent()));
}

void IncomingCalls::free_where_there_is_time(std::shared_ptr<IncomingCall> call) noexcept {
  assert_on_loop(shared_.environment.loop);
  if (!takes_long_to_free(call->args())) return;
  EachStep each;  // without memory for a task the arguments are freed here
  each([this, &call] { shared_.environment.compute.post_or_drop([call = std::move(call)] {}); });
}

// ---- calls that end without an answer of the function ----

bool IncomingCalls::close(const std::shared_ptr<IncomingCall>& call, const std::string& reason) {
  const bool has_begun = call->close();
  for (const auto& nested : call->nested().take()) {
    if (const auto alive = nested.lock()) {
      outgoing_.cancel(alive, fmt::format("call \"{}\", within which it was made, {}", call->function(), reason));
    }
  }
  return has_begun;
}

void IncomingCalls::on_due(const Id& id) {
  assert_on_loop(shared_.environment.loop);
  const std::shared_ptr<IncomingCall> call = open_.at(id);
  const bool has_begun = close(call, "reached its deadline");
  Error error(Status::kDeadline, has_begun ? "the function did not answer before the deadline"
                                           : "it waited in the queue until its deadline");
  call->answer(std::move(error.set_may_have_run(has_begun)));
}

Heard IncomingCalls::on_cancel(const Peer& from, const wire::Cancel& cancel) {
  assert_on_loop(shared_.environment.loop);
  if (cancel.call.maker != from.incarnation) {
    violation("{} cancels a call of another", describe_peer(from));
  }
  const auto found = open_.find(cancel.call);
  if (found == open_.end()) return Heard::kStale;
  const std::shared_ptr<IncomingCall> call = found->second;
  const bool has_begun = close(call, "was cancelled");
  Error error(Status::kCancelled,
              fmt::format("call \"{}\" of {}: cancelled by the caller", call->function(), describe_peer(from)));
  call->answer(std::move(error.set_may_have_run(has_begun)));
  return Heard::kHandled;
}

// Calls that waited for room in an account that was closed; other code ends them.
void IncomingCalls::free_all(CallerAccounts::Calls calls) noexcept {
  for (std::shared_ptr<IncomingCall>& call : calls) free_where_there_is_time(std::move(call));
}

void IncomingCalls::on_peer_gone(Incarnation peer) {
  assert_on_loop(shared_.environment.loop);
  free_all(accounts_.close(peer));
  std::vector<std::shared_ptr<IncomingCall>> hit;
  for (const auto& [id, call] : open_) {
    // A call that makes a value goes on: others may wait for the value.
    if (id.maker == peer && !call->request().keep) hit.push_back(call);
  }
  turns_.for_each(std::move(hit), [this](const std::shared_ptr<IncomingCall>& call) {
    if (!remove(*call)) return;
    trace(*call, Status::kDisconnected);
    close(call, "lost its caller");
  });
}

void IncomingCalls::end_context(const Id& context) {
  assert_on_loop(shared_.environment.loop);
  turns_.for_each(by_context_.take(context), [this](const Id& id) {
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    const std::shared_ptr<IncomingCall> call = found->second;
    const bool has_begun = close(call, "lost its context, which has ended");
    call->answer(Error(Status::kCancelled, "its context has ended").set_may_have_run(has_begun));
  });
}

std::vector<std::shared_ptr<IncomingCall>> IncomingCalls::begin_stop() {
  assert_on_loop(shared_.environment.loop);
  is_stopped_ = true;
  answers_.stop();
  free_all(accounts_.close_all());
  shared_.running.close();
  std::vector<std::shared_ptr<IncomingCall>> open;
  open.reserve(open_.size());
  for (const auto& [id, call] : open_) open.push_back(call);
  return open;
}

bool IncomingCalls::end_open(const std::shared_ptr<IncomingCall>& call) {
  assert_on_loop(shared_.environment.loop);
  if (!remove(*call)) return false;
  trace(*call, Status::kCancelled);
  EachStep each;
  each([this, &call] { close(call, "lost its worker, which was shut down"); });
  if (const auto kept = std::exchange(call->delivery().kept, nullptr)) fail_dropped(*kept);
  return call->id().maker != shared_.group->self.incarnation;
}

size_t IncomingCalls::stop() {
  assert_on_loop(shared_.environment.loop);
  is_stopped_ = true;
  answers_.stop();
  free_all(accounts_.close_all());
  shared_.running.close();
  size_t of_others = 0;
  while (!open_.empty()) {
    const std::shared_ptr<IncomingCall> call = open_.begin()->second;
    if (end_open(call)) ++of_others;
  }
  deadlines_.clear();
  return of_others;
}

void IncomingCalls::abandon() {
  is_stopped_ = true;
  answers_.stop();
  accounts_.close_all();
  for (const auto& [id, call] : std::exchange(open_, {})) call->close();
}

void IncomingCalls::describe(std::vector<OpenCall>& calls, size_t most, Nanos now) const {
  assert_on_loop(shared_.environment.loop);
  for (const auto* call : oldest_of(open_, most, [](const IncomingCall& one) { return one.stage().arrived(); })) {
    calls.push_back({call->stage().described(), call->function(), call->request().label, call->caller(),
                     call->peer()->rank, call->context(), now - call->stage().arrived(), call->time_left()});
  }
}

}  // namespace distag
