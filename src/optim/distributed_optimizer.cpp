#include "optim/distributed_optimizer.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/executor.h"
#include "base/future_deadline.h"
#include "base/mutex.h"
#include "base/not_started.h"
#include "base/wait_or_cancel.h"
#include "group/shared.h"
#include "optim/norm.h"
#include "optim/operation.h"
#include "optim/round.h"
#include "optim/saved_state.h"
#include "optim/sharded_clip.h"

namespace distag::optim {
namespace {

const Value& need(const Value& answer, const char* key) {
  const Value* found = answer.find(key);
  if (found == nullptr) fail(Status::kProtocol, "an owner of parameters answered without \"{}\"", key);
  return *found;
}

// A round that misses its deadline may still be applied.
Error late(Nanos timeout) {
  const double seconds = static_cast<double>(timeout) / static_cast<double>(kSecond);
  return Error(Status::kDeadline, fmt::format("not done within {:g} s", seconds)).set_may_have_run(true);
}

const Value& await(const std::shared_ptr<Future<Value>>& future) {
  wait_or_cancel(*future);
  return future->value();
}

std::shared_ptr<Future<Value>> failed(Error error) {
  auto future = Future<Value>::make();
  future->fail(std::move(error));
  return future;
}

}  // namespace

struct DistributedOptimizer::State : std::enable_shared_from_this<State> {
  struct Owner {
    std::string name;  // "": this worker
    OwnerGroup group;
    std::atomic<bool> was_asked{false};
    std::atomic<bool> knows_optimizer{false};
  };
  struct Measured;
  using Refine = std::function<void(Request& request, size_t owner)>;

  State(std::shared_ptr<Optim::Shared> given, const Rule& rule, size_t count)
      : shared(std::move(given)), parameter_count(count), settings(rule) {}

  const std::shared_ptr<Optim::Shared> shared;
  const size_t parameter_count;
  uint64_t counter = 0;
  std::deque<Owner> owners;
  mutable Mutex mutex;
  Settings settings GUARDED_BY(mutex);
  std::vector<int32_t> stepped GUARDED_BY(mutex);

  Settings current_settings() const {
    MutexLock lock(mutex);
    return settings;
  }
  Peer self() const {
    MutexLock lock(shared->mutex);
    return shared->self;
  }
  Request make_request(Verb verb, const Owner& owner) const {
    return {verb, {owner.name.empty() ? 0 : self().incarnation, counter}, current_settings()};
  }

  // The parameters that were given as tensors of this worker.
  Tensors tensors_here() const {
    Tensors tensors;
    for (const Owner& owner : owners) {
      for (const Value& parameter : owner.group.parameters) {
        if (parameter.kind() == ValueKind::kTensor) tensors.push_back(parameter.as_tensor());
      }
    }
    return tensors;
  }

