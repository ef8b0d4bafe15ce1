#pragma once

#include "layout/mesh_shape.h"

namespace distag::layout {

// The layout of a tensor on a mesh. For each dim: the axes that cut it, the most significant first. Also the axes over
// which the value is the sum of the members' values. An axis has at most one such place; along all other axes the
// tensor is repeated.
class Spec {
 public:
  Spec() = default;
  explicit Spec(size_t rank) : rank_(rank) {}

  size_t rank() const { return rank_; }
  const Axes& dim(size_t i) const { return dims_[i]; }
  Axes& dim(size_t i) { return dims_[i]; }
  AxisSet partial() const { return partial_; }
  void set_partial(AxisSet axes) { partial_ = axes; }
  bool is_partial(size_t axis) const { return has_axis(partial_, axis); }

  // The axes that cut some dim.
  AxisSet cut() const;
  // The dim that the axis cuts; rank() if it cuts no dim.
  size_t dim_of(size_t axis) const;
  // The same cuts without partial axes: the spec in which a gradient of this tensor is needed.
  Spec dual() const;
  bool operator==(const Spec& other) const;

 private:
  std::array<Axes, kMaxRank> dims_;
  size_t rank_ = 0;
  AxisSet partial_ = 0;
};

// Whether both specs place every element alike: they are equal except for axes of size 1.
bool places_alike(const MeshShape& mesh, const Spec& a, const Spec& b);
// The spec without the axes of size 1.
Spec without_idle_axes(const MeshShape& mesh, const Spec& spec);

// A part of a tensor: `extent` elements along each dim, from `offset` on.
struct Box {
  Dims offset;
  Dims extent;

  int64_t count() const;
  bool empty() const;
  bool operator==(const Box& other) const { return offset == other.offset && extent == other.extent; }
};

Box intersection(const Box& a, const Box& b);
std::string to_string(const Box& box);

// The number of elements in each of `parts` blocks; the last blocks may be smaller or empty.
inline int64_t block_size(int64_t size, int64_t parts) { return size / parts + (size % parts != 0 ? 1 : 0); }
// Block `index` of a dim: its offset and number of elements. Full blocks come first, then at most one smaller block,
// then empty blocks at offset `size`.
struct Range {
  int64_t offset;
  int64_t extent;
};
Range block_of(int64_t size, int64_t parts, int64_t index);

// Throws INVALID_ARGUMENT for a shape whose rank is not that of the spec, or whose size in bytes is too large.
void check_shape(const MeshShape& mesh, const Spec& spec, const Dims& shape, size_t item_size);
// The part that the member at `position` holds.
Box box_of(const MeshShape& mesh, const Spec& spec, const Dims& shape, int64_t position);
// The shape of the part that the member at `position` holds.
Dims local_shape(const MeshShape& mesh, const Spec& spec, const Dims& shape, int64_t position);
// The index of the member, in ascending order, among those with the same box and the same coordinates on the partial
// axes.
int64_t replica_of(const MeshShape& mesh, const Spec& spec, const Dims& shape, int64_t position);

}  // namespace distag::layout
