#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/context.h"
#include "base/future.h"
#include "optim/local_optimizer.h"
#include "rpc/rpc.h"

namespace distag::optim {

struct OptimizerCall {
  Nanos timeout = 0;                   // 0: the worker's default; kForever: none
  std::shared_ptr<Invocation> within;  // the call being answered
  std::string label;                   // names the call in errors of other workers
  std::shared_ptr<const TraceParent> trace_parent = {};
};

// An optimizer as its user sees it, wherever its parameters are. Thread-safe: steps on the same parameters of a worker
// run one after the other.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Takes effect from the next step on. Throws what Settings::set throws.
  virtual void set(const std::string& setting, double value) = 0;

  // Waits. Throws the first failure, whose text names every owner that did not apply the step or may not have.
  virtual void step(const std::shared_ptr<Context>& context, const OptimizerCall& call) = 0;
  // Completes with null. Throws UNSUPPORTED without a worker, as all asynchronous methods do.
  virtual std::shared_ptr<Future<Value>> step_async(const std::shared_ptr<Context>& context,
                                                    const OptimizerCall& call) = 0;
  // Ranks of the owners that applied the last finished step, ascending; -1 is this process, without a worker.
  virtual std::vector<int32_t> stepped_ranks() const = 0;

  // Scales the context's gradients of all parameters to a joint norm of at most max_norm; returns the norm before.
  virtual double clip(const std::shared_ptr<Context>& context, double max_norm, const OptimizerCall& call) = 0;
  virtual std::shared_ptr<Future<Value>> clip_async(const std::shared_ptr<Context>& context, double max_norm,
                                                    const OptimizerCall& call) = 0;

  virtual Value save(const OptimizerCall& call) = 0;
  virtual std::shared_ptr<Future<Value>> save_async(const OptimizerCall& call) = 0;
  virtual void load(const Value& state, const OptimizerCall& call) = 0;
  virtual std::shared_ptr<Future<Value>> load_async(const Value& state, const OptimizerCall& call) = 0;  // null
};

// For tensors of this process, without a worker: all work runs on the calling thread.
std::shared_ptr<Optimizer> make_in_process_optimizer(const Rule& rule, Tensors parameters,
                                                     PartOfState part_of = nullptr);

}  // namespace distag::optim
