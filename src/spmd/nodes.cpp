#include "spmd/nodes.h"

#include <cstring>

#include "base/error.h"
#include "ops/op.h"

namespace distag::spmd {
namespace {

using layout::Axes;
using layout::axes_of;
using layout::Spec;

Tensor zeros_like(const Tensor& x) {
  Tensor zeros = Tensor::empty(x.dtype(), x.shape());
  if (zeros.count() > 0) std::memset(zeros.mutable_data(), 0, zeros.byte_size());
  return zeros;
}

}  // namespace

Tensors ShardedNode::backward(SavedData&, Tensors) {
  fail(Status::kInvalidState,
       "call {} of mesh \"{}\" is one of all members: run backward in a joint context of the mesh "
       "(context_create_joint), or, behind calls of functions on its members, by a SMART pass",
       call_, line_.program->shape().name());
}

std::vector<autograd::Edge> edges_of(std::span<const Tensor> inputs) {
  std::vector<autograd::Edge> edges;
  edges.reserve(inputs.size());
  for (const Tensor& input : inputs) edges.push_back(autograd::gradient_edge(input));
  return edges;
}

Tensor meet(CallOnLine& call, const Dims& shape, const Spec& own, const Spec& target, std::span<const Tensor> arrivals,
            bool as_it_comes) {
  const Program& program = *call.line().program;
  const layout::MeshShape& mesh = program.shape();
  std::vector<Lying> parts;
  std::vector<Spec> specs;
  bool alike = true;
  for (const Tensor& arrival : arrivals) {
    parts.push_back(Sharding::of(arrival)->lying());
    specs.push_back(parts.back().spec);
    alike = alike && places_alike(mesh, specs.front(), specs.back());
  }
  const Spec where = alike ? specs.front() : meeting_spec(own, specs);
  Tensor sum;
  for (size_t i = 0; i < parts.size(); ++i) {
    Tensor part = parts[i].shard;
    if (!alike) {
      Spec there = where.dual();
      there.set_partial(specs[i].partial() & where.partial());
      part = call.move(shape, part, specs[i], there);
      // Along an axis where others hold parts of a sum, only the first member of equal ones counts.
      const Axes once = axes_of(where.partial() & ~there.partial());
      if (mesh.index_along(once, program.position()) != 0) part = zeros_like(part);
    }
    sum = ops::accumulate(std::move(sum), std::move(part));
  }
  if (as_it_comes) return make_sharded(call.line(), call.name_of(0), shape, where, std::move(sum));
  // If `target` is a sum and the tensor is repeated, the first member has the value, and others zeros.
  Spec reachable = target;
  reachable.set_partial(target.partial() & where.partial());
  sum = call.move(shape, sum, where, reachable);
  const Axes once = axes_of(mesh.used(target.partial() & ~reachable.partial()));
  if (mesh.index_along(once, program.position()) != 0) sum = zeros_like(sum);
  return make_sharded(call.line(), call.name_of(0), shape, target, std::move(sum));
}

}  // namespace distag::spmd
