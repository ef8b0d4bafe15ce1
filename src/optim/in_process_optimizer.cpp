#include "base/error.h"
#include "base/mutex.h"
#include "optim/local_optimizer.h"
#include "optim/norm.h"
#include "optim/optimizer.h"
#include "optim/saved_state.h"
#include "optim/sharded_clip.h"

namespace distag::optim {
namespace {

void check_call(const OptimizerCall& call) {
  if (call.within != nullptr && call.within->is_cancelled()) {
    fail(Status::kCancelled, "the call that this one belongs to is over");
  }
}

[[noreturn]] void refuse_async() {
  fail(Status::kUnsupported, "the optimizer has no worker, so there is no thread to run it: use the call that waits");
}

class InProcessOptimizer final : public Optimizer {
 public:
  InProcessOptimizer(const Rule& rule, Tensors parameters, PartOfState part_of)
      : local_(rule, std::move(parameters), part_of) {}

  void set(const std::string& setting, double value) override {
    MutexLock lock(mutex_);
    local_.settings().set(setting, value);
  }

  void step(const std::shared_ptr<Context>& context, const OptimizerCall& call) override {
    check_call(call);
    const auto gradients = context->gradients();
    MutexLock lock(mutex_);
    has_stepped_ = false;
    local_.step(*gradients);
    has_stepped_ = true;
  }

  std::shared_ptr<Future<Value>> step_async(const std::shared_ptr<Context>&, const OptimizerCall&) override {
    refuse_async();
  }

  std::vector<int32_t> stepped_ranks() const override {
    MutexLock lock(mutex_);
    return has_stepped_ ? std::vector<int32_t>{-1} : std::vector<int32_t>{};
  }

  double clip(const std::shared_ptr<Context>& context, double max_norm, const OptimizerCall& call) override {
    check_call(call);
    if (has_sharded(local_.parameters())) {
      return clip_sharded(local_.parameters(), *context, max_norm, call.timeout);
    }
    clip_factor(0.0, max_norm);
    const auto gradients = context->gradients();
    const double norm = square_sum(local_, *gradients).root();
    const double factor = clip_factor(norm, max_norm);
    if (factor != 1.0) context->scale_gradients(local_.ids(), factor, gradients->passes);
    return norm;
  }

  std::shared_ptr<Future<Value>> clip_async(const std::shared_ptr<Context>&, double, const OptimizerCall&) override {
    refuse_async();
  }

  Value save(const OptimizerCall& call) override {
    check_call(call);
    MutexLock lock(mutex_);
    SavedState state{local_.settings(), {}};
    const Value all = local_.save();
    for (const Value& kept : all.as_list()) state.parameters.push_back(Value::list({kept}));
    return state.write();
  }

  std::shared_ptr<Future<Value>> save_async(const OptimizerCall&) override { refuse_async(); }

  void load(const Value& saved, const OptimizerCall& call) override {
    check_call(call);
    MutexLock lock(mutex_);
    SavedState state = SavedState::read(saved, local_.settings().rule(), local_.parameters().size());
    Value::List kept;
    for (const Value& parameter : state.parameters) {
      const Value::List& tensors = parameter.as_list();
      if (tensors.size() != 1) {
        fail(Status::kInvalidArgument, "load: a parameter of the state has {} tensors, not one", tensors.size());
      }
      kept.push_back(tensors[0]);
    }
    local_.load(Value::list(std::move(kept)));
    local_.settings() = std::move(state.settings);
  }

  std::shared_ptr<Future<Value>> load_async(const Value&, const OptimizerCall&) override { refuse_async(); }

 private:
  mutable Mutex mutex_;  // also guards local_, except its parameters, which no call changes
  LocalOptimizer local_;
  bool has_stepped_ GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<Optimizer> make_in_process_optimizer(const Rule& rule, Tensors parameters, PartOfState part_of) {
  return std::make_shared<InProcessOptimizer>(rule, std::move(parameters), part_of);
}

}  // namespace distag::optim
