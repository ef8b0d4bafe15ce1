#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "autograd/context.h"
#include "spmd/sharding.h"

namespace distag::spmd {

// The gradients of the leaves that a joint pass reaches, each a copy of the leaf's own. A gradient that has to be sent
// goes on its way, and later steps of the pass do not wait for it: gradients that need the same sum travel in buckets.
// All members add the gradients of sharded leaves in one order, and so make the same buckets and send them in one
// order. Methods that send throw the error of the mesh if that has ended.
class LeafGradients {
 public:
  explicit LeafGradients(CallOnLine& call) : call_(call) {}

  // The leaf is one of this worker alone.
  void add(const Tensor& leaf, const Tensor& gradient);
  // The sum of `arrivals`, in the order given.
  void add_sharded(const Tensor& leaf, std::span<const Tensor> arrivals);
  // Sends what is left and waits for all.
  void finish();
  // Call after finish().
  std::vector<Gradients::Entry> take() { return std::move(gradients_); }

 private:
  // Gradients under way: of one leaf, or of all leaves in a bucket, one after the other in a tensor of one dim.
  struct Pending {
    Tensors leaves;
    std::shared_ptr<Future<Tensor>> shards;
    size_t bytes = 0;  // of the message
    bool is_bucket = false;
  };
  // Gradients that need the same sum travel together.
  struct Bucket {
    layout::AxisSet axes = 0;
    Dtype dtype = Dtype::kFloat32;
    Tensors leaves;
    Tensors shards;
    uint64_t bytes = 0;
  };

  void add_to_bucket(const Tensor& leaf, const Tensor& shard, layout::AxisSet axes);
  void send_bucket(Bucket bucket);
  void make_room(size_t bytes);
  void add_pending(Pending pending);
  void finish_first();
  void finish_leaf(const Tensor& leaf, const Tensor& shard);

  CallOnLine& call_;
  std::vector<Bucket> buckets_;  // in the order of their first leaves
  std::deque<Pending> pending_;
  size_t pending_bytes_ = 0;
  std::vector<Gradients::Entry> gradients_;
};

}  // namespace distag::spmd
