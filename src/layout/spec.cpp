#include "layout/spec.h"

#include <fmt/format.h>

#include "base/error.h"

namespace distag::layout {

AxisSet Spec::cut() const {
  AxisSet axes = 0;
  for (size_t i = 0; i < rank_; ++i) axes |= set_of(dims_[i]);
  return axes;
}

size_t Spec::dim_of(size_t axis) const {
  size_t i = 0;
  while (i < rank_ && !dims_[i].contains(axis)) ++i;
  return i;
}

Spec Spec::dual() const {
  Spec spec = *this;
  spec.partial_ = 0;
  return spec;
}

bool Spec::operator==(const Spec& other) const {
  return rank_ == other.rank_ && partial_ == other.partial_ &&
         std::equal(dims_.begin(), dims_.begin() + rank_, other.dims_.begin());
}

Spec without_idle_axes(const MeshShape& mesh, const Spec& spec) {
  Spec result(spec.rank());
  for (size_t i = 0; i < spec.rank(); ++i) result.dim(i) = mesh.used(spec.dim(i));
  result.set_partial(mesh.used(spec.partial()));
  return result;
}

bool places_alike(const MeshShape& mesh, const Spec& a, const Spec& b) {
  return without_idle_axes(mesh, a) == without_idle_axes(mesh, b);
}

int64_t Box::count() const {
  int64_t count = 1;
  for (int64_t size : extent) count *= size;
  return count;
}

bool Box::empty() const { return std::find(extent.begin(), extent.end(), 0) != extent.end(); }

Box intersection(const Box& a, const Box& b) {
  Box box;
  for (size_t i = 0; i < a.offset.size(); ++i) {
    int64_t first = std::max(a.offset[i], b.offset[i]);
    int64_t end = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]);
    box.offset.push_back(first);
    box.extent.push_back(std::max<int64_t>(end - first, 0));
  }
  return box;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (size_t i = 0; i < box.offset.size(); ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ", ", box.offset[i], box.offset[i] + box.extent[i]);
  }
  return text + "]";
}

Range block_of(int64_t size, int64_t parts, int64_t index) {
  const int64_t block = block_size(size, parts);
  // index * block may overflow when blocks end long before.
  if (block == 0 || index >= block_size(size, block)) return {size, 0};
  const int64_t offset = index * block;
  return {offset, std::min(block, size - offset)};
}

void check_shape(const MeshShape& mesh, const Spec& spec, const Dims& shape, size_t item_size) {
  if (shape.size() != spec.rank()) {
    fail(Status::kInvalidArgument, "mesh \"{}\": a spec of {} dims for shape {}, which has {}: give one item per dim",
         mesh.name(), spec.rank(), to_string(shape), shape.size());
  }
  constexpr int64_t kMostBytes = int64_t{1} << 62;
  if (element_count(shape, item_size) > kMostBytes / static_cast<int64_t>(item_size)) {
    fail(Status::kInvalidArgument, "mesh \"{}\": shape {} is of more than 2^62 bytes", mesh.name(), to_string(shape));
  }
}

Box box_of(const MeshShape& mesh, const Spec& spec, const Dims& shape, int64_t position) {
  Box box;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Axes& axes = spec.dim(i);
    Range range =
        axes.empty() ? Range{0, shape[i]} : block_of(shape[i], mesh.size_of(axes), mesh.index_along(axes, position));
    box.offset.push_back(range.offset);
    box.extent.push_back(range.extent);
  }
  return box;
}

Dims local_shape(const MeshShape& mesh, const Spec& spec, const Dims& shape, int64_t position) {
  return box_of(mesh, spec, shape, position).extent;
}

int64_t replica_of(const MeshShape& mesh, const Spec& spec, const Dims& shape, int64_t position) {
  const Box box = box_of(mesh, spec, shape, position);
  const Axes partial = axes_of(spec.partial());
  const int64_t part = mesh.index_along(partial, position);
  int64_t number = 0;
  for (int64_t other = 0; other < position; ++other) {
    if (mesh.index_along(partial, other) == part && box_of(mesh, spec, shape, other) == box) ++number;
  }
  return number;
}

}  // namespace distag::layout
