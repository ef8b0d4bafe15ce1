// The option check_replicas of a mesh: plain tensors that should be equal on all members are compared by hash.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/attributes.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/programs.h"
#include "spmd/tensors.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

MeshPolicy checking() {
  MeshPolicy policy;
  policy.check_replicas = true;
  return policy;
}

TEST(CheckedReplicas, EqualOnesPass) {
  MeshGroup group({2, 2}, checking());
  group.run([](Member& member) {
    const Tensor x = tensor_of<double>({4}, {1, 2, 3, 4});
    spmd::mark_sharding(x, member.line, "('x',)", -1);
    const Tensor y = tensor_of<double>({4}, {5, 6, 7, 8});
    EXPECT_EQ(values_of<double>(spmd::gather(apply("mul", {x, y}), -1)), (std::vector<double>{5, 12, 21, 32}));
  });
}

TEST(CheckedReplicas, UnequalOneInAnOpIsToldOf) {
  for (const bool checks : {false, true}) {
    MeshGroup group({2, 2}, checks ? checking() : MeshPolicy());
    const auto errors = group.try_run([](Member& member) {
      const Tensor x = tensor_of<double>({4}, {1, 2, 3, 4});
      spmd::mark_sharding(x, member.line, "(('x', 'y'),)", -1);  // gathered from all
      const Tensor y = tensor_of<double>({4}, {5, 6, member.position() == 3 ? 7.5 : 7, 8});
      spmd::gather(apply("mul", {x, y}), -1);
    });
    for (const auto& error : errors) {
      ASSERT_EQ(error.has_value(), checks);
      if (!checks) continue;
      EXPECT_EQ(error->status(), Status::kDiverged) << error->message();
      EXPECT_NE(error->message().find("mul("), std::string::npos) << error->message();
      EXPECT_NE(error->message().find("plain elements of hash"), std::string::npos) << error->message();
    }
  }
}

TEST(CheckedReplicas, UnequalOneThatIsMarkedIsToldOf) {
  for (const bool checks : {false, true}) {
    MeshGroup group({2}, checks ? checking() : MeshPolicy());
    const auto errors = group.try_run([](Member& member) {
      const Tensor x = tensor_of<double>({2}, {1, static_cast<double>(member.position())});
      spmd::mark_sharding(x, member.line, "('x',)", -1);
      spmd::gather(x, -1);
    });
    for (const auto& error : errors) {
      ASSERT_EQ(error.has_value(), checks);
      if (!checks) continue;
      EXPECT_EQ(error->status(), Status::kDiverged) << error->message();
      EXPECT_NE(error->message().find("mark_sharding("), std::string::npos) << error->message();
    }
  }
}

TEST(CheckedReplicas, SourceOfAMarkIsNoReplica) {
  MeshGroup group({2}, checking());
  group.run([](Member& member) {
    const Tensor x = tensor_of<double>({2}, {1, static_cast<double>(member.position())});
    spmd::mark_sharding(x, member.line, "('x',)", 1);
    EXPECT_EQ(values_of<double>(spmd::gather(x, -1)), (std::vector<double>{1, 1}));
  });
}

}  // namespace
}  // namespace distag::testing
