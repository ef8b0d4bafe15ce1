#include "layout/traffic.h"

namespace distag::layout {
namespace {

int64_t saturating(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

Traffic traffic_of_sum(const MeshShape& mesh, const Dims& shape, const Move& move, int64_t item_size,
                       int64_t position) {
  const int64_t members = mesh.size_of(move.sum_axes());
  const int64_t count = box_of(mesh, move.from(), shape, position).count();
  if (move.sum() == SumKind::kAllReduce) {
    return traffic_of_all_reduce(count, item_size, members, mesh.index_along(move.sum_axes(), position));
  }
  const int64_t own = box_of(mesh, move.after_sum(), shape, position).count();
  return {saturating(count - own, item_size), saturating((members - 1) * item_size, own)};
}

int64_t bytes_between(const std::vector<Transfer>& transfers, int64_t item_size) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.from != transfer.to) bytes = saturating_sum(bytes, saturating(transfer.box.count(), item_size));
  }
  return bytes;
}

}  // namespace

Traffic traffic_of_all_reduce(int64_t count, int64_t item_size, int64_t members, int64_t index) {
  if (is_reduced_directly(members, saturating(count, item_size)))
    return traffic_of_all_gather(count, item_size, members);
  // The other members' chunks go out and come back reduced; the member's own chunk comes in from all and goes to all.
  const int64_t own = block_of(count, members, index).extent;
  const int64_t bytes = saturating(saturating_sum(count - own, saturating(members - 1, own)), item_size);
  return {bytes, bytes};
}

Traffic traffic_of_all_gather(int64_t count, int64_t item_size, int64_t members) {
  const int64_t bytes = saturating((members - 1) * item_size, count);
  return {bytes, bytes};
}

Traffic traffic_of(const MeshShape& mesh, const Dims& shape, const Move& move, int64_t item_size, int64_t position) {
  Traffic traffic;
  if (move.sum() != SumKind::kNothing) traffic += traffic_of_sum(mesh, shape, move, item_size, position);
  if (move.move() == MoveKind::kNothing) return traffic;
  traffic += {bytes_between(move.given_by(position), item_size), bytes_between(move.taken_by(position), item_size)};
  return traffic;
}

}  // namespace distag::layout
