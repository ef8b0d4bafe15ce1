#include "layout/move.h"

#include "base/error.h"
#include "layout/spec_text.h"

namespace distag::layout {
namespace {

// The box of the block with this index along each dim.
Box cell_box(const MeshShape& mesh, const Spec& spec, const Dims& shape, const Dims& index) {
  Box box;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Range range = block_of(shape[i], mesh.size_of(spec.dim(i)), index[i]);
    box.offset.push_back(range.offset);
    box.extent.push_back(range.extent);
  }
  return box;
}

// Calls `visit` with the index of each block that meets the box and is not empty, row-major.
template <typename Visit>
void for_each_block(const MeshShape& mesh, const Spec& spec, const Dims& shape, const Box& box, Visit visit) {
  if (box.empty()) return;
  Dims first;
  Dims last;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t block = block_size(shape[i], mesh.size_of(spec.dim(i)));
    first.push_back(box.offset[i] / block);
    last.push_back((box.offset[i] + box.extent[i] - 1) / block);
  }
  Dims index = first;
  for (;;) {
    visit(index);
    size_t i = shape.size();
    while (i-- > 0) {
      if (index[i]++ < last[i]) break;
      index[i] = first[i];
    }
    if (i == SIZE_MAX) return;
  }
}

// The member that has these blocks and otherwise the coordinates of `position`.
int64_t with_blocks(const MeshShape& mesh, const Spec& spec, int64_t position, const Dims& index) {
  for (size_t i = 0; i < index.size(); ++i) position = mesh.moved(position, spec.dim(i), index[i]);
  return position;
}

}  // namespace

Move::Move(const MeshShape& mesh, const Dims& shape, const Spec& from, const Spec& to)
    : mesh_(mesh), shape_(shape), from_(without_idle_axes(mesh, from)), to_(without_idle_axes(mesh, to)) {
  if (const AxisSet added = to_.partial() & ~from_.partial()) {
    fail(Status::kInvalidArgument, "mesh \"{}\": a tensor as {} cannot be made a sum over {}: leave the sum out",
         mesh.name(), print_spec(mesh, from), names_of(mesh, axes_of(added)));
  }
  plan_sum();
  plan_move();
}

// Whether each block of the dim along `inner` lies in the block along `outer`, its prefix, that the same member holds.
// Uneven sizes may break this: 2 elements in two blocks are 1 and 1, in two times two blocks 1, 1, 0 and 0.
bool Move::nests(size_t dim, const Axes& outer, const Axes& inner) const {
  const int64_t large = block_size(shape_[dim], mesh_.size_of(outer));
  const int64_t parts = mesh_.size_of(inner.from(outer.size()));
  const int64_t small = block_size(shape_[dim], mesh_.size_of(inner));
  // A small block is at most a large block divided by the parts, rounded up, so nothing overflows.
  return parts * small == large || (large >= shape_[dim] && parts * small >= shape_[dim]);
}

void Move::plan_sum() {
  middle_ = from_;
  const AxisSet summed = from_.partial() & ~to_.partial();
  if (summed == 0) return;
  middle_.set_partial(to_.partial());
  sum_ = SumKind::kAllReduce;
  sum_axes_ = axes_of(summed);
  for (size_t i = 0; i < to_.rank(); ++i) {
    const Axes tail = to_.dim(i).starts_with(from_.dim(i)) ? to_.dim(i).from(from_.dim(i).size()) : Axes();
    if (set_of(tail) != summed || !nests(i, from_.dim(i), to_.dim(i))) continue;
    sum_ = SumKind::kReduceScatter;
    sum_axes_ = tail;
    sum_dim_ = i;
    middle_.dim(i) = to_.dim(i);
  }
}