  void forget() noexcept;
  OwnerName describe(const Owner& owner) const;
  void check_context(Context& context) const;
  std::shared_ptr<Future<Value>> ask(Owner& owner, Request request, const std::shared_ptr<Context>& context,
                                     const OptimizerCall& call);
  std::shared_ptr<Future<Value>> ask_here(Request request, const std::shared_ptr<Context>& context,
                                          const OptimizerCall& call);
  std::shared_ptr<Round> ask_all(Verb verb, const std::shared_ptr<Context>& context, const OptimizerCall& call,
                                 const Refine& refine = {});
  // Sends the second round of a clip.
  void scale(Operation& clip, const Measured& measured, double max_norm, const std::shared_ptr<Context>& context,
             const OptimizerCall& call);
  // Joins the answers to a save into one value.
  Value join(Settings saved, const Round& round) const;
  // Called once a round is done. An owner that applied it knows the parameters, which are not sent again unless the
  // owner loses its state.
  void note(const Round& round) {
    for (size_t i = 0; i < owners.size(); ++i) owners[i].knows_optimizer = round.outcome(i) == Round::Outcome::kApplied;
  }
  void note_step(const Round& round) {
    note(round);
    MutexLock lock(mutex);
    stepped = round.applied_ranks();
  }
  void trace_step(Nanos begun, const Round& round) const;
};

void DistributedOptimizer::State::trace_step(Nanos begun, const Round& round) const {
  Trace& trace = shared->group.shared()->trace;
  if (!trace.is_on()) return;
  TraceEvent event;
  event.kind = TraceEvent::Kind::kSpan;
  event.category = TraceCategory::kOptimizer;
  event.begin = begun;
  event.end = SteadyClock().now();
  event.id = trace.next_span();
  for (size_t i = 0; i < owners.size(); ++i) {
    if (round.outcome(i) != Round::Outcome::kApplied) event.status = Status::kRemote;
  }
  trace.add(event, "step");
}

// Owners that get no message, for lack of memory, release the optimizer when this worker is gone.
void DistributedOptimizer::State::forget() noexcept {
  for (Owner& owner : owners) {
    if (!owner.was_asked) continue;
    owner.knows_optimizer = true;  // keeps the parameters out of the request
    try {
      ask(owner, make_request(Verb::kForget, owner), nullptr, {});
    } catch (...) {
      return;
    }
  }
}

OwnerName DistributedOptimizer::State::describe(const Owner& owner) const {
  const Peer here = self();
  if (owner.name.empty()) return {here.name, here.rank};
  const auto peer = shared->group.membership().peer_named(owner.name);
  return {owner.name, peer == nullptr ? -1 : peer->rank};
}

void DistributedOptimizer::State::check_context(Context& context) const {
  if (shared->dautograd.is_mine(context)) return;
  const bool is_here = std::all_of(owners.begin(), owners.end(), [](const Owner& owner) { return owner.name.empty(); });
  if (is_here && !context.global_id()) return;
  fail(Status::kInvalidArgument, "optimizer: the context {:#x} is not one of this worker", context.id());
}

std::shared_ptr<Future<Value>> DistributedOptimizer::State::ask_here(Request request,
                                                                     const std::shared_ptr<Context>& context,
                                                                     const OptimizerCall& call) {
  auto future = Future<Value>::make();
  shared->compute.post_or_drop([owner = shared->owner, context, request = std::make_unique<Request>(std::move(request)),
                                responder = std::make_unique<Responder>(future, call.within)] {
    owner->handle(std::move(*request), "", context, std::move(*responder));
  });
  if (call.timeout > 0) {
    set_deadline(shared->loop, future, deadline_after(shared->loop.now(), call.timeout),
                 [timeout = call.timeout] { return late(timeout); });
  }
  return future;
}

std::shared_ptr<Future<Value>> DistributedOptimizer::State::ask(Owner& owner, Request request,
                                                                const std::shared_ptr<Context>& context,
                                                                const OptimizerCall& call) {
  owner.was_asked = true;
  if (!owner.knows_optimizer) request.parameters = owner.group.parameters;
  if (owner.name.empty()) return ask_here(std::move(request), context, call);
  try {
    return shared->rpc.call({.context = context == nullptr ? Id{} : context->global_id(),
                             .to = owner.name,
                             .function = function_name(request.verb),
                             .args = request.encode(),
                             .timeout = call.timeout,
                             .within = call.within,
                             .label = call.label,
                             .trace_parent = call.trace_parent,
                             .has_time = true});
  } catch (...) {
    return failed(current_error());
  }
}

std::shared_ptr<Round> DistributedOptimizer::State::ask_all(Verb verb, const std::shared_ptr<Context>& context,
                                                            const OptimizerCall& call, const Refine& refine) {
  if (self().incarnation == 0) fail(Status::kInvalidState, "optimizer: {}", kNotStarted);
  std::vector<OwnerName> names;
  std::vector<std::shared_ptr<Future<Value>>> futures;
  for (size_t i = 0; i < owners.size(); ++i) {
    Request request = make_request(verb, owners[i]);
    if (refine) refine(request, i);
    names.push_back(describe(owners[i]));
    futures.push_back(ask(owners[i], std::move(request), context, call));
  }
  auto round = std::make_shared<Round>(std::move(names), std::move(futures));
  round->begin();
  return round;
}

DistributedOptimizer::DistributedOptimizer(std::shared_ptr<Optim::Shared> shared, const Rule& rule,
                                           size_t parameter_count, std::map<std::string, OwnerGroup> groups)
    : state_(std::make_shared<State>(std::move(shared), rule, parameter_count)) {
  {
    MutexLock lock(state_->shared->mutex);
    state_->counter = ++state_->shared->optimizers;
  }
  for (auto& [name, group] : groups) {
    State::Owner& owner = state_->owners.emplace_back();
    owner.name = name;
    owner.group = std::move(group);
  }
}

DistributedOptimizer::~DistributedOptimizer() { state_->forget(); }

void DistributedOptimizer::set(const std::string& setting, double value) {
  MutexLock lock(state_->mutex);
  state_->settings.set(setting, value);
}

void DistributedOptimizer::step(const std::shared_ptr<Context>& context, const OptimizerCall& call) {
  check_can_wait();
  await(step_async(context, call));
}

std::shared_ptr<Future<Value>> DistributedOptimizer::step_async(const std::shared_ptr<Context>& context,
                                                                const OptimizerCall& call) {
  state_->check_context(*context);
  const auto operation = std::make_shared<Operation>();
  const Nanos begun = SteadyClock().now();
  operation->after(state_->ask_all(Verb::kStep, context, call),
                   [state = state_, begun](Operation& step, const Round& round) {
                     state->note_step(round);
                     state->trace_step(begun, round);
                     round.check("step");
                     step.complete(Value());
                   });
  return operation->future();
}

std::vector<int32_t> DistributedOptimizer::stepped_ranks() const {
  MutexLock lock(state_->mutex);
  return state_->stepped;
}

// The norm over all owners, and the number of passes that the gradients of each owner cover.
struct DistributedOptimizer::State::Measured {
  Measured(const State& state, const Round& round) {
    SquareSum squares;
    for (size_t i = 0; i < state.owners.size(); ++i) {
      const double square = need(round.answer(i), "square").as_float64();
      const Value* scaled = round.answer(i).find("scaled_square");
      squares += scaled == nullptr ? SquareSum(square) : SquareSum(square, scaled->as_float64());
      passes.push_back(static_cast<uint64_t>(need(round.answer(i), "passes").as_int64()));
    }
    norm = squares.root();
  }

