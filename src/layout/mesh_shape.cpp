#include "layout/mesh_shape.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace distag::layout {
namespace {

bool is_identifier(std::string_view text) {
  auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (text.empty() || !is_letter(text[0])) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<std::string> checked_names(const MeshRequest& request) {
  std::vector<std::string> names = request.axis_names;
  if (names.empty()) {
    for (size_t i = 0; i < request.shape.size(); ++i) names.push_back(fmt::format("axis{}", i));
  }
  if (names.size() != request.shape.size()) {
    fail(Status::kInvalidArgument, "mesh \"{}\": {} axis names for {} sizes: give each axis one name", request.name,
         names.size(), request.shape.size());
  }
  std::set<std::string_view> known;
  for (const std::string& name : names) {
    if (!is_identifier(name) || name == "None" || name == "sum") {
      fail(Status::kInvalidArgument,
           "mesh \"{}\": axis name \"{}\": a name is of letters, digits and _, starts with no digit, and is neither "
           "None nor sum",
           request.name, name);
    }
    if (!known.insert(name).second) {
      fail(Status::kInvalidArgument, "mesh \"{}\": two axes are named \"{}\": give each a name of its own",
           request.name, name);
    }
  }
  return names;
}

void check_ranks(const MeshRequest& request) {
  if (request.ranks.empty() || static_cast<int64_t>(request.ranks.size()) > kMaxMembers) {
    fail(Status::kInvalidArgument, "mesh \"{}\": {} ranks: a mesh has 1 to {} members", request.name,
         request.ranks.size(), kMaxMembers);
  }
  std::set<int32_t> known;
  for (int32_t rank : request.ranks) {
    if (rank < 0) fail(Status::kInvalidArgument, "mesh \"{}\": rank {} is negative", request.name, rank);
    if (!known.insert(rank).second) {
      fail(Status::kInvalidArgument, "mesh \"{}\": rank {} is there twice: name each member once", request.name, rank);
    }
  }
  if (!request.granules.empty() && request.granules.size() != request.ranks.size()) {
    fail(Status::kInvalidArgument, "mesh \"{}\": {} granules for {} ranks: give each member one", request.name,
         request.granules.size(), request.ranks.size());
  }
}

// The shape with -1 replaced so that the product is `count`; `unit` names the counted items in messages.
Dims completed_shape(const MeshRequest& request, const Dims& asked, int64_t count, const char* kind, const char* unit,
                     const char* advice = "") {
  int64_t product = 1;
  size_t open = asked.size();
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] == -1 && open == asked.size()) {
      open = i;
      continue;
    }
    if (asked[i] < 1) {
      fail(Status::kInvalidArgument, "mesh \"{}\": {} {}: size {} of axis {} must be at least 1{}", request.name, kind,
           to_string(asked), asked[i], i, asked[i] == -1 ? ", as only one may be -1" : "");
    }
    if (__builtin_mul_overflow(product, asked[i], &product)) product = INT64_MAX;
  }
  Dims shape = asked;
  if (open < asked.size() && product <= count && count % product == 0) {
    shape[open] = count / product;
    product = count;
  }
  if (product != count || (open < asked.size() && shape[open] == -1)) {
    fail(Status::kInvalidArgument, "mesh \"{}\": {} {} does not fit {} {}{}", request.name, kind, to_string(asked),
         count, unit, advice);
  }
  return shape;
}

// The indices into `ranks` of each granule, granules ascending.
std::map<int64_t, std::vector<size_t>> members_by_granule(const MeshRequest& request) {
  std::map<int64_t, std::vector<size_t>> members;
  for (size_t i = 0; i < request.ranks.size(); ++i) {
    members[request.granules.empty() ? 0 : request.granules[i]].push_back(i);
  }
  const size_t first = members.begin()->second.size();
  for (const auto& [granule, indices] : members) {
    if (indices.size() == first) continue;
    fail(Status::kInvalidArgument,
         "mesh \"{}\": granule {} has {} members and granule {} has {}: a hybrid mesh needs granules of one size",
         request.name, members.begin()->first, first, granule, indices.size());
  }
  return members;
}

// The coordinates of index i in a row-major array of that shape.
Dims coordinates_of(int64_t index, const Dims& shape) {
  Dims coordinates;
  coordinates.resize(shape.size());
  for (size_t i = shape.size(); i-- > 0; index /= shape[i]) coordinates[i] = index % shape[i];
  return coordinates;
}

