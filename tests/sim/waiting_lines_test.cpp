// Lines of the library's own that wait for other members.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "coll/meshes.h"
#include "support/sim_group.h"
#include "support/tensors.h"

namespace distag::sim {
namespace {

using distag::testing::tensor_of;

// Waiting lines keep no member from leaving. Calls that wait on them end then.
TEST(WaitingLines, EndWhenTheirMemberLeavesTheMesh) {
  SimGroupOptions options;
  options.size = 2;
  SimWorkerGroup group(1, options);
  group.start();
  layout::MeshRequest request;
  request.name = "train";
  request.shape = {2};
  request.axis_names = {"x"};
  std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
  for (int32_t rank = 0; rank < 2; ++rank) made.push_back(group.worker(rank).meshes().create(request, 30 * kSecond));
  for (const auto& one : made) wait(*one, kForever);
  std::shared_ptr<Mesh> mesh = made[0]->value();
  const auto ended = Future<Unit>::make();
  group.loop(0).run([&mesh, &ended] { mesh->open_own_line("own", ended, ""); });
  CollectiveCall call;
  call.axes = {0};
  call.tensor = tensor_of<double>({1}, {1});
  call.line = "own";
  call.timeout = kForever;
  const auto result = mesh->collective(call);
  group.scheduler().run_for(kSecond);
  EXPECT_FALSE(result->is_done());
  mesh->leave();
  group.scheduler().run_for(kSecond);
  for (const Completion* one :
       {static_cast<const Completion*>(result.get()), static_cast<const Completion*>(ended.get())}) {
    ASSERT_TRUE(one->is_done());
    ASSERT_NE(one->error(), nullptr);
    EXPECT_EQ(one->error()->status(), Status::kInvalidState) << one->error()->message();
  }
  group.shutdown();
}

}  // namespace
}  // namespace distag::sim
