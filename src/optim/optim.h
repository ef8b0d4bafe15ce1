#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/loop.h"
#include "base/mutex.h"
#include "dautograd/dautograd.h"
#include "optim/optimizer.h"
#include "optim/owner.h"
#include "optim/parameter_places.h"
#include "rpc/rpc.h"

namespace distag::optim {

// The optimizers of one worker: the optimizers made here, and the owner's side of those with parameters here.
class Optim {
 public:
  // The services that the optimizers of this worker use.
  struct Shared {
    Shared(Loop& timers, Executor& executor, Group& members, Rpc& calls, Dautograd& contexts)
        : loop(timers),
          compute(executor),
          group(members),
          rpc(calls),
          dautograd(contexts),
          owner(std::make_shared<OptimizerOwner>(executor)) {}

    Loop& loop;
    Executor& compute;
    Group& group;
    Rpc& rpc;
    Dautograd& dautograd;
    ParameterPlaces* places = nullptr;
    const std::shared_ptr<OptimizerOwner> owner;
    Mutex mutex;
    Peer self GUARDED_BY(mutex);
    uint64_t optimizers GUARDED_BY(mutex) = 0;
  };

  // Registers the functions by which other workers reach this one.
  Optim(Loop& loop, Executor& compute, Group& group, Rpc& rpc, Dautograd& dautograd);
  // Before the start. Without it parameters must be tensors.
  void set_places(ParameterPlaces* places);
  // Before the start. Without it the loaded state of a sharded parameter has to be that of its shard.
  void set_part_of(PartOfState part_of) { shared_->owner->set_part_of(part_of); }

  // On the loop, before messages and calls come.
  void begin(const Peer& self);
  void on_gone(const Peer& peer);  // lost, or left

  // Any thread. Throws NOT_FOUND (kind) or INVALID_ARGUMENT (a parameter given twice, a value that cannot be one). The
  // optimizer must not outlive the worker.
  std::shared_ptr<Optimizer> make_optimizer(const std::string& kind, Values parameters);

  // The number of optimizers that keep state here.
  size_t owned_count() const { return shared_->owner->count(); }

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace distag::optim
