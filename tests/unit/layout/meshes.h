#pragma once

#include <numeric>
#include <random>

#include "layout/spec.h"

namespace distag::testing {

// Ranks 0, 1, 2, ... with axes x, y, z, ...
inline layout::MeshShape mesh_of(const Dims& sizes, std::vector<int64_t> granules = {}) {
  layout::MeshRequest request;
  request.shape = sizes;
  request.granules = std::move(granules);
  for (size_t i = 0; i < sizes.size(); ++i) request.axis_names.emplace_back(1, static_cast<char>("xyzuvwab"[i]));
  request.ranks.resize(static_cast<size_t>(element_count(sizes)));
  std::iota(request.ranks.begin(), request.ranks.end(), 0);
  return layout::MeshShape::make(request);
}

// The meshes on which everything is tried.
inline std::vector<Dims> mesh_sizes() { return {{2}, {3}, {4}, {2, 2}, {2, 3}, {2, 2, 2}, {1, 3}}; }

using Random = std::mt19937;
inline size_t below(Random& random, size_t count) { return random() % count; }

// Each axis cuts a dim, is partial, or neither.
inline layout::Spec random_spec(const layout::MeshShape& mesh, size_t rank, bool may_be_partial, Random& random) {
  layout::Spec spec(rank);
  std::vector<uint8_t> axes(mesh.axis_count());
  std::iota(axes.begin(), axes.end(), uint8_t{0});
  std::shuffle(axes.begin(), axes.end(), random);
  for (uint8_t axis : axes) {
    const size_t choice = below(random, rank + 2);
    if (choice < rank) spec.dim(choice).push_back(axis);
    if (choice == rank && may_be_partial) spec.set_partial(spec.partial() | layout::AxisSet{1} << axis);
  }
  return spec;
}

}  // namespace distag::testing
