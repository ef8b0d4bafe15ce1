#include "optim/optim.h"

#include <set>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "optim/distributed_optimizer.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

// A tensor belongs to this worker.
std::string owner_of(const Optim::Shared& shared, const Value& parameter, const std::string& self) {
  if (parameter.kind() == ValueKind::kTensor) return "";
  if (shared.places == nullptr) {
    fail(Status::kInvalidArgument, "a parameter is a tensor, not {}", kind_name(parameter.kind()));
  }
  const std::string owner = shared.places->owner(parameter);
  return owner == self ? "" : owner;
}

// Refuses a parameter that is given twice: as a tensor, as a reference, or as both if the reference's value is there. A
// duplicate that shows later makes the first step fail.
class SeenParameters {
 public:
  explicit SeenParameters(ParameterPlaces* places) : places_(places) {}

  void add(const Value& parameter, size_t index) {
    if (parameter.kind() == ValueKind::kTensor) return add_tensors(parameter, index);
    if (!references_.insert(places_->identity(parameter)).second) refuse(index);
    add_tensors(places_->find(parameter), index);
  }

 private:
  void add_tensors(const Value& value, size_t index) {
    value.for_each_tensor([this, index](const Tensor& tensor) {
      if (!tensors_.insert(tensor.id()).second) refuse(index);
    });
  }
  [[noreturn]] static void refuse(size_t index) {
    fail(Status::kInvalidArgument, "optimizer: parameter {} is given twice", index);
  }

  ParameterPlaces* const places_;
  std::set<uint64_t> references_;
  std::set<uint64_t> tensors_;
};

}  // namespace

Optim::Optim(Loop& loop, Executor& compute, Group& group, Rpc& rpc, Dautograd& dautograd)
    : shared_(std::make_shared<Shared>(loop, compute, group, rpc, dautograd)) {
  for (const Verb verb : kVerbs) {
    rpc.register_function(function_name(verb), [verb, owner = shared_->owner, &dautograd](Invocation& invocation) {
      Request request = Request::decode(verb, invocation.args());
      const auto context = dautograd.find_context(invocation.context());
      const std::string asker = invocation.caller();
      owner->handle(std::move(request), asker, context, Responder(invocation.defer()));
    });
  }
}

void Optim::set_places(ParameterPlaces* places) {
  shared_->places = places;
  shared_->owner->set_places(places);
}

void Optim::begin(const Peer& self) {
  assert_on_loop(shared_->loop);
  MutexLock lock(shared_->mutex);
  shared_->self = self;
}

void Optim::on_gone(const Peer& peer) {
  assert_on_loop(shared_->loop);
  shared_->owner->forget_maker(peer.incarnation);
}

std::shared_ptr<Optimizer> Optim::make_optimizer(const std::string& kind, Values parameters) {
  const Rule& rule = find_rule(kind);
  std::string self;
  {
    MutexLock lock(shared_->mutex);
    self = shared_->self.name;
  }
  SeenParameters seen(shared_->places);
  std::map<std::string, OwnerGroup> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    OwnerGroup& group = groups[owner_of(*shared_, parameters[i], self)];
    if (parameters[i].kind() == ValueKind::kTensor) check_parameter(parameters[i].as_tensor());
    seen.add(parameters[i], i);
    group.places.push_back(i);
    group.parameters.push_back(std::move(parameters[i]));
  }
  return std::make_shared<DistributedOptimizer>(shared_, rule, parameters.size(), std::move(groups));
}

}  // namespace distag::optim
