#include "rpc/rpc.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/not_started.h"
#include "base/thread.h"
#include "base/turns.h"
#include "rpc/call_names.h"
#include "rpc/incoming_call.h"
#include "rpc/incoming_calls.h"
#include "rpc/outgoing_calls.h"
#include "rpc/references.h"
#include "rpc/rpc_shared.h"
#include "wire/codec.h"
#include "wire/packed.h"

namespace distag {

struct Rpc::State final : RpcShared, GroupService {
  State(Rpc& rpc_, Group& group_, Rpc::Environment environment_, RpcConfig config_)
      : RpcShared(rpc_, group_.shared(), environment_, config_), outgoing(*this), incoming(*this, outgoing) {
    for (Group::Function& function : group_.functions()) {
      functions.add(function.name, {[run = std::move(function.run)](Invocation& invocation) {
                                      auto& call = static_cast<IncomingCall&>(invocation);
                                      run({*call.peer(), call.args(), [&call] { return call.defer(); }});
                                    },
                                    true,
                                    {},
                                    true});
    }
  }

  OutgoingCalls outgoing;
  IncomingCalls incoming;

  Turns turns{environment.loop};
  int64_t ended_by_stop = 0;
  bool has_ended = false;
  bool has_told_end = false;

  // GroupService
  std::shared_ptr<Future<Value>> ask(const Peer& to, const char* function, Values args) override;
  bool is_idle() const override;
  void refuse_new() override {
    assert_on_loop(environment.loop);
    incoming.refuse_new();
  }
  void end_calls(const Error& why, std::function<void()> on_ended) override;
  void end(const Error& why, ShutdownReport& report) override;
  void on_gone(const Peer& peer, const Error& error) override;
  void on_lack(const Peer& peer, const Error& lack, bool is_long) override;
};

Rpc::Rpc(Group& group, Environment environment, RpcConfig config)
    : state_(std::make_shared<State>(*this, group, environment, config)) {
  group.set_service(*state_);
}

Rpc::~Rpc() {
  state_->group->phase.store(GroupPhase::kStopped);
  state_->gate.close();
  state_->running.close();
  state_->outgoing.abandon();
  state_->incoming.abandon();
}

void Rpc::set_hook(CallHook* hook) { state_->hook = hook; }
void Rpc::set_reference_hook(ReferenceHook* hook) { state_->references = hook; }
void Rpc::set_op_runner(OpRunner runner) { state_->op_runner = std::move(runner); }

void Rpc::register_function(const std::string& name, Function function, std::vector<std::string> callers) {
  state_->functions.add(name, {std::move(function), false, std::move(callers)});
}

void Rpc::register_internal(const std::string& name, Function function) {
  state_->functions.add(name, {std::move(function), true, {}});
}

void Rpc::unregister_function(const std::string& name) { state_->functions.remove(name); }

// ---- calls ----

std::shared_ptr<Future<Value>> Rpc::call(CallRequest request) {
  State& state = *state_;
  switch (state.group->phase.load(std::memory_order_acquire)) {
    case GroupPhase::kCreated:
      fail(Status::kInvalidState, "call \"{}\" on \"{}\": {}", request.function, request.to, kNotStarted);
    case GroupPhase::kStopped:
      fail(Status::kInvalidState, "call \"{}\" on \"{}\": the worker was shut down", request.function, request.to);
    case GroupPhase::kServing:
      break;
  }
  if (request.within && &request.within->rpc() != this) {
    fail(Status::kInvalidArgument, "call \"{}\" on \"{}\": it is made within an invocation of another worker",
         request.function, request.to);
  }
  check_function_name(request.function);
  auto call = std::make_shared<OutgoingCall>();
  call->peer = request.to_incarnation == 0 ? state.group->membership.peer_named(request.to)
                                           : state.group->membership.peer_with(request.to_incarnation);
  if (call->peer == nullptr && request.to_incarnation != 0) {
    if (state.group->membership.peer_named(request.to) == nullptr) {
      fail(Status::kDisconnected, "call \"{}\": the worker that it is for was gone before this one joined",
           request.function);
    }
    fail(Status::kPeerRestarted, "call \"{}\": worker \"{}\" was restarted, and what it had before is gone",
         request.function, request.to);
  }
  if (call->peer == nullptr) {
    fail(Status::kNotFound, "call \"{}\": there is no worker \"{}\" in the group", request.function, request.to);
  }
  call->to = call->peer->incarnation;
  for (const Value& value : request.args) check_references(state, value);
  call->payload.args = wire::prepare(request.args);
  call->payload.packed = wire::Packed::make(call->payload.args);
  if (call->payload.packed != nullptr) call->payload.args.clear();
  if (request.keep_as) call->kept = request.keep_as(call->peer);
  if (request.context) {
    call->payload.originals = std::move(request.args);
    // Other arguments may be large, and would be freed on the loop.
    std::erase_if(call->payload.originals, [](const Value& value) { return !value.has_tensor(); });
  }
  call->context = request.context;
  call->function = std::move(request.function);
  call->label = std::move(request.label);
  call->trace_parent = std::move(request.trace_parent);
  call->claim.has_time = request.has_time;
  if (!request.is_control) call->claim.cost = cost_of(call->payload.args, call->payload.packed.get(), call->label);
  call->times.timeout = request.timeout == 0 ? state.config.call_timeout : request.timeout;
  call->times.begun = state.environment.loop.now();
  call->times.deadline = deadline_after(call->times.begun, call->times.timeout);
  if (request.within && request.within->deadline() < call->times.deadline) {
    call->times.deadline = request.within->deadline();
    call->times.timeout = kForever;
  }
  call->within = std::move(request.within);
  state.counters.made.fetch_add(1, std::memory_order_relaxed);
  call->future.set_operation(
      [](const void* subject) {
        const auto& named = *static_cast<const OutgoingCall*>(subject);
        return describe_call(named.function, named.label, *named.peer);
      },
      call.get());
  call->future.set_canceller([weak_state = std::weak_ptr<State>(state_), weak_call = std::weak_ptr(call)] {
    const auto alive = weak_state.lock();
    const auto cancelled = weak_call.lock();
    if (!alive || !cancelled) return;
    alive->gate.run([alive, cancelled] { alive->outgoing.on_future_cancelled(cancelled); });
  });
  if (!run_on(state.environment.loop, [kept = state_, call] { kept->outgoing.start(call); })) {
    fail(Status::kInvalidState, "call \"{}\" on \"{}\": the worker was shut down", call->function, call->peer->name);
  }
  return {call, &call->future};
}

// ---- messages and losses ----

Heard Rpc::handle(const Peer& from, wire::Message& message) {
  assert_on_loop(state_->environment.loop);
  if (auto* call = std::get_if<wire::Call>(&message.body)) return state_->incoming.on_call(state_, from, *call);
  if (auto* reply = std::get_if<wire::Reply>(&message.body)) {
    const uint64_t taken = reply->taken;
    const Heard heard = state_->outgoing.on_reply(from, *reply);
    state_->outgoing.on_taken(from, taken);
    return heard;
  }
  if (const auto* credit = std::get_if<wire::Credit>(&message.body)) {
    state_->outgoing.on_taken(from, credit->taken);
    return Heard::kHandled;
  }
  if (const auto* wanted = std::get_if<wire::WantCredit>(&message.body)) {
    return state_->incoming.accounts().on_credit_wanted(from.incarnation, wanted->taken);
  }
  return state_->incoming.on_cancel(from, std::get<wire::Cancel>(message.body));
}

void Rpc::refuse(const Peer& from, wire::Message& outline, const Error& why) {
  assert_on_loop(state_->environment.loop);
  if (auto* call = std::get_if<wire::Call>(&outline.body)) {
    state_->incoming.on_call(state_, from, *call, &why);
  } else if (auto* reply = std::get_if<wire::Reply>(&outline.body)) {
    const uint64_t taken = reply->taken;
    state_->outgoing.on_reply(from, *reply, &why);
    state_->outgoing.on_taken(from, taken);
  }
}

uint64_t Rpc::taken(const Peer& from) {
  assert_on_loop(state_->environment.loop);
  return state_->incoming.accounts().taken(from.incarnation);
}

void Rpc::drop(const Peer& from, const wire::Call& call) {
  assert_on_loop(state_->environment.loop);
  state_->incoming.accounts().drop(from.incarnation, call.cost);
}

void Rpc::State::on_gone(const Peer& peer, const Error& error) {
  assert_on_loop(environment.loop);
  outgoing.end_calls_to(peer.incarnation, error, OutgoingCalls::Why::kGone);
  incoming.on_peer_gone(peer.incarnation);
}

void Rpc::State::on_lack(const Peer& peer, const Error& lack, bool is_long) {
  assert_on_loop(environment.loop);
  const auto why = is_long ? OutgoingCalls::Why::kLongLack : OutgoingCalls::Why::kLack;
  outgoing.end_calls_to(peer.incarnation, lack, why);
}

void Rpc::end_context(const Id& context) {
  assert_on_loop(state_->environment.loop);
  state_->outgoing.end_context(context);
  state_->incoming.end_context(context);
}

// ---- requests of the group ----

std::shared_ptr<Future<Value>> Rpc::State::ask(const Peer& to, const char* function, Values args) {
  assert_on_loop(environment.loop);
  CallRequest request;
  request.to = to.name;
  request.function = function;
  request.args = std::move(args);
  request.timeout = kForever;
  request.is_control = true;
  return rpc.call(std::move(request));
}

bool Rpc::State::is_idle() const {
  assert_on_loop(environment.loop);
  return outgoing.is_idle() && incoming.is_idle() && environment.functions.waiting() == 0;
}

// Ends the calls made here first: calls made within a served call count as well. If there is no memory for turns, end()
// ends all calls.
void Rpc::State::end_calls(const Error& why, std::function<void()> on_ended) {
  assert_on_loop(environment.loop);
  EachStep each;
  each([this, &why, &on_ended] {
    turns.for_each(
        outgoing.begin_stop(), [this, why](const auto& call) { ended_by_stop += outgoing.end_open(call, why) ? 1 : 0; },
        [this, on_ended] {
          turns.for_each(
              incoming.begin_stop(), [this](const auto& call) { ended_by_stop += incoming.end_open(call) ? 1 : 0; },
              [this, on_ended] {
                if (has_ended) return;
                on_ended();
                has_told_end = true;
              });
        });
  });
  if (!each.has_failed() || has_told_end) return;
  if (has_ended) each.check();  // on_ended() itself has failed
  on_ended();
}

void Rpc::State::end(const Error& why, ShutdownReport& report) {
  assert_on_loop(environment.loop);
  has_ended = true;
  const size_t made = outgoing.stop(why);
  const size_t served = incoming.stop();
  report.open_calls = ended_by_stop + static_cast<int64_t>(made + served);
  EachStep each;  // without memory for the list the end still counts
  each([this, &report] {
    if (references != nullptr) report.leaked_rrefs = references->leaks();
  });
}

// ---- state ----

bool Rpc::run_host_code(const std::string& name, const std::function<void()>& code) {
  RunningFunctions::Run run;
  if (!state_->running.begin(run, name)) return false;
  run_guarded(code);
  state_->running.end(run);
  return true;
}

std::vector<std::string> Rpc::running_functions() const { return state_->running.names(); }

std::shared_ptr<Future<Unit>> Rpc::when_no_function_runs() { return state_->running.when_empty(); }

RpcStats Rpc::stats() const {
  const CallCounters& counters = state_->counters;
  RpcStats stats;
  stats.calls_made = counters.made.load(std::memory_order_relaxed);
  stats.calls_served = counters.served.load(std::memory_order_relaxed);
  stats.calls_failed = counters.failed.load(std::memory_order_relaxed);
  stats.futures_open = counters.open_made.load(std::memory_order_relaxed);
  stats.calls_open = stats.futures_open + counters.open_served.load(std::memory_order_relaxed);
  stats.trace_parents_dropped = counters.trace_parents_dropped.load(std::memory_order_relaxed);
  return stats;
}

void Rpc::note_trace_parent_dropped() { state_->counters.note_trace_parent_dropped(); }

std::vector<OpenCall> Rpc::open_calls(size_t most) const {
  assert_on_loop(state_->environment.loop);
  std::vector<OpenCall> calls;
  const Nanos now = state_->environment.loop.now();
  state_->outgoing.describe(calls, most, now);
  state_->incoming.describe(calls, most, now);
  std::stable_sort(calls.begin(), calls.end(), [](const OpenCall& a, const OpenCall& b) { return a.age > b.age; });
  return calls;
}

RequestBytes Rpc::request_bytes() const {
  assert_on_loop(state_->environment.loop);
  return state_->outgoing.request_bytes();
}

}  // namespace distag