void Move::plan_move() {
  places_same_ = middle_ == to_;
  if (places_same_) return;
  Axes gone;   // trailing axes that a dim loses
  Axes added;  // trailing axes that a dim gets
  AxisSet gained = 0;
  bool is_aligned = true;
  size_t losing = 0;
  size_t gaining = 0;
  for (size_t i = 0; i < to_.rank(); ++i) {
    const Axes& before = middle_.dim(i);
    const Axes& after = to_.dim(i);
    if (before == after) continue;
    if (before.starts_with(after) && nests(i, after, before)) {
      for (uint8_t axis : before.from(after.size())) gone.push_back(axis);
      ++losing;
    } else if (after.starts_with(before) && nests(i, before, after)) {
      for (uint8_t axis : after.from(before.size())) added.push_back(axis);
      ++gaining;
    } else {
      is_aligned = false;
    }
    gained |= set_of(after) & ~middle_.cut();
  }
  if (is_aligned && losing == 0 && (set_of(added) & middle_.cut()) == 0) return;  // all new cuts were repeated before
  move_ = MoveKind::kBoxes;
  if (!is_aligned || gained != 0) return;
  if (gaining == 0) {
    move_ = MoveKind::kAllGather;
    move_axes_ = gone;
  } else if (losing == 1 && gaining == 1 && gone == added) {
    move_ = MoveKind::kAllToAll;
    move_axes_ = gone;
  }
}

// The member from which `position` takes (a part of) the cell: a holder with the same coordinates on the partial axes.
// If the move is aligned, the holder differs along the axes of the move only. Otherwise holders in the same granule are
// preferred, and the load is spread over them.
int64_t Move::holder_for(int64_t position, const Box& cell) const {
  if (box_of(mesh_, middle_, shape_, position) == cell) return position;
  Dims index;
  for (size_t i = 0; i < shape_.size(); ++i) {
    index.push_back(cell.offset[i] / block_size(shape_[i], mesh_.size_of(middle_.dim(i))));
  }
  const int64_t aligned = with_blocks(mesh_, middle_, position, index);
  if (!move_axes_.empty()) return aligned;
  Axes free;  // axes along which the cell is repeated
  for (uint8_t axis = 0; axis < mesh_.axis_count(); ++axis) {
    if (mesh_.size(axis) > 1 && !has_axis(middle_.cut() | middle_.partial(), axis)) free.push_back(axis);
  }
  const std::vector<int64_t> holders = mesh_.group_of(free, aligned);
  std::vector<int64_t> near;
  for (int64_t holder : holders) {
    if (mesh_.granules()[static_cast<size_t>(holder)] == mesh_.granules()[static_cast<size_t>(position)]) {
      near.push_back(holder);
    }
  }
  const std::vector<int64_t>& candidates = near.empty() ? holders : near;
  return candidates[static_cast<size_t>(position) % candidates.size()];
}

std::vector<Transfer> Move::taken_by(int64_t position) const {
  const Box target = box_of(mesh_, to_, shape_, position);
  std::vector<Transfer> transfers;
  for_each_block(mesh_, middle_, shape_, target, [&](const Dims& index) {
    const Box cell = cell_box(mesh_, middle_, shape_, index);
    transfers.push_back({holder_for(position, cell), position, intersection(cell, target)});
  });
  std::sort(transfers.begin(), transfers.end(), [](const Transfer& a, const Transfer& b) { return a.from < b.from; });
  return transfers;
}

std::vector<Transfer> Move::given_by(int64_t position) const {
  const Box own = box_of(mesh_, middle_, shape_, position);
  std::vector<Transfer> transfers;
  if (own.empty()) return transfers;
  for (int64_t other = 0; other < mesh_.count(); ++other) {
    const Box box = intersection(own, box_of(mesh_, to_, shape_, other));
    if (!box.empty() && holder_for(other, own) == position) transfers.push_back({position, other, box});
  }
  return transfers;
}

int64_t Move::received_in_sum(int64_t position) const {
  if (sum_ == SumKind::kNothing) return 0;
  const int64_t n = box_of(mesh_, from_, shape_, position).count();
  const int64_t both = all_reduce_cost(n, mesh_.size_of(sum_axes_));
  return sum_ == SumKind::kAllReduce ? both : both / 2;
}

int64_t Move::received_in_move(int64_t position) const {
  if (places_same_) return 0;
  const Box target = box_of(mesh_, to_, shape_, position);
  return target.count() - intersection(target, box_of(mesh_, middle_, shape_, position)).count();
}

}  // namespace distag::layout
