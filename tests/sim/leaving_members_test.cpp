// Members that leave a mesh before others have finished, and lines of the library's own whose members differ.
#include <algorithm>
#include <vector>

#include "mesh_members.h"

namespace distag::sim {
namespace {

TEST(LeavingMembers, CallsThatWaitForAMemberThatLeftNameIt) {
  MeshGroup members(1, {2});
  members.mesh(1).leave();
  expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kDisconnected,
                 "worker \"w1\" (rank 1) has left it");
}

// The member that needs the one that left makes no more calls either.
TEST(LeavingMembers, AMemberThatWaitsForOneThatNeededTheOneThatLeftIsTold) {
  for_each_seed(40, [](uint64_t seed) {
    MeshGroup members(seed, {3});
    const CollectiveCall reduce = call_of(CollectiveKind::kReduce, members.all_axes(), numbers({2}, 1));
    const CollectiveCall broadcast = call_of(CollectiveKind::kBroadcast, members.all_axes(), numbers({2}, 1));
    std::vector<Result> results;
    const auto begin = [&](int32_t rank) {
      if (rank == 2) return members.mesh(2).leave();
      results.push_back(members.mesh(rank).collective(reduce));
      if (rank == 1) results.push_back(members.mesh(1).collective(broadcast));
    };
    std::vector<int32_t> order = {0, 1, 2};
    for (uint64_t i = 0; i < seed % 6; ++i) std::next_permutation(order.begin(), order.end());
    for (const int32_t rank : order) {
      begin(rank);
      members.group().scheduler().run_for(static_cast<Nanos>(seed % 7) * 100 * kMicrosecond);
    }
    size_t failed = 0;
    for (const Result& result : results) {
      wait(*result, kForever);
      if (result->error() == nullptr) continue;
      ++failed;
      expect_failure(*result->error(), Status::kDisconnected, "worker \"w2\" (rank 2) has left it");
    }
    EXPECT_GE(failed, 2u) << "the reduce of the root, and the broadcast of the other";
  });
}

// A broadcast of the member that leaves has come; a slower member makes that call after another member has failed in a
// later call.
TEST(LeavingMembers, WhatHasComeIsGivenThoughAnotherMemberNeedsTheOneThatLeft) {
  MeshGroup members(1, {3});
  CollectiveCall broadcast = call_of(CollectiveKind::kBroadcast, members.all_axes(), numbers({2}, 1));
  broadcast.root = 2;
  members.mesh(2).collective(broadcast);
  members.mesh(2).leave();
  EXPECT_TRUE(same_bits(value_of(members.mesh(0).collective(broadcast)), broadcast.tensor));
  expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
  members.group().scheduler().run_for(kSecond);
  EXPECT_TRUE(same_bits(value_of(members.mesh(1).collective(broadcast)), broadcast.tensor));
  expect_failure(failure_of(*members.mesh(1).collective(sum_of({2}))), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
}

// Parts that are larger than a message go in pieces, which smaller messages would overtake.
TEST(LeavingMembers, AMemberThatEndsBehindHasSentItsLargePartsBefore) {
  MeshGroup members(1, {3});
  CollectiveCall gather = call_of(CollectiveKind::kReduce, members.all_axes(), numbers({4'000'001}, 1));
  gather.root = 1;
  members.mesh(2).collective(gather);
  members.mesh(2).leave();
  const Result root = members.mesh(1).collective(gather);
  members.group().scheduler().run_for(kSecond);
  members.group().network().part("w0", "w1");  // so that the first pieces are not acknowledged, and the others wait
  members.mesh(0).collective(gather);
  members.group().scheduler().run_for(10 * kMillisecond);
  expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
  members.group().network().join("w0", "w1");
  EXPECT_TRUE(same_bits(value_of(root), expected_sum(std::vector<Tensor>(3, gather.tensor))));
}

// Each member is told once its own parts have come, whatever becomes of parts for others.
TEST(LeavingMembers, AMemberThatEndsBehindTellsTheOthersThoughOneIsGone) {
  MeshGroup members(1, {4});
  CollectiveCall broadcast = call_of(CollectiveKind::kBroadcast, members.all_axes(), numbers({2}, 1));
  members.group().network().part("w0", "w3");
  members.mesh(0).collective(broadcast);
  members.mesh(2).leave();
  members.group().scheduler().run_for(10 * kMillisecond);
  expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
  members.mesh(1).collective(broadcast);
  const Error error = failure_of(*members.mesh(1).collective(broadcast));
  expect_failure(error, Status::kDisconnected, "worker \"w2\" (rank 2) has left it");
  EXPECT_EQ(error.origin_rank(), 2);
}

// The worker hears nothing any more, and never acknowledges what it was sent.
TEST(LeavingMembers, AMeshOwesNothingToAWorkerThatShutDown) {
  SimGroupOptions options;
  options.is_open = true;
  MeshGroup members(1, {3}, options);
  wait(*members.group().worker(2).shutdown(60 * kSecond), kForever);
  for (const int32_t rank : {0, 1}) {
    expect_failure(failure_of(*members.mesh(rank).collective(sum_of({2}))), Status::kDisconnected,
                   "worker \"w2\" (rank 2) has left it");
  }
  members.group().scheduler().run_for(kSecond);
  for (const int32_t rank : {0, 1}) {
    members.group().loop(rank).run([&] { EXPECT_FALSE(members.mesh(rank).parts().end.owes_word()) << rank; });
  }
}

// The lost member never acknowledges the parts after which it would be told.
TEST(LeavingMembers, AMeshOwesNothingToAMemberThatIsLost) {
  MeshGroup members(1, {4});
  const auto owes_word = [&members] {
    bool owes = false;
    members.group().loop(0).run([&] { owes = members.mesh(0).parts().end.owes_word(); });
    return owes;
  };
  members.group().network().part("w0", "w3");
  members.mesh(0).collective(call_of(CollectiveKind::kBroadcast, members.all_axes(), numbers({2}, 1)));
  members.mesh(2).leave();
  members.group().scheduler().run_for(10 * kMillisecond);
  expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
  EXPECT_TRUE(owes_word());
  members.group().kill(3);
  members.group().scheduler().run_for(30 * kSecond);
  EXPECT_FALSE(owes_word());
}

// The member has an asynchronous call under way when it releases the mesh, and then that call fails.
TEST(LeavingMembers, AMemberThatLeavesAndEndsBehindAnotherNamesThat) {
  MeshGroup members(1, {3});
  const Result sum = members.mesh(0).collective(sum_of({2}));
  members.mesh(0).leave();
  members.group().scheduler().run_for(10 * kMillisecond);
  members.group().network().part("w1", "w2");  // so that w1 hears of it by w0 alone
  members.mesh(2).leave();
  expect_failure(failure_of(*sum), Status::kDisconnected, "worker \"w2\" (rank 2) has left it");
  members.mesh(1).collective(sum_of({2}));  // w0 has sent its part
  const Result broadcast =
      members.mesh(1).collective(call_of(CollectiveKind::kBroadcast, members.all_axes(), numbers({2}, 1)));
  const Error error = failure_of(*broadcast);
  expect_failure(error, Status::kDisconnected, "worker \"w2\" (rank 2) has left it");
  EXPECT_EQ(error.origin_rank(), 2);
}

// All members have used the line; the member that ended behind another one sends no last message on it.
TEST(LeavingMembers, AnOwnLineEndsWithAMemberThatEndedBehindAnother) {
  MeshGroup members(1, {3});
  CollectiveCall own = sum_of({2});
  own.line = "own";
  own.timeout = kForever;
  std::vector<Result> results;
  for (const int32_t rank : {0, 1, 2}) {
    members.group().loop(rank).run([&] { members.mesh(rank).open_own_line("own", Future<Unit>::make(), ""); });
    results.push_back(members.mesh(rank).collective(own));
  }
  for (const Result& result : results) value_of(result);
  members.mesh(2).leave();
  expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
  members.group().scheduler().run_for(kSecond);
  expect_failure(failure_of(*members.mesh(1).collective(own)), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
}

// A line of the library's own that the member has used ends by its last call; a line that it never used ends with the
// mesh.
TEST(LeavingMembers, AnOwnLineThatAMemberThatLeftNeverUsedEnds) {
  for (const bool leaves_first : {false, true}) {
    MeshGroup members(1, {2});
    const auto ended = Future<Unit>::make();
    Result result;
    const auto call = [&] {
      members.group().loop(0).run([&] { members.mesh(0).open_own_line("own", ended, ""); });
      CollectiveCall sum = sum_of({2});
      sum.line = "own";
      result = members.mesh(0).collective(sum);
    };
    if (!leaves_first) call();
    members.mesh(1).leave();
    members.group().scheduler().run_for(10 * kMillisecond);
    if (leaves_first) call();
    expect_failure(failure_of(*result), Status::kDisconnected, "worker \"w1\" (rank 1) has left it");
    expect_failure(failure_of(*ended), Status::kDisconnected, "worker \"w1\" (rank 1) has left it");
  }
}

// Each member has made another call before the one that made the line, so that the names of the lines differ.
TEST(LeavingMembers, OwnLinesThatNeverMeetAreOfProgramsThatDiffer) {
  MeshGroup members(1, {2});
  std::vector<Result> results;
  for (const int32_t rank : {0, 1}) {
    members.mesh(rank).note("", rank == 0 ? "one" : "other", static_cast<uint64_t>(rank));
    const std::string own = rank == 0 ? "own 1" : "own 2";
    members.group().loop(rank).run([&] { members.mesh(rank).open_own_line(own, Future<Unit>::make(), ""); });
    CollectiveCall sum = call_of(CollectiveKind::kAllReduce, members.all_axes(), numbers({2}, 1));
    sum.line = own;
    sum.timeout = kForever;
    results.push_back(members.mesh(rank).collective(sum));
  }
  for (const Result& result : results) expect_failure(failure_of(*result), Status::kDiverged, "other");
}

}  // namespace
}  // namespace distag::sim