// For each position of a hybrid mesh: the index of its member in the list of ranks.
std::vector<size_t> hybrid_order(const std::map<int64_t, std::vector<size_t>>& members, const Dims& inner,
                                 const Dims& outer, const Dims& strides) {
  std::vector<size_t> order(members.size() * members.begin()->second.size());
  int64_t number = 0;
  for (const auto& [granule, indices] : members) {
    const Dims o = coordinates_of(number++, outer);
    for (size_t k = 0; k < indices.size(); ++k) {
      const Dims i = coordinates_of(static_cast<int64_t>(k), inner);
      int64_t position = 0;
      for (size_t axis = 0; axis < inner.size(); ++axis) position += (o[axis] * inner[axis] + i[axis]) * strides[axis];
      order[static_cast<size_t>(position)] = indices[k];
    }
  }
  return order;
}

}  // namespace

Axes Axes::from(size_t first) const {
  Axes rest;
  for (size_t i = first; i < size_; ++i) rest.push_back(items_[i]);
  return rest;
}

Axes axes_of(AxisSet set) {
  Axes axes;
  for (uint8_t axis = 0; axis < kMaxAxes; ++axis) {
    if (has_axis(set, axis)) axes.push_back(axis);
  }
  return axes;
}

MeshShape MeshShape::make(const MeshRequest& request) {
  check_ranks(request);
  if (request.shape.empty() || request.shape.size() > kMaxAxes) {
    fail(Status::kInvalidArgument, "mesh \"{}\": {} axes: a mesh has 1 to {}", request.name, request.shape.size(),
         kMaxAxes);
  }
  MeshShape mesh;
  mesh.name_ = request.name;
  mesh.axis_names_ = checked_names(request);
  const auto count = static_cast<int64_t>(request.ranks.size());
  std::vector<size_t> order(request.ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (request.outer_shape.empty()) {
    mesh.sizes_ = completed_shape(request, request.shape, count, "shape", "ranks");
    mesh.strides_ = row_major_strides(mesh.sizes_);
  } else {
    if (request.outer_shape.size() != request.shape.size()) {
      fail(Status::kInvalidArgument, "mesh \"{}\": outer shape {} and shape {} differ in their number of axes",
           request.name, to_string(request.outer_shape), to_string(request.shape));
    }
    const auto members = members_by_granule(request);
    const auto granules = static_cast<int64_t>(members.size());
    const char* advice = granules > 1 ? "" : ": all members are of one granule, as on one host: granules makes several";
    const Dims inner =
        completed_shape(request, request.shape, count / granules, "shape", "members of a granule", advice);
    const Dims outer = completed_shape(request, request.outer_shape, granules, "outer shape", "granules", advice);
    for (size_t i = 0; i < inner.size(); ++i) mesh.sizes_.push_back(inner[i] * outer[i]);
    mesh.strides_ = row_major_strides(mesh.sizes_);
    order = hybrid_order(members, inner, outer, mesh.strides_);
  }
  for (size_t i : order) {
    mesh.ranks_.push_back(request.ranks[i]);
    mesh.granules_.push_back(request.granules.empty() ? 0 : request.granules[i]);
  }
  return mesh;
}

std::optional<size_t> MeshShape::find_axis(std::string_view name) const {
  auto found = std::find(axis_names_.begin(), axis_names_.end(), name);
  if (found == axis_names_.end()) return std::nullopt;
  return static_cast<size_t>(found - axis_names_.begin());
}

std::optional<int64_t> MeshShape::position_of(int32_t rank) const {
  auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found == ranks_.end()) return std::nullopt;
  return found - ranks_.begin();
}

int64_t MeshShape::index_along(const Axes& axes, int64_t position) const {
  int64_t index = 0;
  for (uint8_t axis : axes) index = index * sizes_[axis] + coordinate(position, axis);
  return index;
}

int64_t MeshShape::size_of(const Axes& axes) const {
  int64_t size = 1;
  for (uint8_t axis : axes) size *= sizes_[axis];
  return size;
}

int64_t MeshShape::moved(int64_t position, const Axes& axes, int64_t index) const {
  for (size_t i = axes.size(); i-- > 0; index /= sizes_[axes[i]]) {
    position += (index % sizes_[axes[i]] - coordinate(position, axes[i])) * strides_[axes[i]];
  }
  return position;
}

std::vector<int64_t> MeshShape::group_of(const Axes& axes, int64_t position) const {
  std::vector<int64_t> group;
  const int64_t size = size_of(axes);
  group.reserve(static_cast<size_t>(size));
  for (int64_t index = 0; index < size; ++index) group.push_back(moved(position, axes, index));
  return group;
}

Axes MeshShape::used(const Axes& axes) const {
  Axes result;
  for (uint8_t axis : axes) {
    if (sizes_[axis] > 1) result.push_back(axis);
  }
  return result;
}

AxisSet MeshShape::used(AxisSet axes) const { return set_of(used(axes_of(axes))); }

std::string names_of(const MeshShape& mesh, const Axes& axes) {
  std::string text;
  for (uint8_t axis : axes) text += (text.empty() ? "" : ", ") + mesh.axis_name(axis);
  return text;
}

}  // namespace distag::layout
