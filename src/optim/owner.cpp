#include "optim/owner.h"

#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "optim/norm.h"

namespace distag::optim {
namespace {

constexpr size_t kMaxOptimizers = 65536;

bool needs_context(Verb verb) { return verb == Verb::kStep || verb == Verb::kMeasure || verb == Verb::kScale; }

// Groups the states of tensors into a list per parameter; flattened() does the reverse.
Value grouped(const Value& states, const std::vector<size_t>& sizes) {
  const Value::List& items = states.as_list();
  Value::List groups;
  size_t next = 0;
  for (const size_t size : sizes) {
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(next);
    groups.push_back(Value::list({begin, begin + static_cast<std::ptrdiff_t>(size)}));
    next += size;
  }
  return Value::list(std::move(groups));
}

Value flattened(const Value& groups, const std::vector<size_t>& sizes) {
  const Value::List& items = groups.as_list();
  if (items.size() != sizes.size()) {
    fail(Status::kInvalidArgument, "load: the state is of {} parameters, not {}", items.size(), sizes.size());
  }
  Value::List states;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value::List& tensors = items[i].as_list();
    if (tensors.size() != sizes[i]) {
      fail(Status::kInvalidArgument, "load: a parameter of the state has {} tensors, the one here {}", tensors.size(),
           sizes[i]);
    }
    states.insert(states.end(), tensors.begin(), tensors.end());
  }
  return Value::list(std::move(states));
}

}  // namespace

void OptimizerOwner::handle(Request request, const std::string& asker, const std::shared_ptr<Context>& context,
                            Responder responder) {
  try {
    if (request.verb == Verb::kForget) {
      forget(request, asker);
      responder.finish(Value());
      return;
    }
    enqueue(request, asker, context, responder);
  } catch (...) {
    responder.refuse(current_error());
  }
}

// Takes the request and the responder only after everything that may fail.
void OptimizerOwner::enqueue(Request& request, const std::string& asker, const std::shared_ptr<Context>& context,
                             Responder& responder) {
  if (needs_context(request.verb) && context == nullptr) {
    fail(Status::kInvalidArgument, "{} was called without a context", function_name(request.verb));
  }
  std::shared_ptr<Owned> owned = find(request, asker);
  std::shared_ptr<const Gradients> gradients;
  if (request.verb == Verb::kStep || request.verb == Verb::kMeasure) gradients = context->gradients();
  queue_->post_or_drop([owned = std::move(owned), context, gradients = std::move(gradients),
                        request = std::make_unique<Request>(std::move(request)),
                        responder = std::make_unique<Responder>(std::move(responder))] {
    if (responder->is_cancelled()) {
      responder->refuse(Error(Status::kCancelled, "cancelled in the queue"));
      return;
    }
    try {
      responder->finish(answer(*owned, *request, context.get(), gradients.get()));
    } catch (...) {
      responder->refuse(current_error());
    }
  });
}

void OptimizerOwner::forget(const Request& request, const std::string& asker) {
  std::shared_ptr<Owned> gone;
  MutexLock lock(mutex_);
  const auto found = owned_.find(request.optimizer);
  if (found == owned_.end() || found->second->asker != asker) return;
  gone = std::move(found->second);
  owned_.erase(found);
}

std::shared_ptr<OptimizerOwner::Owned> OptimizerOwner::find(const Request& request, const std::string& asker) {
  {
    MutexLock lock(mutex_);
    const auto found = owned_.find(request.optimizer);
    if (found != owned_.end() && found->second->asker == asker && &found->second->rule == &request.settings.rule()) {
      return found->second;
    }
    if (found != owned_.end() || request.parameters.empty()) {
      fail(Status::kPeerRestarted, "the optimizer and what was kept of its parameters here are gone");
    }
    if (owned_.size() >= kMaxOptimizers) {
      fail(Status::kOverloaded, "{} optimizers have parameters here: release some", owned_.size());
    }
  }
  std::shared_ptr<Owned> fresh = make(request, asker);
  MutexLock lock(mutex_);
  return owned_.try_emplace(request.optimizer, std::move(fresh)).first->second;
}

std::shared_ptr<OptimizerOwner::Owned> OptimizerOwner::make(const Request& request, const std::string& asker) {
  Tensors tensors;
  std::vector<size_t> sizes;
  for (const Value& parameter : request.parameters) {
    Value value = parameter;
    if (value.kind() != ValueKind::kTensor) {
      if (places_ == nullptr)
        fail(Status::kInvalidArgument, "a parameter is a tensor, not {}", kind_name(value.kind()));
      value = places_->resolve(parameter);
    }
    if (value.kind() == ValueKind::kTensor) {
      tensors.push_back(value.as_tensor());
      sizes.push_back(1);
      continue;
    }
    if (value.kind() != ValueKind::kList) {
      fail(Status::kInvalidArgument, "a parameter refers to {}, not to a tensor or a list of tensors",
           kind_name(value.kind()));
    }
    for (const Value& item : value.as_list()) tensors.push_back(item.as_tensor());
    sizes.push_back(value.as_list().size());
  }
  return std::make_shared<Owned>(Owned{asker, request.settings.rule(),
                                       LocalOptimizer(request.settings.rule(), std::move(tensors), part_of_),
                                       std::move(sizes)});
}

Value OptimizerOwner::answer(Owned& owned, const Request& request, Context* context, const Gradients* gradients) {
  switch (request.verb) {
    case Verb::kStep:
      owned.local.settings() = request.settings;
      owned.local.step(*gradients);
      return Value();
    case Verb::kMeasure: {
      const SquareSum squares = square_sum(owned.local, *gradients);
      return Value::map({{"square", Value(squares.sum)},
                         {"scaled_square", Value(squares.scaled)},
                         {"passes", Value(static_cast<int64_t>(gradients->passes))}});
    }
    case Verb::kScale:
      context->scale_gradients(owned.local.ids(), request.factor, request.passes);
      return Value();
    case Verb::kSave:
      return grouped(owned.local.save(), owned.sizes);
    case Verb::kLoad:
      owned.local.load(flattened(request.state, owned.sizes));
      return Value();
    case Verb::kForget:
      break;
  }
  return Value();
}

void OptimizerOwner::forget_maker(Incarnation maker) {
  std::vector<std::shared_ptr<Owned>> gone;
  {
    MutexLock lock(mutex_);
    for (auto it = owned_.lower_bound({maker, 0}); it != owned_.end() && it->first.maker == maker;) {
      gone.push_back(std::move(it->second));
      it = owned_.erase(it);
    }
  }
  // Freed on the queue, as freeing large memory takes long.
  if (!gone.empty()) queue_->post_or_drop([gone = std::move(gone)] {});
}

size_t OptimizerOwner::count() const {
  MutexLock lock(mutex_);
  return owned_.size();
}

}  // namespace distag::optim
