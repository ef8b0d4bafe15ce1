#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dims.h"

namespace distag::layout {

inline constexpr size_t kMaxAxes = 8;
inline constexpr int64_t kMaxMembers = 4096;

// Axes of a mesh by number. Their order is significant. At most kMaxAxes, without repetitions, stored inline.
class Axes {
 public:
  Axes() = default;
  Axes(std::initializer_list<uint8_t> axes) {
    for (uint8_t axis : axes) push_back(axis);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  uint8_t operator[](size_t i) const { return items_[i]; }
  const uint8_t* begin() const { return items_.data(); }
  const uint8_t* end() const { return items_.data() + size_; }
  void push_back(uint8_t axis) { items_[size_++] = axis; }
  bool contains(size_t axis) const { return std::find(begin(), end(), axis) != end(); }
  bool starts_with(const Axes& head) const {
    return head.size_ <= size_ && std::equal(head.begin(), head.end(), begin());
  }
  // The axes from index `first` on.
  Axes from(size_t first) const;
  bool operator==(const Axes& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<uint8_t, kMaxAxes> items_{};
  uint8_t size_ = 0;
};

// A set of axes: bit i is axis i.
using AxisSet = uint32_t;
inline AxisSet set_of(const Axes& axes) {
  AxisSet set = 0;
  for (uint8_t axis : axes) set |= AxisSet{1} << axis;
  return set;
}
inline bool has_axis(AxisSet set, size_t axis) { return ((set >> axis) & 1) != 0; }
// In ascending order.
Axes axes_of(AxisSet set);

// The request for a mesh. Empty lists stand for the defaults.
struct MeshRequest {
  std::string name = "mesh";
  Dims shape;                           // shape of a granule if there is an outer shape; one size may be -1
  std::vector<std::string> axis_names;  // empty: axis0, axis1, ...
  std::vector<int32_t> ranks;
  Dims outer_shape;               // shape over granules; empty: no hybrid mesh
  std::vector<int64_t> granules;  // granule of each rank; empty: all in one
};

// Workers (the members of the mesh) as a row-major grid with named axes. A position is an index into the list of
// members; a coordinate is an index along one axis.
class MeshShape {
 public:
  // Throws INVALID_ARGUMENT, which names the invalid size, name or rank.
  static MeshShape make(const MeshRequest& request);

  const std::string& name() const { return name_; }
  size_t axis_count() const { return sizes_.size(); }
  const Dims& sizes() const { return sizes_; }
  int64_t size(size_t axis) const { return sizes_[axis]; }
  const std::string& axis_name(size_t axis) const { return axis_names_[axis]; }
  const std::vector<std::string>& axis_names() const { return axis_names_; }
  std::optional<size_t> find_axis(std::string_view name) const;
  int64_t count() const { return static_cast<int64_t>(ranks_.size()); }  // members
  const std::vector<int32_t>& ranks() const { return ranks_; }           // by position
  const std::vector<int64_t>& granules() const { return granules_; }     // by position
  std::optional<int64_t> position_of(int32_t rank) const;

  int64_t coordinate(int64_t position, size_t axis) const {
    return position / strides_[axis] % std::max<int64_t>(sizes_[axis], 1);
  }
  // The row-major index over the coordinates along these axes; the first axis is the most significant.
  int64_t index_along(const Axes& axes, int64_t position) const;
  // The product of the sizes of these axes.
  int64_t size_of(const Axes& axes) const;
  // The position with its coordinates along `axes` replaced by those of `index`.
  int64_t moved(int64_t position, const Axes& axes, int64_t index) const;
  // The positions that differ from this position along these axes only, ordered by their index.
  std::vector<int64_t> group_of(const Axes& axes, int64_t position) const;
  // The axes without those of size 1, which cut nothing.
  Axes used(const Axes& axes) const;
  AxisSet used(AxisSet axes) const;

 private:
  std::string name_;
  Dims sizes_;
  Dims strides_;
  std::vector<std::string> axis_names_;
  std::vector<int32_t> ranks_;
  std::vector<int64_t> granules_;
};

// Returns "x, y", for messages.
std::string names_of(const MeshShape& mesh, const Axes& axes);

}  // namespace distag::layout
