#include "layout/mesh_shape.h"

#include <gtest/gtest.h>

#include "meshes.h"
#include "support/expect.h"

namespace distag::layout {
namespace {

using testing::failure_of;
using testing::mesh_of;

std::vector<int32_t> ranks(int32_t count) {
  std::vector<int32_t> result(static_cast<size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

std::string failure(MeshRequest request) {
  return failure_of([&] { MeshShape::make(request); });
}

TEST(MeshShape, IsRowMajor) {
  const MeshShape mesh = mesh_of({2, 3});
  EXPECT_EQ(mesh.coordinate(4, 0), 1);
  EXPECT_EQ(mesh.coordinate(4, 1), 1);
  EXPECT_EQ(mesh.index_along({1, 0}, 4), 3);
  EXPECT_EQ(mesh.moved(4, {1}, 2), 5);
  EXPECT_EQ(mesh.group_of({0}, 4), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(mesh.group_of({}, 4), (std::vector<int64_t>{4}));
}

TEST(MeshShape, OneSizeIsWorkedOut) {
  MeshRequest request{.shape = {-1, 2}, .axis_names = {}, .ranks = ranks(6), .outer_shape = {}, .granules = {}};
  const MeshShape mesh = MeshShape::make(request);
  EXPECT_EQ(mesh.sizes(), (Dims{3, 2}));
  EXPECT_EQ(mesh.axis_name(1), "axis1");
}

TEST(MeshShape, RefusesWithItsReason) {
  MeshRequest good{.shape = {2, 2}, .axis_names = {"x", "y"}, .ranks = {5, 2, 9, 7}, .outer_shape = {}, .granules = {}};
  EXPECT_EQ(failure(good), "no failure");
  auto with = [&good](auto change) {
    MeshRequest request = good;
    change(request);
    return failure(request);
  };
  EXPECT_EQ(with([](MeshRequest& r) {
              r.shape = {2, 3};
            }),
            "INVALID_ARGUMENT: mesh \"mesh\": shape [2, 3] does not fit 4 ranks");
  EXPECT_EQ(with([](MeshRequest& r) {
              r.shape = {3, -1};
            }),
            "INVALID_ARGUMENT: mesh \"mesh\": shape [3, -1] does not fit 4 ranks");
  EXPECT_EQ(with([](MeshRequest& r) {
              r.shape = {-1, -1};
            }),
            "INVALID_ARGUMENT: mesh \"mesh\": shape [-1, -1]: size -1 of axis 1 must be at least 1, as only one may be "
            "-1");
  EXPECT_EQ(with([](MeshRequest& r) {
              r.shape = {0, 4};
            }),
            "INVALID_ARGUMENT: mesh \"mesh\": shape [0, 4]: size 0 of axis 0 must be at least 1");
  EXPECT_EQ(with([](MeshRequest& r) { r.axis_names = {"x"}; }),
            "INVALID_ARGUMENT: mesh \"mesh\": 1 axis names for 2 sizes: give each axis one name");
  EXPECT_EQ(with([](MeshRequest& r) {
              r.axis_names = {"x", "x"};
            }),
            "INVALID_ARGUMENT: mesh \"mesh\": two axes are named \"x\": give each a name of its own");
  for (const char* name : {"", "1x", "a b", "None", "sum", "x'"}) {
    EXPECT_NE(with([name](MeshRequest& r) { r.axis_names[0] = name; }), "no failure") << name;
  }
  EXPECT_EQ(with([](MeshRequest& r) { r.ranks[3] = 5; }),
            "INVALID_ARGUMENT: mesh \"mesh\": rank 5 is there twice: name each member once");
  EXPECT_EQ(with([](MeshRequest& r) { r.ranks[3] = -1; }), "INVALID_ARGUMENT: mesh \"mesh\": rank -1 is negative");
  EXPECT_EQ(with([](MeshRequest& r) { r.shape = {}; }), "INVALID_ARGUMENT: mesh \"mesh\": 0 axes: a mesh has 1 to 8");
  EXPECT_EQ(with([](MeshRequest& r) {
              r.shape = {INT64_MAX, INT64_MAX};
            }),
            "INVALID_ARGUMENT: mesh \"mesh\": shape [9223372036854775807, 9223372036854775807] does not fit 4 ranks");
  EXPECT_EQ(failure({.shape = {5000}, .axis_names = {}, .ranks = ranks(5000), .outer_shape = {}, .granules = {}}),
            "INVALID_ARGUMENT: mesh \"mesh\": 5000 ranks: a mesh has 1 to 4096 members");
}

// The shape is that within a granule; the outer index is the more significant one on each axis.
TEST(MeshShape, HybridFillsGranules) {
  MeshRequest request{.shape = {1, 2},
                      .axis_names = {"data", "model"},
                      .ranks = {0, 1, 2, 3, 4, 5},
                      .outer_shape = {3, 1},
                      .granules = {7, 5, 7, 5, 6, 6}};
  const MeshShape mesh = MeshShape::make(request);
  EXPECT_EQ(mesh.sizes(), (Dims{3, 2}));
  EXPECT_EQ(mesh.ranks(), (std::vector<int32_t>{1, 3, 4, 5, 0, 2}));
  EXPECT_EQ(mesh.granules(), (std::vector<int64_t>{5, 5, 6, 6, 7, 7}));
  request.shape = {2, 1};
  request.outer_shape = {1, 3};
  // Granules along the columns, members of one along the rows.
  EXPECT_EQ(MeshShape::make(request).ranks(), (std::vector<int32_t>{1, 4, 0, 3, 5, 2}));
  request.shape = {2};
  EXPECT_NE(failure(request), "no failure");
  request.shape = {2, 2};
  EXPECT_EQ(failure(request), "INVALID_ARGUMENT: mesh \"mesh\": shape [2, 2] does not fit 2 members of a granule");
  request.shape = {2, 1};
  request.outer_shape = {1, 2};
  EXPECT_EQ(failure(request), "INVALID_ARGUMENT: mesh \"mesh\": outer shape [1, 2] does not fit 3 granules");
  request.granules[0] = 6;
  EXPECT_EQ(
      failure(request),
      "INVALID_ARGUMENT: mesh \"mesh\": granule 5 has 2 members and granule 6 has 3: a hybrid mesh needs granules "
      "of one size");
  request.granules = {};
  EXPECT_EQ(failure(request),
            "INVALID_ARGUMENT: mesh \"mesh\": shape [2, 1] does not fit 6 members of a granule: all members are of one "
            "granule, as on one host: granules makes several");
}

TEST(MeshShape, HybridOfTheDocumentOfXla) {
  MeshRequest request{.shape = {1, 4, 1},
                      .axis_names = {"data", "fsdp", "tensor"},
                      .ranks = ranks(8),
                      .outer_shape = {2, 1, 1},
                      .granules = {0, 0, 0, 0, 1, 1, 1, 1}};
  const MeshShape mesh = MeshShape::make(request);
  EXPECT_EQ(mesh.sizes(), (Dims{2, 4, 1}));
  EXPECT_EQ(mesh.ranks(), ranks(8));
}

}  // namespace
}  // namespace distag::layout
