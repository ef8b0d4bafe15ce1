#include "layout/traffic.h"

#include <gtest/gtest.h>

#include "meshes.h"

namespace distag::layout {
namespace {

using testing::mesh_of;

constexpr int64_t kItem = 8;
constexpr int64_t kCount = int64_t{1} << 58;  // 2^61 bytes, of which no sum of four is counted exactly

Traffic traffic_at(int64_t position, bool is_sum) {
  const MeshShape mesh = mesh_of({5});
  Spec cut(2);
  cut.dim(0).push_back(0);  // a dim of one, of which all but the first member have nothing
  Spec partial(2);
  partial.set_partial(AxisSet{1});
  const Dims shape = {1, kCount};
  const Move move(mesh, shape, is_sum ? partial : cut, is_sum ? cut : Spec(2));
  return traffic_of(mesh, shape, move, kItem, position);
}

TEST(Traffic, OfMoreBytesThanANumberHoldsIsTheLargestNumber) {
  EXPECT_EQ(traffic_of_all_gather(kCount, kItem, 4).sent, 3 * kItem * kCount);
  EXPECT_EQ(traffic_of_all_gather(kCount, kItem, 5).sent, INT64_MAX);
  EXPECT_EQ(traffic_of_all_reduce(kCount, kItem, 2, 0).sent, kItem * kCount);
  EXPECT_EQ(traffic_of_all_reduce(4 * kCount - 1, kItem, 4, 0).sent, INT64_MAX);
  EXPECT_EQ(traffic_at(0, true).received, INT64_MAX);
  EXPECT_EQ(traffic_at(1, true).sent, kItem * kCount);
  EXPECT_EQ(traffic_at(0, false).sent, INT64_MAX);
  EXPECT_EQ(traffic_at(1, false).received, kItem * kCount);
}

TEST(Traffic, SumsStayAtTheLargestNumber) {
  Traffic traffic{INT64_MAX - 1, 1};
  traffic += {2, 2};
  EXPECT_EQ(traffic.sent, INT64_MAX);
  EXPECT_EQ(traffic.received, 3);
}

}  // namespace
}  // namespace distag::layout