  double norm = 0.0;
  std::vector<uint64_t> passes;
};

double DistributedOptimizer::clip(const std::shared_ptr<Context>& context, double max_norm, const OptimizerCall& call) {
  check_can_wait();
  const Tensors here = state_->tensors_here();
  if (has_sharded(here)) {
    state_->check_context(*context);
    if (here.size() != state_->parameter_count) {
      fail(Status::kInvalidArgument,
           "clip: {} of {} parameters are references, and others are sharded: clip them apart",
           state_->parameter_count - here.size(), state_->parameter_count);
    }
    return clip_sharded(here, *context, max_norm, call.timeout);
  }
  return await(clip_async(context, max_norm, call)).as_float64();
}

// Two rounds: the first returns how many passes each owner's gradients cover, the second applies only to gradients of
// as many passes.
std::shared_ptr<Future<Value>> DistributedOptimizer::clip_async(const std::shared_ptr<Context>& context,
                                                                double max_norm, const OptimizerCall& call) {
  clip_factor(0.0, max_norm);
  if (has_sharded(state_->tensors_here())) {
    fail(Status::kUnsupported,
         "clip_async: of sharded parameters clip takes all members at once: use the call that waits");
  }
  state_->check_context(*context);
  const auto operation = std::make_shared<Operation>();
  operation->after(state_->ask_all(Verb::kMeasure, context, call),
                   [state = state_, context, max_norm, call](Operation& clip, const Round& round) {
                     state->note(round);
                     round.check("clip");
                     state->scale(clip, State::Measured(*state, round), max_norm, context, call);
                   });
  return operation->future();
}

void DistributedOptimizer::State::scale(Operation& clip, const Measured& measured, double max_norm,
                                        const std::shared_ptr<Context>& context, const OptimizerCall& call) {
  const double factor = clip_factor(measured.norm, max_norm);
  if (factor == 1.0) return clip.complete(Value(measured.norm));
  const auto round = ask_all(Verb::kScale, context, call, [&measured, factor](Request& request, size_t owner) {
    request.factor = factor;
    request.passes = measured.passes[owner];
  });
  clip.after(round, [state = shared_from_this(), norm = measured.norm](Operation& ended, const Round& scaled) {
    state->note(scaled);
    scaled.check("clip");
    ended.complete(Value(norm));
  });
}

Value DistributedOptimizer::save(const OptimizerCall& call) {
  check_can_wait();
  return await(save_async(call));
}

std::shared_ptr<Future<Value>> DistributedOptimizer::save_async(const OptimizerCall& call) {
  const auto operation = std::make_shared<Operation>();
  operation->after(state_->ask_all(Verb::kSave, nullptr, call), [state = state_, settings = state_->current_settings()](
                                                                    Operation& save, const Round& round) mutable {
    state->note(round);
    round.check("save");
    save.complete(state->join(std::move(settings), round));
  });
  return operation->future();
}

Value DistributedOptimizer::State::join(Settings saved, const Round& round) const {
  SavedState state{std::move(saved), Value::List(parameter_count)};
  for (size_t i = 0; i < owners.size(); ++i) {
    const std::vector<size_t>& places = owners[i].group.places;
    const Value::List& kept = round.answer(i).as_list();
    if (kept.size() != places.size()) fail(Status::kProtocol, "save: an owner answered for {} parameters", kept.size());
    for (size_t p = 0; p < places.size(); ++p) state.parameters[places[p]] = kept[p];
  }
  return state.write();
}

void DistributedOptimizer::load(const Value& saved, const OptimizerCall& call) {
  check_can_wait();
  await(load_async(saved, call));
}

std::shared_ptr<Future<Value>> DistributedOptimizer::load_async(const Value& saved, const OptimizerCall& call) {
  SavedState given = SavedState::read(saved, state_->current_settings().rule(), state_->parameter_count);
  const auto round = state_->ask_all(Verb::kLoad, nullptr, call, [this, &given](Request& request, size_t owner) {
    Value::List kept;
    for (const size_t place : state_->owners[owner].group.places) kept.push_back(given.parameters[place]);
    request.state = Value::list(std::move(kept));
  });
  const auto operation = std::make_shared<Operation>();
  operation->after(
      round, [state = state_, settings = std::move(given.settings)](Operation& load, const Round& loaded) mutable {
        state->note(loaded);
        loaded.check("load");
        {
          MutexLock lock(state->mutex);
          state->settings = std::move(settings);
        }
        load.complete(Value());
      });
  return operation->future();
}

}  // namespace distag::optim
