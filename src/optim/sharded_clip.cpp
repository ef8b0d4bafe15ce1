#include "optim/sharded_clip.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "optim/norm.h"

namespace distag::optim {

bool has_sharded(const Tensors& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Tensor& parameter) { return parameter.shard_slot() != nullptr; });
}

double clip_sharded(const Tensors& parameters, Context& context, double max_norm, Nanos timeout) {
  clip_factor(0.0, max_norm);
  const auto gradients = context.gradients();
  SquareSum own;
  std::vector<uint64_t> ids;
  for (const Tensor& parameter : parameters) {
    const ShardSlot* slot = parameter.shard_slot();
    if (slot == nullptr) {
      fail(Status::kInvalidArgument, "clip: parameter {} is not sharded, but others are: clip them apart",
           describe(parameter));
    }
    if (slot->mesh() != parameters.front().shard_slot()->mesh()) {
      fail(Status::kInvalidArgument, "clip: parameter {} is sharded over another mesh than the first: clip them apart",
           describe(parameter));
    }
    const Tensor* gradient = gradients->find(parameter);
    if (gradient != nullptr && slot->counts_here()) own += square_sum(shard_of(*gradient));
    ids.push_back(parameter.id());
  }
  const ShardSlot& slot = *parameters.front().shard_slot();
  SquareSum all(slot.sum_over_members(own.sum, timeout));
  if (std::isinf(all.sum)) all.scaled = slot.sum_over_members(own.scaled, timeout);  // on all members, or on none
  const double norm = all.root();
  const double factor = clip_factor(norm, max_norm);
  if (factor != 1.0) context.scale_gradients(ids, factor, gradients->passes);
  return norm;
}

}  // namespace distag::optim
