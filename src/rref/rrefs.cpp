#include "rref/rrefs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/each_step.h"
#include "base/error.h"
#include "base/violation.h"
#include "rref/sharing.h"
#include "tensor/access.h"
#include "tensor/deferred.h"
#include "tensor/shape_only.h"
#include "wire/arrived_reference.h"

namespace distag {
namespace {

constexpr const char* kFetch = "distag.fetch";

// Holds the value if it can be sent at once: no other thread writes to it now, and nothing has to be copied.
bool hold_to_leave(Value& value) {
  bool is_row_major = true;
  value.for_each_tensor([&is_row_major](const Tensor& tensor) { is_row_major &= tensor.is_contiguous(); });
  Values held{value};
  if (!is_row_major || !try_hold(held)) return false;
  value = std::move(held.front());
  return true;
}

// Answers with the value that a user fetches. On the loop of the owner, once the value is made.
void answer_fetch(Invocation& invocation, Executor& compute) {
  const std::shared_ptr<Rref> reference = invocation.args().empty() ? nullptr : as_rref(invocation.args().front());
  if (reference == nullptr || !reference->is_owner()) {
    fail(Status::kInvalidArgument, "{} was called without a reference of this worker", kFetch);
  }
  Value value = reference->owned()->value();
  if (value.kind() == ValueKind::kObject) {
    fail(Status::kUnsupported,
         "the value is an object of type \"{}\", which stays with its owner: call a function there with the reference",
         value.as_object()->type);
  }
  value.for_each_tensor([](const Tensor& tensor) {
    const ShardSlot* slot = tensor ? tensor.shard_slot() : nullptr;
    if (slot == nullptr) return;
    check_not_shape_only(tensor);
    fail(Status::kUnsupported,
         "the value is {}, sharded as {}, which stays with its owner: call a function there that gives its own part "
         "(to_local) or the whole (gather)",
         describe(tensor), slot->describe());
  });
  if (hold_to_leave(value)) {
    invocation.set_result(std::move(value));
    return;
  }
  compute.post_or_drop([reply = invocation.defer(), value = std::move(value)] {
    try {
      reply->finish(value);
    } catch (...) {
      reply->fail(current_error());
    }
  });
}

// A fetch at the owner, which its error names by the call that makes the value.
struct FetchHere {
  explicit FetchHere(std::shared_ptr<OwnedValue> fetched) : owned(std::move(fetched)) {
    future.set_operation(
        [](const void* subject) {
          const auto& value = *static_cast<const OwnedValue*>(subject);
          const std::string origin = value.origin();
          if (origin.empty()) return fmt::format("rref_fetch of value {:#x}", number_of(value.id()));
          return "rref_fetch of the value of " + origin;
        },
        owned.get());
  }

  const std::shared_ptr<OwnedValue> owned;
  Future<Value> future;
};

// The future completes with the value's outcome, or with DEADLINE. Its completion cancels the timer.
std::shared_ptr<Future<Value>> await_outcome(Loop& loop, const std::shared_ptr<RrefHome>& home,
                                             const std::shared_ptr<OwnedValue>& owned, Nanos timeout) {
  const auto fetch = std::make_shared<FetchHere>(owned);
  const std::shared_ptr<Future<Value>> awaited(fetch, &fetch->future);
  auto pass_on = [owned, weak = std::weak_ptr(awaited)] {
    const auto waiting = weak.lock();
    if (waiting == nullptr) return;
    try {
      waiting->complete(owned->value());
    } catch (...) {
      waiting->fail(current_error());
    }
  };
  const Nanos deadline = deadline_after(loop.now(), timeout);
  if (!owned->outcome().is_done() && deadline != kNever) {
    home->gate.run([&loop, home, awaited, deadline] {
      const Loop::TimerId timer = loop.start_timer(deadline, [weak = std::weak_ptr(awaited)] {
        const auto waiting = weak.lock();
        if (waiting == nullptr) return;
        EachStep each;  // without memory for the text it still ends
        each([&waiting] { waiting->fail(Error(Status::kDeadline, "the value was not made before the deadline")); });
        if (each.has_failed()) each([&waiting] { waiting->fail(Error(Status::kDeadline, "too late")); });
      });
      awaited->on_done([&loop, home, timer] { home->gate.run([&loop, timer] { loop.cancel_timer(timer); }); });
    });
  }
  owned->outcome().on_done(std::move(pass_on));
  return awaited;
}

// Runs `then` after `left` calls of end(). On the loop.
struct Countdown {
  size_t left = 1;
  UniqueFunction<void()> then;

