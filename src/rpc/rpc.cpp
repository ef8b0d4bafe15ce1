#include "rpc/rpc.h"

#include <algorithm>
#include <utility>

#include "base/thread.h"
#include "rpc/all_gather.h"
#include "rpc/gather_rounds.h"
#include "rpc/gather_tree.h"
#include "rpc/incoming_calls.h"
#include "rpc/outgoing_calls.h"
#include "rpc/quiet.h"
#include "rpc/shared.h"
#include "wire/codec.h"
#include "wire/packed.h"

namespace distag {

struct Rpc::State final : RpcShared {
  State(Rpc& rpc_, Rpc::Environment environment_, RpcConfig config_)
      : RpcShared(rpc_, environment_, config_),
        outgoing(*this),
        incoming(*this, outgoing),
        quiet(*this, {[this] { return is_idle(); }, [this] { leave(true, shut_down()); }}),
        all_gather(std::make_shared<AllGather>(*this)),
        gather_tree(std::make_shared<GatherTree>(
            *this, GatherTree::Receiver{
                       [this](const Ranks& ranks, int64_t turn) { return all_gather->expects(ranks, turn); },
                       [this](const Ranks& ranks, const Value& values) { all_gather->take(ranks, values); }})),
        gather_rounds(*this,
                      [this](const Ranks& ranks, const std::vector<int64_t>& turns, const Value& values,
                             GatherTree::Done done) { gather_tree->spread(ranks, turns, values, std::move(done)); }) {
    functions.add(AllGather::kFunction,
                  {[this](Invocation& call) { gather_rounds.on_call(static_cast<IncomingCall&>(call)); }, true});
    functions.add(GatherTree::kFunction,
                  {[this](Invocation& call) { gather_tree->on_call(static_cast<IncomingCall&>(call)); }, true});
  }

  OutgoingCalls outgoing;
  IncomingCalls incoming;
  Quiet quiet;
  const std::shared_ptr<AllGather> all_gather;
  const std::shared_ptr<GatherTree> gather_tree;
  GatherRounds gather_rounds;
  std::vector<std::function<bool()>> idle_checks;

  // The shutdown. All on the loop, but for the future.
  std::shared_ptr<Future<ShutdownReport>> stop_future = Future<ShutdownReport>::make();
  Nanos stop_deadline = kNever;
  Loop::TimerId stop_timer = 0;
  bool is_leaving = false;

