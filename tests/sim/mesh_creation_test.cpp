// Meshes that some members have and others have not, or have no more.
#include <memory>
#include <utility>
#include <vector>

#include "mesh_members.h"

namespace distag::sim {
namespace {

using Made = std::shared_ptr<Future<std::shared_ptr<Mesh>>>;

// Two workers, and their creations of a mesh.
class CreationTest : public ::testing::Test {
 protected:
  void start(uint64_t seed) {
    group_.reset();  // one at a time
    group_ = std::make_unique<SimWorkerGroup>(seed, SimGroupOptions());
    group_->start();
  }
  Made create(int32_t rank, Nanos timeout, std::vector<int32_t> ranks = {0, 1}) {
    layout::MeshRequest request;
    request.name = "train";
    request.ranks = std::move(ranks);
    request.shape = {-1};
    request.axis_names = {"x"};
    return group_->worker(rank).meshes().create(std::move(request), timeout);
  }
  // Rank 0 gets the mesh, and rank 1 gives up before it hears of that. Returns the mesh of rank 0.
  std::shared_ptr<Mesh> create_for_one() {
    const Made first = create(0, kForever);
    const Made given_up = create(1, kForever);
    EXPECT_TRUE(group_->scheduler().run_until([&] { return first->is_done(); }, kSecond));
    EXPECT_FALSE(given_up->is_done());
    given_up->cancel();
    expect_failure(failure_of(*given_up), Status::kCancelled, "mesh: cancelled by the caller");
    return first->value();
  }
  CollectiveCall sum_for_ever() {
    CollectiveCall call = sum_of({2});
    call.timeout = kForever;
    return call;
  }
  bool is_over_within(const Completion& completion, Nanos time) {
    return group_->scheduler().run_until([&] { return completion.is_done(); }, time);
  }

  std::unique_ptr<SimWorkerGroup> group_;
};

// At whatever moment it gives up: whoever has the mesh hears of it within about a second, though the future is kept.
TEST_F(CreationTest, OneThatAMemberCancelsEndsOnTheOthers) {
  size_t made = 0, failed = 0;
  for_each_seed(200, [&](uint64_t seed) {
    start(seed);
    const Made kept = create(0, 30 * kSecond);
    const Made given_up = create(1, 30 * kSecond);
    group_->scheduler().run_for(static_cast<Nanos>(seed) * 20 * kMicrosecond);
    given_up->cancel();
    if (given_up->error() == nullptr) return;
    ASSERT_TRUE(is_over_within(*kept, 40 * kSecond));
    if (kept->error() != nullptr) {
      ++failed;
      return expect_failure(*kept->error(), Status::kDeadline, "\"w1\"");
    }
    ++made;
    const Result result = kept->value()->collective(sum_for_ever());
    ASSERT_TRUE(is_over_within(*result, 3 * kSecond));
    EXPECT_EQ(result->error()->status(), Status::kDisconnected) << result->error()->message();
    EXPECT_EQ(result->error()->origin_rank(), 1);
    for (const ShutdownReport& report : group_->shutdown()) EXPECT_TRUE(report.clean);
  });
  EXPECT_GT(made, 0u);
  EXPECT_GT(failed, 0u);
}

// Its next creation, which waits for the other, does not keep it from saying that it has no such mesh.
TEST_F(CreationTest, AMemberThatCreatesAgainSaysThatItHasNoSuchMesh) {
  start(1);
  const std::shared_ptr<Mesh> mesh = create_for_one();
  const Made again = create(1, kForever);
  const Result result = mesh->collective(sum_for_ever());
  ASSERT_TRUE(is_over_within(*result, 3 * kSecond));
  expect_failure(failure_of(*result), Status::kDisconnected, "worker \"w1\" (rank 1) does not have this mesh");
  const Made other = create(0, kForever);
  ASSERT_TRUE(is_over_within(*again, kSecond) && is_over_within(*other, kSecond));
  const Result sum = again->value()->collective(sum_for_ever());
  value_of(other->value()->collective(sum_for_ever()));
  value_of(sum);
}

// A member that hears late is asked where it is before it has the mesh, and has it then: also by a member that does not
// tell which creation it means.
TEST_F(CreationTest, AMemberThatHasTheMeshLaterIsNotDenied) {
  for (const uint64_t proposed : {1, 0}) {
    start(1);
    const Made first = create(0, kForever);
    const Made second = create(1, kForever);
    ASSERT_TRUE(group_->scheduler().run_until([&] { return first->is_done(); }, kSecond));
    const Id mesh = first->value()->id();
    group_->loop(1).run([&] {
      const Peer asking = group_->worker(1).group().membership().find_by_rank(0)->peer;
      const wire::Message where{0, 0, {}, wire::Where{mesh, "", {}, proposed}};
      EXPECT_EQ(group_->worker(1).meshes().handle(asking, where), Heard::kHandled);
    });
    ASSERT_TRUE(is_over_within(*second, kSecond));
    const Result sum = first->value()->collective(sum_for_ever());
    value_of(second->value()->collective(sum_for_ever()));
    value_of(sum);
  }
}

// A member forgets meshes that have ended, but not before it has told the others: here one that cannot be reached has
// yet to hear with which member the mesh ended.
TEST(MeshCreation, AMeshIsKeptUntilAllHaveHeardOfItsEnd) {
  MeshGroup members(1, {3});
  SimWorkerGroup& group = members.group();
  CollectiveCall to_other = call_of(CollectiveKind::kReduce, members.all_axes(), numbers({2}, 1));
  to_other.root = 1;
  const CollectiveCall to_first = call_of(CollectiveKind::kReduce, members.all_axes(), numbers({2}, 1));
  group.network().part("w0", "w1");
  members.mesh(0).collective(to_other);
  members.mesh(2).collective(to_other);
  members.mesh(2).leave();
  group.scheduler().run_for(10 * kMillisecond);
  expect_failure(failure_of(*members.mesh(0).collective(to_first)), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
  members.forget(0);
  layout::MeshRequest alone;
  alone.ranks = {0};
  for (int i = 0; i < 70; ++i) {
    const auto made = group.worker(0).meshes().create(alone, kSecond);
    wait(*made, kForever);
    made->value()->leave();
    group.scheduler().run_for(kMillisecond);
  }
  group.network().join("w0", "w1");
  members.mesh(1).collective(to_other);
  members.mesh(1).collective(to_first);
  const Result result = members.mesh(1).collective(call_of(CollectiveKind::kBroadcast, {0}, numbers({2}, 1)));
  expect_failure(failure_of(*result), Status::kDisconnected, "worker \"w2\" (rank 2) has left it");
}

}  // namespace
}  // namespace distag::sim