  void end() {
    if (--left == 0) std::exchange(then, nullptr)();
  }
};

// Collects all references of this worker in a value.
void collect_owned(const Value& value, std::vector<std::shared_ptr<Rref>>& found) {
  value.map_external([&found](const std::shared_ptr<ExternalValue>& external) {
    auto reference = std::dynamic_pointer_cast<Rref>(external);
    if (reference != nullptr && reference->is_owner()) found.push_back(std::move(reference));
    return external;
  });
}

}  // namespace

struct Rrefs::State final : Sharing::Streams {
  State(Environment given, Group& members, Rpc& calls)
      : environment(given),
        group(members),
        rpc(calls),
        home(std::make_shared<RrefHome>(given.loop, given.log)),
        own_maker(given.random.next()),
        sharing(home, *this, own_maker) {
    home->sharing = &sharing;
  }

  // Sharing::Streams
  void send(const Peer& to, wire::Body body, Task on_acknowledged) override {
    group.send(to, std::move(body), std::move(on_acknowledged));
  }
  std::shared_ptr<const Peer> find(Incarnation worker) const override { return group.find_peer(worker); }
  bool is_gone(Incarnation worker) const override { return group.is_gone(worker); }
  std::string name_of_rank(int32_t rank) const override {
    const auto member = group.membership().find_by_rank(rank);
    return member ? member->peer.name : "";
  }