  bool is_idle() const;
  void begin_stop(Nanos deadline);
  void leave(bool is_quiet, const Error& why);
  static Error shut_down() { return {Status::kCancelled, "the worker was shut down"}; }
  void on_peer_gone(const Peer& peer, Standing state, Error error);
};

Rpc::Rpc(Environment environment, RpcConfig config) : state_(std::make_shared<State>(*this, environment, config)) {}

Rpc::~Rpc() {
  state_->phase.store(RpcShared::Phase::kStopped);
  state_->gate.close();
  state_->running.close();
  state_->gather_rounds.abandon();
  state_->outgoing.abandon();
  state_->incoming.abandon();
}

void Rpc::set_hook(CallHook* hook) { state_->hook = hook; }
void Rpc::set_reference_hook(ReferenceHook* hook) { state_->references = hook; }
void Rpc::set_op_runner(OpRunner runner) { state_->op_runner = std::move(runner); }

void Rpc::register_function(const std::string& name, Function function) {
  state_->functions.add(name, {std::move(function)});
}

void Rpc::register_internal(const std::string& name, Function function) {
  state_->functions.add(name, {std::move(function), true});
}

void Rpc::unregister_function(const std::string& name) { state_->functions.remove(name); }

void Rpc::begin(Session& session, std::vector<Peer> members, bool is_open_world) {
  state_->session = &session;
  state_->is_open_world = is_open_world;
  state_->self = session.self();
  for (const Peer& member : members) {
    state_->membership.add(member);
    state_->peer_of(member);
  }
  state_->phase.store(RpcShared::Phase::kServing);
}

Session& Rpc::session() { return *state_->session; }
const Membership& Rpc::membership() const { return state_->membership; }

void Rpc::send(const Peer& to, wire::Body body, Task on_acknowledged) {
  if (state_->session == nullptr || is_gone(to.incarnation)) return;
  SendOptions options;
  options.on_number = [state = state_.get(), to](wire::Message&) { ++state->peer_of(to).requests_sent; };
  options.on_acknowledged = std::move(on_acknowledged);
  try {
    state_->session->send(to.incarnation, std::move(body), std::move(options));
  } catch (const Error&) {
    // The peer is lost, of which the loop has yet to tell.
  }
}

void Rpc::fence(Incarnation peer, const Error& why) {
  if (state_->session != nullptr) state_->session->fence(peer, why);
}

void Rpc::count_received(const Peer& from) { ++state_->peer_of(from).requests_received; }

std::shared_ptr<const Peer> Rpc::find_peer(Incarnation incarnation) const {
  const auto found = state_->peers.find(incarnation);
  return found == state_->peers.end() ? nullptr : found->second.peer;
}

bool Rpc::is_gone(Incarnation incarnation) const {
  if (!state_->peers.contains(incarnation)) return true;
  return state_->session == nullptr || state_->session->gone(incarnation) != nullptr;
}

// ---- calls ----

std::shared_ptr<Future<Value>> Rpc::call(CallRequest request) {
  State& state = *state_;
  switch (state.phase.load(std::memory_order_acquire)) {
    case RpcShared::Phase::kCreated:
      fail(Status::kInvalidState, "call \"{}\" on \"{}\": the worker is not started", request.function, request.to);
    case RpcShared::Phase::kStopped:
      fail(Status::kInvalidState, "call \"{}\" on \"{}\": the worker was shut down", request.function, request.to);
    case RpcShared::Phase::kServing:
      break;
  }
  if (request.within && &request.within->rpc() != this) {
    fail(Status::kInvalidArgument, "call \"{}\" on \"{}\": it is made within an invocation of another worker",
         request.function, request.to);
  }
  check_function_name(request.function);
  auto call = std::make_shared<OutgoingCall>();
  call->peer = request.to_incarnation == 0 ? state.membership.peer_named(request.to)
                                           : state.membership.peer_with(request.to_incarnation);
  if (call->peer == nullptr && request.to_incarnation != 0) {
    if (state.membership.peer_named(request.to) == nullptr) {
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
  call->args = wire::prepare(request.args);
  call->packed = wire::Packed::make(call->args);
  if (call->packed != nullptr) call->args.clear();
  if (request.keep_as) call->kept = request.keep_as(call->peer);
  if (request.context) {
    call->originals = std::move(request.args);
    // Others may be large, and would end on the loop.
    std::erase_if(call->originals, [](const Value& value) { return !value.has_tensor(); });
  }
  call->context = request.context;
  call->function = std::move(request.function);
  call->label = std::move(request.label);
  call->timeout = request.timeout == 0 ? state.config.call_timeout : request.timeout;
  call->begun = state.environment.loop.now();
  call->deadline = deadline_after(call->begun, call->timeout);
  if (request.within && request.within->deadline() < call->deadline) {
    call->deadline = request.within->deadline();
    call->timeout = kForever;
  }
  call->within = std::move(request.within);
  state.counters.made.fetch_add(1, std::memory_order_relaxed);
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

std::shared_ptr<Future<Value>> Rpc::all_gather(const Value& value, std::optional<std::vector<int32_t>> ranks,
                                               Nanos timeout) {
  return state_->all_gather->begin(value, std::move(ranks), timeout);
}

// ---- messages and losses ----

std::optional<Heard> Rpc::handle(const Peer& from, wire::Message& message) {
  State& state = *state_;
  if (auto* call = std::get_if<wire::Call>(&message.body)) return state.incoming.on_call(state_, from, *call);
  if (auto* reply = std::get_if<wire::Reply>(&message.body)) return state.outgoing.on_reply(from, *reply);
  if (auto* cancel = std::get_if<wire::Cancel>(&message.body)) return state.incoming.on_cancel(from, *cancel);
  if (auto* ask = std::get_if<wire::QuietAsk>(&message.body)) {
    state.quiet.on_ask(from, *ask);
  } else if (auto* answer = std::get_if<wire::QuietAnswer>(&message.body)) {
    state.quiet.on_answer(from, std::move(*answer));
  } else if (auto* verdict = std::get_if<wire::QuietVerdict>(&message.body)) {
    state.quiet.on_verdict(from, *verdict);
  } else {
    return std::nullopt;
  }
  return Heard::kHandled;
}

bool Rpc::refuse(const Peer& from, wire::Message& outline, const Error& why) {
  if (auto* call = std::get_if<wire::Call>(&outline.body)) {
    state_->incoming.on_call(state_, from, *call, &why);
  } else if (auto* reply = std::get_if<wire::Reply>(&outline.body)) {
    state_->outgoing.on_reply(from, *reply, &why);
  } else {
    return false;
  }
  return true;
}

void Rpc::on_lost(const Peer& peer, const Error& error) { state_->on_peer_gone(peer, Standing::kLost, error); }

void Rpc::on_left(const Peer& peer) {
  state_->on_peer_gone(peer, Standing::kLeft,
                       Error(Status::kDisconnected, fmt::format("{} has left the group", describe_peer(peer))));
}

void Rpc::State::on_peer_gone(const Peer& peer, Standing member_state, Error error) {
  membership.set_state(peer.incarnation, member_state);
  gather_rounds.on_peer_gone(peer, error);
  outgoing.on_peer_gone(peer.incarnation, error);
  incoming.on_peer_gone(peer.incarnation);
  quiet.on_members_changed();
}

void Rpc::on_joined(const Peer& peer) {
  // The one before of its rank is gone: nothing is counted for it any more.
  const auto before = state_->membership.find_by_rank(peer.rank);
  if (before && before->peer.incarnation != peer.incarnation) state_->peers.erase(before->peer.incarnation);
  state_->membership.add(peer);
  state_->peer_of(peer);
  state_->quiet.on_members_changed();
}

void Rpc::end_context(const Id& context) {
  state_->outgoing.end_context(context);
  state_->incoming.end_context(context);
}

// ---- shutdown ----

void Rpc::add_idle_check(std::function<bool()> is_idle) { state_->idle_checks.push_back(std::move(is_idle)); }

bool Rpc::State::is_idle() const {
  return outgoing.is_idle() && incoming.is_idle() && environment.functions.waiting() == 0 &&
         std::all_of(idle_checks.begin(), idle_checks.end(), [](const auto& check) { return check(); });
}

std::shared_ptr<Future<ShutdownReport>> Rpc::shutdown(Nanos deadline) {
  state_->begin_stop(deadline);
  return state_->stop_future;
}

void Rpc::State::begin_stop(Nanos deadline) {
  if (is_leaving) return;
  if (session == nullptr) {
    is_leaving = true;
    phase.store(Phase::kStopped);
    running.close();
    stop_future->complete(ShutdownReport{});
    return;
  }
  if (deadline < stop_deadline) {
    stop_deadline = deadline;
    if (stop_timer != 0) environment.loop.cancel_timer(std::exchange(stop_timer, 0));
    if (deadline <= environment.loop.now()) {
      leave(false, shut_down());
      return;
    }
    stop_timer = environment.loop.start_timer(deadline, [this] {
      stop_timer = 0;
      leave(false, shut_down());
    });
  }
  if (is_open_world) incoming.refuse_new();
  quiet.begin();
}

bool Rpc::leave_for(const Error& why) {
  if (state_->is_leaving) return false;
  state_->leave(false, why);
  return true;
}

// The last step: nothing begins any more, what is open ends, and the streams say LEAVE.
void Rpc::State::leave(bool is_quiet, const Error& why) {
  if (std::exchange(is_leaving, true)) return;
  if (stop_timer != 0) environment.loop.cancel_timer(std::exchange(stop_timer, 0));
  phase.store(Phase::kStopped);
  quiet.stop();
  all_gather->stop();
  const size_t made = outgoing.stop(why);  // first: what is made within a served call counts as well
  const size_t served = incoming.stop();
  gather_rounds.stop();
  ShutdownReport report;
  report.missing = quiet.missing();
  report.open_calls = static_cast<int64_t>(made + served);
  if (references != nullptr) report.leaked_rrefs = references->leaks();
  report.clean = is_quiet && report.missing.empty() && report.open_calls == 0 && report.leaked_rrefs.empty();
  const Nanos patience = deadline_after(environment.loop.now(), config.lease);
  session->leave(std::min(stop_deadline, patience), [this, report = std::move(report)] {
    session = nullptr;
    membership.set_state(self.incarnation, Standing::kLeft);
    stop_future->complete(report);
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
  return stats;
}

std::vector<OpenCall> Rpc::open_calls() const {
  std::vector<OpenCall> calls;
  state_->outgoing.describe(calls);
  state_->incoming.describe(calls);
  std::stable_sort(calls.begin(), calls.end(), [](const OpenCall& a, const OpenCall& b) { return a.age > b.age; });
  return calls;
}

}  // namespace distag
