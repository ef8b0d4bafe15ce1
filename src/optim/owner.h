#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/context.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/strand.h"
#include "optim/local_optimizer.h"
#include "optim/parameter_places.h"
#include "optim/request.h"
#include "optim/responder.h"

namespace distag::optim {

// The owner's side of the optimizers that have parameters on this worker. Requests of all optimizers enter one queue
// once their gradients are known, so steps on the same parameters run one after the other. Shared with the requests in
// that queue.
class OptimizerOwner : public std::enable_shared_from_this<OptimizerOwner> {
 public:
  explicit OptimizerOwner(Executor& compute) : queue_(std::make_shared<Strand>(compute)) {}
  // Before the first request. Without it parameters must be tensors.
  void set_places(ParameterPlaces* places) { places_ = places; }
  // Before the first request.
  void set_part_of(PartOfState part_of) { part_of_ = part_of; }

  // Waits until the passes of the context have their verdicts, and answers later. `asker` is the worker that asks, ""
  // for this one. Any thread that may wait.
  void handle(Request request, const std::string& asker, const std::shared_ptr<Context>& context, Responder responder);
  // Forgets the optimizers that a lost worker made.
  void forget_maker(Incarnation maker);
  size_t count() const;

 private:
  struct Owned {
    const std::string asker;
    const Rule& rule;
    LocalOptimizer local;
    std::vector<size_t> sizes;  // number of tensors of each parameter
  };

  void enqueue(Request& request, const std::string& asker, const std::shared_ptr<Context>& context,
               Responder& responder);
  void forget(const Request& request, const std::string& asker);
  std::shared_ptr<Owned> find(const Request& request, const std::string& asker);
  std::shared_ptr<Owned> make(const Request& request, const std::string& asker);
  static Value answer(Owned& owned, const Request& request, Context* context, const Gradients* gradients);

  ParameterPlaces* places_ = nullptr;
  PartOfState part_of_ = nullptr;
  const std::shared_ptr<Strand> queue_;
  mutable Mutex mutex_;
  std::map<Id, std::shared_ptr<Owned>> owned_ GUARDED_BY(mutex_);
};

}  // namespace distag::optim