  const Environment environment;
  Group& group;
  Rpc& rpc;
  const std::shared_ptr<RrefHome> home;
  const uint64_t own_maker;
  std::atomic<uint64_t> last_own{0};
  std::atomic<uint64_t> last_creation{0};  // makes odd numbers: see Sharing
  std::atomic<Incarnation> self{0};
  Sharing sharing;
};

Rrefs::Rrefs(Environment environment, Group& group, Rpc& rpc)
    : state_(std::make_shared<State>(environment, group, rpc)) {
  rpc.register_internal(kFetch, [&compute = environment.compute](Invocation& call) { answer_fetch(call, compute); });
}

Rrefs::~Rrefs() {
  state_->home->gate.close();
  // Needed if stop() has not run: values that are still being made will not be made any more.
  end_values();
}

void Rrefs::end_values() {
  state_->home->table.visit([](OwnedValue& owned) {
    EachStep each;
    each([&owned] { fail_dropped(owned.outcome()); });
  });
}

void Rrefs::set_host(std::shared_ptr<void> host) { state_->home->host = std::move(host); }

void Rrefs::begin(const Peer& self) {
  assert_on_loop(state_->environment.loop);
  state_->self.store(self.incarnation);
  state_->sharing.begin(self);
}

void Rrefs::stop() {
  assert_on_loop(state_->environment.loop);
  EachStep each;
  each([this] { state_->sharing.stop(); });
  end_values();
  each.check();
}

// ---- what users ask for ----

std::shared_ptr<Rref> Rrefs::create(Value value) {
  check(value);
  make_elements(value);
  const auto owned = state_->home->make_value({state_->own_maker, ++state_->last_own});
  owned->outcome().complete(std::move(value));
  return std::make_shared<Rref>(state_->home, owned);
}

std::shared_ptr<Rref> Rrefs::remote(CallRequest request) {
  std::shared_ptr<Rref> made;
  request.keep_as = [state = state_.get(), &made](const std::shared_ptr<const Peer>& callee) {
    const Incarnation self = state->self.load();
    const Id id{self, 2 * ++state->last_creation - 1};
    made = callee->incarnation == self ? std::make_shared<Rref>(state->home, state->home->make_value(id))
                                       : std::make_shared<Rref>(state->home, id, callee, id);
    return made;
  };
  state_->rpc.call(std::move(request));
  return made;
}

std::shared_ptr<Future<Value>> Rrefs::fetch(const std::shared_ptr<Rref>& reference, FetchOptions options) {
  check(Value(std::shared_ptr<ExternalValue>(reference)));
  if (reference->is_owner()) {
    Nanos timeout = options.timeout == 0 ? state_->environment.call_timeout : options.timeout;
    if (options.within && (timeout == kForever || options.within->time_left() < timeout)) {
      if (options.within->time_left() != kForever) timeout = options.within->time_left();
    }
    return await_outcome(state_->environment.loop, state_->home, reference->owned(), timeout);
  }
  CallRequest request;
  request.context = options.context;
  request.to = reference->owner_peer()->name;
  request.to_incarnation = reference->owner;
  request.function = kFetch;
  request.args = {Value(std::shared_ptr<ExternalValue>(reference))};
  request.timeout = options.timeout;
  request.within = std::move(options.within);
  request.label = std::move(options.label);
  request.trace_parent = std::move(options.trace_parent);
  request.has_time = options.has_time;
  return state_->rpc.call(std::move(request));
}

// ---- messages, losses, counts ----

Heard Rrefs::handle(const Peer& from, const wire::Message& message) {
  assert_on_loop(state_->environment.loop);
  const Heard heard = state_->sharing.handle(from, message.body);
  state_->group.count_received(from);  // once, even if the message comes again after a shortage of memory
  return heard;
}

void Rrefs::on_gone(const Peer& peer) {
  assert_on_loop(state_->environment.loop);
  state_->sharing.on_gone(peer);
}

bool Rrefs::is_idle() const {
  assert_on_loop(state_->environment.loop);
  return state_->sharing.is_idle();
}

RrefStats Rrefs::stats() const {
  RrefStats stats;
  stats.owned = state_->home->table.count();
  stats.used = state_->home->used.load(std::memory_order_relaxed);
  stats.forks = state_->home->forks.load(std::memory_order_relaxed);
  return stats;
}

std::vector<OwnedValueInfo> Rrefs::owned_values() const {
  assert_on_loop(state_->environment.loop);
  std::map<Id, OwnedValueInfo> infos;
  for (const auto& value : state_->home->table.all()) {
    const Future<Value>& outcome = value->outcome();
    const char* state = !outcome.is_done() ? "making" : outcome.error() == nullptr ? "made" : "failed";
    infos.emplace(value->id(), OwnedValueInfo{number_of(value->id()), value->origin(), state, {}});
  }
  for (const auto& [value, holder] : state_->sharing.forks()) {
    const auto peer = state_->group.find_peer(holder);
    const auto found = infos.find(value->id());
    if (peer != nullptr && found != infos.end()) found->second.holders.push_back(peer->name);
  }
  std::vector<OwnedValueInfo> listed;
  for (auto& [id, info] : infos) {
    std::sort(info.holders.begin(), info.holders.end());
    listed.push_back(std::move(info));
  }
  return listed;
}

std::vector<std::string> Rrefs::leaks() const {
  assert_on_loop(state_->environment.loop);
  std::vector<std::string> lines;
  for (const auto& [value, holder] : state_->sharing.forks()) {
    const auto peer = state_->group.find_peer(holder);
    lines.push_back(fmt::format("worker \"{}\" holds a reference to a value {}", peer == nullptr ? "" : peer->name,
                                value->origin().empty() ? "that was shared" : "made by " + value->origin()));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

// ---- what calls need ----

void Rrefs::check(const Value& value) const {
  value.map_external([this](const std::shared_ptr<ExternalValue>& external) {
    const auto reference = std::dynamic_pointer_cast<Rref>(external);
    if (reference == nullptr || !reference->is_of(state_->home)) {
      fail(Status::kInvalidArgument, "the reference is one of another worker of this process: pass it in a call");
    }
    return external;
  });
}

void Rrefs::check_made(const Peer& to, const Value& value) const {
  assert_on_loop(state_->environment.loop);
  value.map_external([this, &to](const std::shared_ptr<ExternalValue>& external) {
    auto& reference = static_cast<Rref&>(*external);
    // The owner would look for a value that was never made. Any other worker gets the reference, and a failure when it
    // uses the value.
    if (to.incarnation == reference.owner) {
      if (const auto failure = reference.failure()) throw *failure;
    }
    state_->sharing.check_room(to, reference);
    return external;
  });
}

Values Rrefs::on_send(const Peer& to, const Values& values) {
  assert_on_loop(state_->environment.loop);
  Sharing& sharing = state_->sharing;
  const uint64_t mark = sharing.mark();
  try {
    Values travelling;
    travelling.reserve(values.size());
    for (const Value& value : values) {
      travelling.push_back(value.map_external([&sharing, &to](const std::shared_ptr<ExternalValue>& external) {
        return sharing.on_send(to, std::static_pointer_cast<Rref>(external));
      }));
    }
    return travelling;
  } catch (...) {
    sharing.take_back(mark);
    throw;
  }
}

// Each reference is received once, even if its message comes here again after a shortage of memory.
Value Rrefs::on_receive(const Peer& from, const Value& value) {
  assert_on_loop(state_->environment.loop);
  return value.map_external([this, &from](const std::shared_ptr<ExternalValue>& external) {
    if (dynamic_cast<const Rref*>(external.get()) != nullptr) return external;
    auto& reference = static_cast<wire::ArrivedReference&>(*external);
    if (reference.received == nullptr) reference.received = state_->sharing.on_receive(from, reference);
    return reference.received;
  });
}

void Rrefs::on_creation_queued(const wire::Reference& kept) {
  assert_on_loop(state_->environment.loop);
  state_->sharing.on_creation_queued(kept.value);
}

void Rrefs::on_creation_numbered(const wire::Reference& kept) {
  assert_on_loop(state_->environment.loop);
  state_->sharing.on_creation_numbered(kept.value);
}

void Rrefs::on_creation_acknowledged(wire::Reference& kept) {
  assert_on_loop(state_->environment.loop);
  static_cast<Rref&>(kept).confirm();
}

void Rrefs::on_creation_failed(wire::Reference& kept, const Peer& callee, const Error& error) {
  assert_on_loop(state_->environment.loop);
  auto& reference = static_cast<Rref&>(kept);
  EachStep each;
  each([&reference, &error] {
    if (reference.is_owner()) {
      reference.owned()->outcome().fail(error);
    } else {
      reference.fail(error);
    }
  });
  if (each.has_failed() && reference.is_owner()) fail_dropped(reference.owned()->outcome());
  if (each.has_failed() && !reference.is_owner()) reference.fail(Error(Status::kOutOfMemory, "no memory"));
  each([this, &callee, &kept] { state_->sharing.on_creation_failed(callee, kept.value); });
  each.check();
}

std::shared_ptr<Future<Value>> Rrefs::on_creation(const Peer& from, const Id& id, const std::string& call) {
  assert_on_loop(state_->environment.loop);
  std::shared_ptr<OwnedValue> owned = state_->sharing.on_creation(from, id, call);
  return {owned, &owned->outcome()};
}

void Rrefs::when_ready(const Values& args, UniqueFunction<void(const Error*)> ready) {
  assert_on_loop(state_->environment.loop);
  std::vector<std::shared_ptr<Rref>> all;
  for (const Value& arg : args) collect_owned(arg, all);
  std::vector<std::shared_ptr<Rref>> direct;
  for (const Value& arg : args) {
    if (auto reference = as_rref(arg); reference && reference->is_owner()) direct.push_back(std::move(reference));
  }
  auto countdown = std::make_shared<Countdown>();
  countdown->then = [direct = std::move(direct), ready = std::move(ready)]() mutable {
    try {
      for (const auto& reference : direct) reference->owned()->value();
    } catch (...) {
      const Error error = current_error();
      ready(&error);
      return;
    }
    ready(nullptr);
  };
  for (const auto& reference : all) {
    if (reference->owned()->outcome().is_done()) continue;
    ++countdown->left;
    reference->owned()->outcome().on_done(
        [home = state_->home, countdown] { home->gate.run([countdown] { countdown->end(); }); });
  }
  countdown->end();
}

Values Rrefs::resolve(const Values& args) const {
  Values resolved = args;
  for (Value& arg : resolved) {
    const auto reference = as_rref(arg);
    if (reference && reference->is_owner()) arg = reference->owned()->value();
  }
  return resolved;
}

}  // namespace distag
