#include "autograd/roots.h"

#include "autograd/autograd.h"
#include "autograd/history.h"
#include "base/error.h"
#include "tensor/shape_only.h"

namespace distag::autograd {
namespace {

Tensor make_ones(const Tensor& like) {
  Tensor one = Tensor::empty(like.dtype(), like.shape());
  if (like.dtype() == Dtype::kFloat64) {
    *one.mutable_data_as<double>() = 1.0;
  } else {
    *one.mutable_data_as<float>() = 1.0f;
  }
  return one;
}

void check_history(const Tensor& root, size_t i) {
  if (!root) fail(Status::kInvalidArgument, "backward: root {} is missing", i);
  check_not_shape_only(root);
  if (const ShardSlot* slot = root.shard_slot()) {
    fail(Status::kInvalidArgument,
         "backward: root {} ({}) is sharded as {}: that takes a joint context of its mesh (context_create_joint)", i,
         describe(root), slot->describe());
  }
  if (!requires_grad(root)) {
    fail(Status::kInvalidArgument,
         "backward: root {} ({}) needs no gradient: nothing it was computed from requires grad, or no context took it "
         "along",
         i, describe(root));
  }
  if (!has_history(root)) {
    fail(Status::kInvalidArgument, "backward: root {} ({}) has no history: it is a leaf, not the result of an op", i,
         describe(root));
  }
}

}  // namespace

Roots check_roots(const Tensors& roots, const Tensors& seeds, bool keeps_history) {
  if (roots.empty()) fail(Status::kInvalidArgument, "backward: no roots");
  if (!seeds.empty() && seeds.size() != roots.size()) {
    fail(Status::kInvalidArgument, "backward: {} seeds for {} roots", seeds.size(), roots.size());
  }
  Roots result;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    check_history(root, i);
    const Tensor seed = seeds.empty() ? Tensor() : seeds[i];
    if (!seed && root.count() != 1) {
      fail(Status::kInvalidArgument, "backward: root {} ({}) needs a seed, since it is not one element", i,
           describe(root));
    }
    if (seed && (seed.shape() != root.shape() || seed.dtype() != root.dtype())) {
      fail(Status::kInvalidArgument, "backward: the seed of root {} is {}, not {} as the root", i, describe(seed),
           describe(root));
    }
    result.edges.push_back(gradient_edge(root));
    Tensor start = seed ? seed.snapshot() : make_ones(root);
    result.seeds.push_back(seed && keeps_history ? with_history_of(seed, std::move(start)) : std::move(start));
  }
  return result;
}

}  // namespace distag::autograd
