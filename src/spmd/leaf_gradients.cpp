#include "spmd/leaf_gradients.h"

#include <algorithm>
#include <utility>

#include "base/lead.h"
#include "spmd/nodes.h"

namespace distag::spmd {
namespace {

// The most gradients that are under way while later steps make more.
constexpr size_t kMostPending = 64;
constexpr size_t kMostPendingBytes = size_t{4} << 20;

// All elements in one tensor of one dim, shard after shard.
Tensor flat(const Tensors& shards) {
  int64_t count = 0;
  for (const Tensor& shard : shards) count += shard.count();
  Tensor all = Tensor::empty(shards[0].dtype(), {count});
  int64_t offset = 0;
  for (const Tensor& shard : shards) {
    if (shard.count() > 0) shard.copy_to(all.mutable_data() + static_cast<size_t>(offset) * dtype_size(all.dtype()));
    offset += shard.count();
  }
  return all;
}

}  // namespace

// Takes a copy: a leaf owns its gradient.
void LeafGradients::add(const Tensor& leaf, const Tensor& gradient) {
  gradients_.push_back({leaf, gradient.contiguous().snapshot()});
}

void LeafGradients::add_sharded(const Tensor& leaf, std::span<const Tensor> arrivals) {
  const layout::MeshShape& mesh = call_.line().program->shape();
  const layout::Spec spec = Sharding::of(leaf)->lying().spec.dual();
  Tensor gathered = meet(call_, leaf.shape(), spec, spec, arrivals, true);
  const Lying lying = Sharding::of(gathered)->lying();
  if (places_alike(mesh, lying.spec, spec)) return finish_leaf(leaf, lying.shard);
  const layout::Move move(mesh, leaf.shape(), lying.spec, spec);
  const bool is_plain_sum = move.sum() == layout::SumKind::kAllReduce && places_alike(mesh, move.after_sum(), spec);
  if (is_plain_sum) return add_to_bucket(leaf, lying.shard, set_of(move.sum_axes()));
  const size_t bytes = lying.shard.byte_size();
  make_room(bytes);
  add_pending({{leaf}, call_.begin_move(leaf.shape(), lying.shard, lying.spec, spec), bytes, false});
}

void LeafGradients::add_to_bucket(const Tensor& leaf, const Tensor& shard, layout::AxisSet axes) {
  auto bucket = std::find_if(buckets_.begin(), buckets_.end(),
                             [&](const Bucket& other) { return other.axes == axes && other.dtype == shard.dtype(); });
  if (bucket == buckets_.end()) {
    buckets_.push_back({axes, shard.dtype(), {}, {}, 0});
    bucket = buckets_.end() - 1;
  }
  // All members must find it full at the same time: the sizes of position 0 count, which are the largest.
  const layout::MeshShape& mesh = call_.line().program->shape();
  const layout::Spec spec = Sharding::of(leaf)->lying().spec;
  bucket->leaves.push_back(leaf);
  bucket->shards.push_back(shard);
  bucket->bytes += static_cast<uint64_t>(box_of(mesh, spec, leaf.shape(), 0).count()) * dtype_size(leaf.dtype());
  if (bucket->bytes < call_.line().program->mesh().policy().bucket_bytes) return;
  Bucket full = std::move(*bucket);
  buckets_.erase(bucket);
  send_bucket(std::move(full));
}

void LeafGradients::send_bucket(Bucket bucket) {
  make_room(bucket.bytes);
  if (bucket.leaves.size() == 1) {
    const layout::Spec to = Sharding::of(bucket.leaves[0])->lying().spec.dual();
    layout::Spec from = to;
    from.set_partial(bucket.axes);
    return add_pending(
        {bucket.leaves, call_.begin_move(bucket.leaves[0].shape(), bucket.shards[0], from, to), bucket.bytes, false});
  }
  add_pending({std::move(bucket.leaves),
               call_.begin_reduce(flat(bucket.shards), layout::axes_of(bucket.axes), Reduction::kSum), bucket.bytes,
               true});
}

// Makes room for one more of that size. If it is larger than the limit, it goes alone.
void LeafGradients::make_room(size_t bytes) {
  while (!pending_.empty() && (pending_.size() >= kMostPending || pending_bytes_ + bytes > kMostPendingBytes)) {
    finish_first();
  }
}

void LeafGradients::add_pending(Pending pending) {
  pending_bytes_ += pending.bytes;
  pending_.push_back(std::move(pending));
}

void LeafGradients::finish_first() {
  const Pending pending = std::move(pending_.front());
  pending_.pop_front();
  pending_bytes_ -= pending.bytes;
  const Tensor shards = await(*pending.shards);
  if (!pending.is_bucket) return finish_leaf(pending.leaves[0], shards);
  int64_t offset = shards.offset();
  for (const Tensor& leaf : pending.leaves) {
    const Dims shape = Sharding::of(leaf)->lying().shard.shape();
    finish_leaf(leaf, shards.view(shape, row_major_strides(shape), offset).clone());
    offset += element_count(shape);
  }
}

void LeafGradients::finish_leaf(const Tensor& leaf, const Tensor& shard) {
  const Sharding& sharding = *Sharding::of(leaf);
  gradients_.push_back({leaf, make_sharded(sharding.line(), sharding.name(), leaf.shape(), sharding.lying().spec.dual(),
                                           shard.contiguous().snapshot())});
}

void LeafGradients::finish() {
  for (Bucket& bucket : buckets_) send_bucket(std::move(bucket));
  buckets_.clear();
  while (!pending_.empty()) finish_first();
}

}  // namespace distag::spmd
