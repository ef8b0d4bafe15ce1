#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "optim/optim.h"
#include "optim/settings.h"

namespace distag::optim {

// The parameters of an optimizer that one worker owns.
struct OwnerGroup {
  Values parameters;
  std::vector<size_t> places;  // indices among all given parameters
};

// An optimizer with a worker: sends its requests to all owners of parameters at once, this worker included. The state
// of a parameter is kept at its owner.
class DistributedOptimizer final : public Optimizer {
 public:
  // Groups by name of the owner, "" for this worker.
  DistributedOptimizer(std::shared_ptr<Optim::Shared> shared, const Rule& rule, size_t parameter_count,
                       std::map<std::string, OwnerGroup> groups);
  // Sends kForget to the owners, and does not wait for them.
  ~DistributedOptimizer() override;

  void set(const std::string& setting, double value) override;
  void step(const std::shared_ptr<Context>& context, const OptimizerCall& call) override;
  std::shared_ptr<Future<Value>> step_async(const std::shared_ptr<Context>& context,
                                            const OptimizerCall& call) override;
  std::vector<int32_t> stepped_ranks() const override;
  double clip(const std::shared_ptr<Context>& context, double max_norm, const OptimizerCall& call) override;
  std::shared_ptr<Future<Value>> clip_async(const std::shared_ptr<Context>& context, double max_norm,
                                            const OptimizerCall& call) override;
  Value save(const OptimizerCall& call) override;
  std::shared_ptr<Future<Value>> save_async(const OptimizerCall& call) override;
  void load(const Value& saved, const OptimizerCall& call) override;
  std::shared_ptr<Future<Value>> load_async(const Value& saved, const OptimizerCall& call) override;

 private:
  struct State;
  // Rounds under way hold it too.
  const std::shared_ptr<State> state_;
};

}  // namespace distag::optim
