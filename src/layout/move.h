#pragma once

#include "layout/spec.h"

namespace distag::layout {

// The kind of move from one spec to another. Boxes are parts of the whole tensor.
enum class MoveKind : uint8_t {
  kNothing,    // every member has what it needs
  kAllGather,  // along axes that no longer cut
  kAllToAll,   // along axes that cut another dim than before
  kBoxes,      // from member to member, none of the above
};

enum class SumKind : uint8_t { kNothing, kAllReduce, kReduceScatter };

// A box that a member takes from another member, or from its own shard if from == to.
struct Transfer {
  int64_t from;
  int64_t to;
  Box box;
};

// A redistribution: first a sum over the partial axes that the target does not have, then a move of boxes.
class Move {
 public:
  // For a tensor of this shape. Throws INVALID_ARGUMENT when the target is partial over an axis over which the source
  // is not.
  Move(const MeshShape& mesh, const Dims& shape, const Spec& from, const Spec& to);

  SumKind sum() const { return sum_; }
  const Axes& sum_axes() const { return sum_axes_; }
  size_t sum_dim() const { return sum_dim_; }  // the dim that a reduce_scatter cuts
  const Spec& after_sum() const { return middle_; }
  MoveKind move() const { return move_; }
  const Axes& move_axes() const { return move_axes_; }  // axes along which members exchange; empty for kBoxes
  const Spec& from() const { return from_; }
  const Spec& to() const { return to_; }
  // True if no member has to send anything.
  bool is_local() const { return sum_ == SumKind::kNothing && move_ == MoveKind::kNothing; }
  bool is_identity() const { return sum_ == SumKind::kNothing && places_same_; }

  // The boxes that one member takes (its own included) and the boxes that it gives, ordered by the other's position.
  std::vector<Transfer> taken_by(int64_t position) const;
  std::vector<Transfer> given_by(int64_t position) const;

  // Elements that the member receives; placements are chosen by this. A sum of n elements over p members costs 2 n (p -
  // 1) / p elements, or half of that when the sum is scattered.
  int64_t received_in_sum(int64_t position) const;
  int64_t received_in_move(int64_t position) const;

 private:
  bool nests(size_t dim, const Axes& outer, const Axes& inner) const;
  void plan_sum();
  void plan_move();
  int64_t holder_for(int64_t position, const Box& cell) const;

  const MeshShape& mesh_;  // must outlive this
  const Dims shape_;
  const Spec from_;
  const Spec to_;
  Spec middle_;
  SumKind sum_ = SumKind::kNothing;
  Axes sum_axes_;
  size_t sum_dim_ = 0;
  MoveKind move_ = MoveKind::kNothing;
  Axes move_axes_;
  bool places_same_ = false;
};

// Elements that a member receives when n of its elements are summed over p members.
inline int64_t all_reduce_cost(int64_t n, int64_t p) { return 2 * (n / p * (p - 1) + n % p * (p - 1) / p); }

}  // namespace distag::layout
