// Traps that need members of their own: tensors and meshes that are gathered, written or ended at an awkward moment.
#include <gtest/gtest.h>

#include <latch>
#include <string>

#include "autograd/autograd.h"
#include "optim/optimizer.h"
#include "optim/rules.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/programs.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

Tensor leaf(Member& member, const Dims& shape, int64_t seed, const char* spec) {
  Tensor tensor = numbers(shape, seed);
  spmd::mark_sharding(tensor, member.line, spec, -1);
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

TEST(TrapsOfMembers, AParameterOfTwoOpsIsGatheredForEach) {
  MeshGroup group({2}, refusing());
  group.run([](Member& member) {
    const Tensor weight = leaf(member, {6, 6}, 1, "('x', None)");
    const Tensor x = apply("clone", {leaf(member, {4, 6}, 2, "('x', None)")});
    const Mesh& mesh = member.line.program->mesh();
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    const Tensor hidden = apply("tanh", {apply("linear", {x, weight})});
    const Tensor loss = apply("mean", {apply("linear", {hidden, weight})});
    EXPECT_EQ(mesh.stats().all_gathers, 2u);
    context->backward({loss}, {});
    EXPECT_EQ(mesh.stats().all_gathers, 4u);
    EXPECT_EQ(mesh.stats().reduce_scatters, 1u);  // of the sum of both gradients

    const Tensor alone = numbers({6, 6}, 1);
    autograd::set_requires_grad(alone, true);
    const auto local = make_local_context();
    const Tensor hidden_alone = apply("tanh", {apply("linear", {numbers({4, 6}, 2), alone})});
    local->backward({apply("mean", {apply("linear", {hidden_alone, alone})})}, {});
    const auto expected = values_of<double>(*local->gradients()->find(alone));
    const auto got = values_of<double>(spmd::gather(*context->gradients()->find(weight), -1));
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
  });
}

TEST(TrapsOfMembers, ALeafThatNoRootReachesHasNoGradientAndStaysAsItIs) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor used = leaf(member, {4, 2}, 1, "('x', None)");
    const Tensor unused = leaf(member, {4, 2}, 2, "('x', None)");
    const auto adam = optim::make_in_process_optimizer(optim::find_rule("adam"), {used, unused});
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {apply("square", {used})})}, {});
    EXPECT_NE(context->gradients()->find(used), nullptr);
    EXPECT_EQ(context->gradients()->find(unused), nullptr);
    adam->step(context, {});
    EXPECT_EQ(values_of<double>(spmd::gather(unused, -1)), values_of<double>(numbers({4, 2}, 2)));
    EXPECT_NE(values_of<double>(spmd::gather(used, -1)), values_of<double>(numbers({4, 2}, 1)));
  });
}

// The tensor is large enough that its parts are asked for, and stay with their owner meanwhile.
TEST(TrapsOfMembers, AStepWhileAGatherIsUnderWayChangesNothingInIt) {
  constexpr int64_t kRows = 64 << 10;
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor weight = leaf(member, {kRows, 2}, 1, "('x', None)");
    const auto sgd = optim::make_in_process_optimizer(optim::find_rule("sgd"), {weight});
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {weight})}, {});
    const auto gathered = spmd::gather_async(weight, -1, 0);
    sgd->step(context, {});
    wait(*gathered, kForever);
    EXPECT_EQ(values_of<double>(gathered->value()), values_of<double>(numbers({kRows, 2}, 1)));
    EXPECT_NE(values_of<double>(spmd::gather(weight, -1)), values_of<double>(numbers({kRows, 2}, 1)));
  });
}

TEST(TrapsOfMembers, PartsOfAMeshThatHasEndedStayReadable) {
  MeshGroup group({2});
  std::latch made(2);
  group.run([&made](Member& member) {
    const Tensor x = leaf(member, {4, 2}, 1, "('x', None)");
    const Tensor y = apply("neg", {x});
    made.arrive_and_wait();  // a member that has ended the mesh would end the calls of the other
    member.line.program->mesh().end(Error(Status::kRemote, "it is over"));
    wait(*member.line.program->mesh().when_ended(), kForever);
    const auto whole = values_of<double>(numbers({4, 2}, 1));
    const auto part = values_of<double>(spmd::to_local(y, std::nullopt));
    ASSERT_EQ(part.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(part[i], -whole[static_cast<size_t>(member.position()) * 4 + i]);
  });
}

TEST(TrapsOfMembers, ATextOf10KiBEndsAMeshAsAShortOneDoes) {
  MeshGroup group({2}, {}, 20 * kSecond);
  const auto errors = group.try_run([](Member& member) {
    const Tensor x = leaf(member, {4, 2}, 1, "('x', None)");
    if (member.position() == 1) {
      member.line.program->mesh().end(Error(Status::kRemote, "too long: " + std::string(10 << 10, 'x')));
    }
    spmd::gather(x, -1);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kRemote);
    EXPECT_EQ(error->origin_rank(), 1);
    EXPECT_NE(error->message().find("too long: xxxx"), std::string::npos) << error->message().substr(0, 100);
  }
}

TEST(TrapsOfMembers, MeshesOfTheSameRanksMadeInAnotherOrderAreNotTakenForEachOther) {
  MeshGroup group({2});
  const auto errors = group.try_run([](Member& member) {
    layout::MeshRequest request;
    request.shape = {2};
    request.axis_names = {"x"};
    for (const char* name : {"first", "second"}) {
      request.name = member.position() == 0 ? name : std::string(name) == "first" ? "second" : "first";
      const auto made = member.worker.meshes().create(request, 20 * kSecond);
      wait(*made, kForever);
      made->value();
    }
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kDiverged) << error->message();
    EXPECT_NE(error->message().find("\"second\""), std::string::npos) << error->message();
  }
}

}  // namespace
}  // namespace distag::testing
