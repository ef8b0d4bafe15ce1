#include <gtest/gtest.h>

#include <map>

#include "layout/spec.h"
#include "layout/spec_text.h"
#include "meshes.h"
#include "support/expect.h"

namespace distag::layout {
namespace {

using testing::failure_of;
using testing::mesh_of;
using testing::Random;

// Every list of axes in which axis k, in every order, goes to one of `places`.
void for_each_spec(const MeshShape& mesh, size_t rank, const std::function<void(const Spec&)>& visit) {
  std::vector<uint8_t> order(mesh.axis_count());
  std::iota(order.begin(), order.end(), uint8_t{0});
  do {
    std::vector<size_t> place(order.size(), 0);  // a dim, rank for partial, rank + 1 for repeated
    for (bool is_done = false; !is_done;) {
      Spec spec(rank);
      for (size_t i = 0; i < order.size(); ++i) {
        if (place[i] < rank) spec.dim(place[i]).push_back(order[i]);
        if (place[i] == rank) spec.set_partial(spec.partial() | AxisSet{1} << order[i]);
      }
      visit(spec);
      size_t i = 0;
      while (i < place.size() && ++place[i] == rank + 2) place[i++] = 0;
      is_done = i == place.size();
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

// For each part of the sum every element lies in exactly one distinct box, and the replicas of a box are numbered.
void check_cover(const MeshShape& mesh, const Spec& spec, const Dims& shape) {
  std::map<int64_t, std::map<std::vector<int64_t>, int64_t>> replicas;  // by part, by box
  std::map<int64_t, int64_t> covered;
  const Axes partial = axes_of(spec.partial());
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const Box box = box_of(mesh, spec, shape, position);
    std::vector<int64_t> key(box.offset.begin(), box.offset.end());
    key.insert(key.end(), box.extent.begin(), box.extent.end());
    for (size_t i = 0; i < shape.size(); ++i) {
      ASSERT_GE(box.extent[i], 0);
      ASSERT_LE(box.offset[i] + box.extent[i], shape[i]);
      ASSERT_TRUE(box.extent[i] > 0 || box.offset[i] == shape[i]);
    }
    const int64_t part = mesh.index_along(partial, position);
    const int64_t number = replicas[part][key]++;
    ASSERT_EQ(replica_of(mesh, spec, shape, position), number);
    if (number == 0) covered[part] += box.count();
  }
  for (const auto& [part, count] : covered) ASSERT_EQ(count, element_count(shape)) << print_spec(mesh, spec);
}

TEST(Box, CoverEveryElementOnce) {
  for (const Dims& sizes :
       {Dims{1}, Dims{2}, Dims{3}, Dims{4}, Dims{8}, Dims{2, 2}, Dims{2, 3}, Dims{1, 3}, Dims{4, 2}, Dims{2, 2, 2}}) {
    const MeshShape mesh = mesh_of(sizes);
    for_each_spec(mesh, 0, [&](const Spec& spec) { check_cover(mesh, spec, {}); });
    for (int64_t size = 0; size <= 9; ++size) {
      for_each_spec(mesh, 1, [&](const Spec& spec) { check_cover(mesh, spec, {size}); });
      for_each_spec(mesh, 2, [&](const Spec& spec) { check_cover(mesh, spec, {size, 5}); });
    }
  }
}

TEST(Box, BlocksAreFullThenSmallerThenEmpty) {
  const MeshShape mesh = mesh_of({2, 2});
  const Spec spec = parse_spec(mesh, "(('x', 'y'), None)", 2);
  // Not what cutting in turn gives: 5 in two is 3 and 2, and these in two 2, 1, 1, 1.
  EXPECT_EQ(to_string(box_of(mesh, spec, {5, 2}, 0)), "[0:2, 0:2]");
  EXPECT_EQ(to_string(box_of(mesh, spec, {5, 2}, 1)), "[2:4, 0:2]");
  EXPECT_EQ(to_string(box_of(mesh, spec, {5, 2}, 2)), "[4:5, 0:2]");
  EXPECT_EQ(to_string(box_of(mesh, spec, {5, 2}, 3)), "[5:5, 0:2]");
}

TEST(Box, OfSizesNearTheLimitDoNotOverflow) {
  const MeshShape mesh = mesh_of({4});
  const Spec spec = parse_spec(mesh, "('x',)", 1);
  const int64_t size = (int64_t{1} << 59) - 1;
  check_shape(mesh, spec, {size}, 8);
  EXPECT_EQ(box_of(mesh, spec, {size}, 3).extent[0], (int64_t{1} << 57) - 1);
  EXPECT_EQ(block_of(INT64_MAX, 4096, 4095).offset + block_of(INT64_MAX, 4096, 4095).extent, INT64_MAX);
  EXPECT_EQ(block_of(INT64_MAX - 1, INT64_MAX, INT64_MAX - 1).extent, 0);
  EXPECT_EQ(failure_of([&] { check_shape(mesh, spec, {size + 2}, 8); }),
            "INVALID_ARGUMENT: mesh \"mesh\": shape [576460752303423489] is of more than 2^62 bytes");
  EXPECT_EQ(failure_of([&] {
              check_shape(mesh, spec, {2, 2}, 8);
            }),
            "INVALID_ARGUMENT: mesh \"mesh\": a spec of 1 dims for shape [2, 2], which has 2: give one item per dim");
}

// Tensor of 2^40 elements, boxes only.
TEST(Box, OfATensorThatNoMemoryHolds) {
  const MeshShape mesh = mesh_of({2, 3});
  const Spec spec = parse_spec(mesh, "('y', 'x')", 2);
  EXPECT_EQ(to_string(box_of(mesh, spec, {int64_t{1} << 20, int64_t{1} << 20}, 5)), "[699052:1048576, 524288:1048576]");
}

}  // namespace
}  // namespace distag::layout
