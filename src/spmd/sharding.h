#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "autograd/autograd.h"
#include "base/mutex.h"
#include "spmd/program.h"

namespace distag::spmd {

// A shard and its spec, which change together.
struct Lying {
  layout::Spec spec;
  Tensor shard;
};

// The slot of a sharded tensor: its line, spec, shard, and the call that made it.
class Sharding final : public autograd::OpPlace {
 public:
  Sharding(Line line, TensorName name, const Dims& shape, Lying lying);

  // nullptr for a plain tensor, a shape only, or an undefined tensor.
  static Sharding* of(const Tensor& tensor) {
    ShardSlot* slot = tensor ? tensor.shard_slot() : nullptr;
    return slot == nullptr || slot->mesh() == nullptr ? nullptr : static_cast<Sharding*>(slot);
  }

  const Line& line() const { return line_; }
  Program& program() const { return *line_.program; }
  const TensorName& name() const { return name_; }
  Lying lying() const;
  // Whether the tensor was made as a sum of parts, which a reader may add up.
  bool was_partial() const { return was_partial_; }
  // Sets the same value, summed, so that a second reader does not sum it again.
  void set_summed(Lying lying);
  // In the first notation; valid as long as the tensor is, also after the spec has changed.
  const char* spec_text();

  // Marks a gathered parameter, whose elements are dropped when only a graph keeps it.
  void set_origin(Lying origin, bool is_gathered) {
    origin_ = std::move(origin);
    is_gathered_ = is_gathered;
  }
  const std::optional<Lying>& origin() const { return origin_; }
  // With an origin: whether the elements came from other members, into a buffer of this tensor alone.
  bool is_gathered() const { return is_gathered_; }

  Tensor local() const override { return lying().shard; }
  Tensor snapshot() const override;
  Tensor alias() const override;
  Tensor like(Tensor local) const override;
  Tensor whole() const override;
  std::string describe() const override;
  bool counts_here() const override;
  bool is_partial() const override;
  const void* mesh() const override { return &program(); }
  double sum_over_members(double own, Nanos timeout) const override;
  Tensors apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                bool record) override;

 private:
  const Line line_;
  const TensorName name_;
  const Dims shape_;
  const bool was_partial_;
  std::optional<Lying> origin_;  // set before the tensor is shared
  bool is_gathered_ = false;     // likewise
  mutable Mutex mutex_;
  Lying lying_ GUARDED_BY(mutex_);
  std::deque<std::string> texts_ GUARDED_BY(mutex_);  // lent
};

// A new sharded tensor, without history. The shard has the shape of this member's box.
Tensor make_sharded(const Line& line, TensorName name, const Dims& shape, const layout::Spec& spec, Tensor shard);
// Whether the tensor is a leaf that requires grad, or a redistribution of one.
bool is_parameter(const Tensor& tensor);

}  // namespace distag::spmd
