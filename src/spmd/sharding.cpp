#include "spmd/sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "layout/spec_text.h"
#include "spmd/op_call.h"
#include "spmd/trace.h"
#include "tensor/shape_only.h"

namespace distag::spmd {

Sharding::Sharding(Line line, TensorName name, const Dims& shape, Lying lying)
    : line_(std::move(line)),
      name_(std::move(name)),
      shape_(shape),
      was_partial_(program().shape().used(lying.spec.partial()) != 0),
      lying_(std::move(lying)) {}

Lying Sharding::lying() const {
  MutexLock lock(mutex_);
  return lying_;
}

void Sharding::set_summed(Lying lying) {
  MutexLock lock(mutex_);
  std::swap(lying_, lying);
}

const char* Sharding::spec_text() {
  MutexLock lock(mutex_);
  std::string text = print_spec(program().shape(), lying_.spec);
  for (const std::string& lent : texts_) {
    if (lent == text) return lent.c_str();
  }
  return texts_.emplace_back(std::move(text)).c_str();
}

// Takes spec and shard at one moment, as a sum by another thread changes both.
Tensor Sharding::snapshot() const {
  const Lying now = lying();
  return make_sharded(line_, name_, shape_, now.spec, now.shard.snapshot());
}

Tensor Sharding::alias() const {
  const Lying now = lying();
  return make_sharded(line_, name_, shape_, now.spec, autograd::detach(now.shard));
}

Tensor Sharding::like(Tensor local) const { return make_sharded(line_, name_, shape_, lying().spec, std::move(local)); }

Tensor Sharding::whole() const {
  const Lying now = lying();
  if (!places_alike(program().shape(), now.spec, layout::Spec(now.spec.rank()))) {
    fail(Status::kInvalidState,
         "{}: this worker has but its part of the elements: use that (to_local) or the whole (gather)", describe());
  }
  return now.shard;
}

std::string Sharding::describe() const {
  return fmt::format("{} of mesh \"{}\"", print_spec(program().shape(), lying().spec), program().shape().name());
}

bool Sharding::counts_here() const {
  return replica_of(program().shape(), lying().spec, shape_, program().position()) == 0;
}

bool Sharding::is_partial() const { return program().shape().used(lying().spec.partial()) != 0; }

// Its caller is the host's clip.
double Sharding::sum_over_members(double own, Nanos timeout) const {
  const std::string text = "clip";
  CallOnLine call(line_, "clip");
  call.set_timeout(timeout);
  call.note(text, Fingerprint().add(text).value());
  const layout::MeshShape& mesh = program().shape();
  layout::Spec partial(size_t{0});
  partial.set_partial((layout::AxisSet{1} << mesh.axis_count()) - 1);
  return call.move({}, Tensor::scalar(Dtype::kFloat64, own), partial, layout::Spec(size_t{0})).item();
}

Tensors Sharding::apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                        bool record) {
  if (std::any_of(inputs.begin(), inputs.end(), is_shape_only)) return trace_op(op, inputs, attributes, record);
  return apply_sharded(op, inputs, attributes, record);
}

Tensor make_sharded(const Line& line, TensorName name, const Dims& shape, const layout::Spec& spec, Tensor shard) {
  const Dtype dtype = shard.dtype();
  return Tensor::sharded(dtype, shape,
                         std::make_unique<Sharding>(line, std::move(name), shape, Lying{spec, std::move(shard)}));
}

bool is_parameter(const Tensor& tensor) {
  const Sharding* sharding = Sharding::of(tensor);
  if (sharding == nullptr || !autograd::requires_grad(tensor)) return false;
  return !autograd::has_history(tensor) || sharding->origin().has_value();
}

}  // namespace distag::spmd
