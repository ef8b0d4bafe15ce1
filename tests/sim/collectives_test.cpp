// Collectives of meshes over whole workers: values, counts, one order of addition, early parts, members that differ, do
// not come, fail alone, are lost or leave.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "coll/meshes.h"
#include "layout/spec_text.h"
#include "mesh_members.h"
#include "ops/op.h"
#include "support/sim_memory.h"

namespace distag::sim {
namespace {

// ---- values and counts ----

TEST(Collectives, AllReduceHasTheSameBitsByEachAlgorithm) {
  for_each_seed(12, [](uint64_t seed) {
    SimGroupOptions options;
    options.faults.drop = 0.005;
    MeshGroup members(seed, {1 + static_cast<int64_t>(seed % 4)}, options);
    // The first goes directly, the second in chunks; 3 elements make chunks that are empty.
    for (const int64_t count : {int64_t{3}, int64_t{70001}, int64_t{0}}) {
      std::vector<Tensor> operands;
      std::vector<Result> results;
      for (int32_t rank = 0; rank < members.size(); ++rank) {
        operands.push_back(numbers({count}, rank + 1));
        results.push_back(
            members.mesh(rank).collective(call_of(CollectiveKind::kAllReduce, members.all_axes(), operands.back())));
      }
      for (const Result& result : results) EXPECT_TRUE(same_bits(value_of(result), expected_sum(operands)));
    }
    members.shut_down();
  });
}

TEST(Collectives, CountTheMessagesAndBytesThatGo) {
  MeshGroup members(1, {4});
  auto run = [&members](int64_t count) {
    const MeshStats before = members.stats(0);
    std::vector<Result> results;
    for (int32_t rank = 0; rank < 4; ++rank) {
      results.push_back(members.mesh(rank).collective(
          call_of(CollectiveKind::kAllReduce, members.all_axes(), numbers({count}, rank))));
    }
    for (const Result& result : results) value_of(result);
    MeshStats after = members.stats(0);
    after.parts_sent -= before.parts_sent;
    after.bytes_sent -= before.bytes_sent;
    after.bytes_received -= before.bytes_received;
    return after;
  };
  // Directly: each member sends its operand to the three others. 4 x 128 KiB is the most that goes so.
  MeshStats stats = run(16384);
  EXPECT_EQ(stats.parts_sent, 3u);
  EXPECT_EQ(stats.bytes_sent, 3u * 131072u);
  EXPECT_EQ(stats.bytes_received, 3u * 131072u);
  // In chunks: each member sends three quarters of its operand, and its own quarter three times.
  stats = run(16388);
  EXPECT_EQ(stats.parts_sent, 6u);
  EXPECT_EQ(stats.bytes_sent, 2u * 3u * 4097u * 8u);
  EXPECT_EQ(stats.bytes_received, 2u * 3u * 4097u * 8u);
  EXPECT_EQ(stats.all_reduces, 2u);
  EXPECT_EQ(stats.calls, 2u);
}

// Positions of a granule are added first, then the granules: also where positions alternate between granules.
TEST(Collectives, FoldGranulesFirst) {
  MeshGroup members(3, {4}, {}, {1, 0, 1, 0});
  const double values[] = {1e16, 1.0, -1e16, 1.0};
  std::vector<Result> results;
  for (int32_t rank = 0; rank < 4; ++rank) {
    results.push_back(members.mesh(rank).collective(
        call_of(CollectiveKind::kAllReduce, {0}, Tensor::scalar(Dtype::kFloat64, values[rank]))));
  }
  // (1 + 1) + (1e16 - 1e16); ascending positions would give 1.
  for (const Result& result : results) EXPECT_EQ(value_of(result).item(), 2.0);
}

TEST(Collectives, ReduceByMinimumMaximumAndProduct) {
  MeshGroup members(1, {3});
  const std::pair<Reduction, double> cases[] = {
      {Reduction::kMin, -2}, {Reduction::kMax, 5}, {Reduction::kProduct, -30}, {Reduction::kSum, 6}};
  for (const auto& [reduction, expected] : cases) {
    const double values[] = {3, -2, 5};
    std::vector<Result> results;
    for (int32_t rank = 0; rank < 3; ++rank) {
      CollectiveCall call = call_of(CollectiveKind::kAllReduce, {0}, Tensor::scalar(Dtype::kFloat64, values[rank]));
      call.reduction = reduction;
      results.push_back(members.mesh(rank).collective(call));
    }
    for (const Result& result : results) EXPECT_EQ(value_of(result).item(), expected);
  }
}

TEST(Collectives, GiveWhatTheirNamesSay) {
  for_each_seed(10, [](uint64_t seed) {
    MeshGroup members(seed, {2, 3});
    const layout::Axes row{1};
    auto run = [&](const std::function<CollectiveCall(int32_t rank)>& make) {
      std::vector<Result> results;
      for (int32_t rank = 0; rank < 6; ++rank) results.push_back(members.mesh(rank).collective(make(rank)));
      std::vector<Tensor> values;
      for (const Result& result : results) values.push_back(value_of(result));
      return values;
    };
    auto of = [](const Tensor& tensor) { return tensor ? values_of<double>(tensor) : std::vector<double>(); };
    using Numbers = std::vector<double>;
    // Sizes of the dim differ: the member in the middle has size 0.
    auto got = run([&](int32_t rank) {
      const int64_t rows = (rank % 3 + 2) % 3;
      return call_of(CollectiveKind::kAllGather, row, tensor_of<double>({rows}, Numbers(size_t(rows), rank)));
    });
    EXPECT_EQ(of(got[1]), (Numbers{0, 0, 2}));
    EXPECT_EQ(of(got[5]), (Numbers{3, 3, 5}));
    const auto four = [](int32_t rank) { return tensor_of<double>({4}, {1.0 * rank, 10.0, 20.0, 30.0}); };
    got = run([&](int32_t rank) { return call_of(CollectiveKind::kReduceScatter, row, four(rank)); });
    EXPECT_EQ(of(got[0]), (Numbers{3, 30}));
    EXPECT_EQ(of(got[4]), (Numbers{60, 90}));
    EXPECT_EQ(of(got[5]), Numbers());
    got = run([&](int32_t rank) {
      CollectiveCall call = call_of(CollectiveKind::kAllToAll, row,
                                    tensor_of<double>({1, 3}, {10.0 * rank, 10.0 * rank + 1, 10.0 * rank + 2}));
      call.dim = 1;
      call.dim_to = 0;
      return call;
    });
    EXPECT_EQ(got[4].shape(), (Dims{3, 1}));
    EXPECT_EQ(of(got[4]), (Numbers{31, 41, 51}));
    for (const int64_t count : {int64_t{2}, int64_t{9000}}) {
      got = run([&](int32_t rank) {
        CollectiveCall call = call_of(CollectiveKind::kBroadcast, row, numbers({count}, rank));
        call.root = 2;
        return call;
      });
      EXPECT_TRUE(same_bits(got[0], numbers({count}, 2)) && same_bits(got[5], numbers({count}, 5)));
    }
    for (const int64_t count : {int64_t{2}, int64_t{30000}}) {
      got = run([&](int32_t rank) {
        CollectiveCall call = call_of(CollectiveKind::kReduce, row, numbers({count}, rank));
        call.root = 1;
        return call;
      });
      EXPECT_FALSE(got[0]);
      EXPECT_TRUE(same_bits(got[4], expected_sum({numbers({count}, 3), numbers({count}, 4), numbers({count}, 5)})));
    }
    got = run([&](int32_t rank) {
      CollectiveCall call = call_of(CollectiveKind::kPermute, row, Tensor::scalar(Dtype::kFloat64, rank));
      call.shift = -1;
      return call;
    });
    EXPECT_EQ(got[0].item(), 1);
    EXPECT_EQ(got[5].item(), 3);
    members.shut_down();
  });
}

// The shard that a member holds of a tensor; the first member holds all of a sum.
Tensor shard_of(const layout::MeshShape& mesh, const layout::Spec& spec, const Tensor& whole, int64_t position) {
  const layout::Box box = box_of(mesh, spec, whole.shape(), position);
  int64_t offset = 0;
  for (size_t i = 0; i < box.offset.size() && !box.empty(); ++i) offset += box.offset[i] * whole.strides()[i];
  Tensor shard =
      box.empty() ? Tensor::empty(whole.dtype(), box.extent) : whole.view(box.extent, whole.strides(), offset).clone();
  if (mesh.index_along(layout::axes_of(spec.partial()), position) != 0) {
    for (int64_t i = 0; i < shard.count(); ++i) shard.mutable_data_as<double>()[i] = 0;
  }
  return shard;
}

TEST(Collectives, RedistributeGivesEachMemberItsBox) {
  for_each_seed(60, [](uint64_t seed) {
    const Dims meshes[] = {{4}, {2, 2}, {2, 3}};
    MeshGroup members(seed, meshes[seed % 3]);
    SeededRandom random(seed);
    for (int round = 0; round < 5; ++round) {
      const layout::MeshShape& mesh = members.mesh(0).shape();
      auto random_spec = [&](bool may_be_partial) {
        layout::Spec spec(2);
        for (uint8_t axis = 0; axis < mesh.axis_count(); ++axis) {
          const uint64_t place = random.next() % 4;
          if (place < 2) spec.dim(place).push_back(axis);
          if (place == 2 && may_be_partial) spec.set_partial(spec.partial() | layout::AxisSet{1} << axis);
        }
        return spec;
      };
      const Dims shape{static_cast<int64_t>(random.next() % 8), static_cast<int64_t>(1 + random.next() % 7)};
      const Tensor whole = numbers(shape, 5);
      const layout::Spec from = random_spec(true);
      const layout::Spec to = random_spec(false);
      SCOPED_TRACE(print_spec(mesh, from) + " -> " + print_spec(mesh, to) + " of " + to_string(shape));
      std::vector<Result> results;
      for (int32_t rank = 0; rank < members.size(); ++rank) {
        results.push_back(
            members.mesh(rank).redistribute({shape, shard_of(mesh, from, whole, rank), from, to, "", 0, ""}));
      }
      for (int32_t rank = 0; rank < members.size(); ++rank) {
        EXPECT_TRUE(same_bits(value_of(results[static_cast<size_t>(rank)]), shard_of(mesh, to, whole, rank)));
      }
    }
    members.shut_down();
  });
}

// ---- order ----

// Each member makes its calls far ahead of the others, on two lines, over connections that drop.
TEST(Collectives, MeetByNumberAndLineWhateverComesFirst) {
  for_each_seed(40, [](uint64_t seed) {
    SimGroupOptions options;
    options.faults.drop = 0.02;
    MeshGroup members(seed, {3}, options);
    std::map<int, std::vector<Result>> results;
    for (int32_t rank = 0; rank < 3; ++rank) {
      for (int k = 0; k < 20; ++k) {
        CollectiveCall call = call_of(CollectiveKind::kAllReduce, {0}, Tensor::scalar(Dtype::kFloat64, 100 * k + rank));
        call.line = (k + rank) % 2 == 0 ? "" : "b";
        call.tensor = Tensor::scalar(Dtype::kFloat64, call.line.empty() ? 1 : 10);
        results[rank].push_back(members.mesh(rank).collective(call));
      }
      members.group().scheduler().run_for(20 * kMillisecond);
    }
    for (int32_t rank = 0; rank < 3; ++rank) {
      for (int k = 0; k < 20; ++k) {
        EXPECT_EQ(value_of(results[rank][static_cast<size_t>(k)]).item(), (k + rank) % 2 == 0 ? 3 : 30);
      }
    }
    members.shut_down();
  });
}

TEST(Collectives, KeepTheValuesOfTheCall) {
  MeshGroup members(1, {2});
  Tensor x = tensor_of<double>({2}, {1, 2});
  const Result first = members.mesh(0).collective(call_of(CollectiveKind::kAllReduce, {0}, x));
  x.mutable_data_as<double>()[0] = 50;
  const Result second =
      members.mesh(1).collective(call_of(CollectiveKind::kAllReduce, {0}, tensor_of<double>({2}, {1, 1})));
  EXPECT_EQ(values_of<double>(value_of(second)), (std::vector<double>{2, 3}));
  EXPECT_EQ(values_of<double>(value_of(first)), (std::vector<double>{2, 3}));
}

// ---- members that differ ----

TEST(Collectives, OfProgramsThatDifferFailOnAllWithBothCalls) {
  struct Different {
    CollectiveCall call;
    const char* text;
  };
  CollectiveCall by_max = sum_of({2});
  by_max.reduction = Reduction::kMax;
  const Different cases[] = {
      {sum_of({3}), "all_reduce(float64[3], sum, axes x)"},
      {call_of(CollectiveKind::kAllGather, {0}, numbers({2}, 1)), "all_gather(float64[2], axes x)"},
      {call_of(CollectiveKind::kAllReduce, {0}, tensor_of<float>({2}, {1, 2})), "all_reduce(float32[2], sum, axes x)"},
      {by_max, "all_reduce(float64[2], max, axes x)"},
  };
  for_each_seed(20, [&cases](uint64_t seed) {
    const Different& different = cases[seed % std::size(cases)];
    MeshGroup members(seed, {3});
    const auto odd = static_cast<int32_t>(seed % 3);
    std::vector<Result> results;
    for (int32_t rank = 0; rank < 3; ++rank) {
      members.mesh(rank).note("", "add(a, b)", 7);
      results.push_back(members.mesh(rank).collective(rank == odd ? different.call : sum_of({2})));
    }
    for (const Result& result : results) {
      const Error error = failure_of(*result);
      expect_failure(error, Status::kDiverged, "mesh \"train\": programs differ at call 2: ");
      expect_failure(error, Status::kDiverged, different.text);
      expect_failure(error, Status::kDiverged, "all_reduce(float64[2], sum, axes x)");
      expect_failure(error, Status::kDiverged, "the last equal call was 1, add(a, b)");
    }
    // Calls that follow fail as well.
    for (int32_t rank = 0; rank < 3; ++rank) {
      expect_failure(failure_of(*members.mesh(rank).collective(sum_of({2}))), Status::kDiverged, "programs differ");
    }
    members.shut_down();
  });
}

// A member that waits for nothing may be done before.
TEST(Collectives, ThatDifferInANumberSayIt) {
  struct Different {
    CollectiveKind kind;
    int64_t CollectiveCall::*number;
    const char* text;
    const char* other;
  };
  const Different cases[] = {
      {CollectiveKind::kReduce, &CollectiveCall::root, "reduce(float64[2, 2], sum, axes x)",
       "reduce(float64[2, 2], sum, root 1, axes x)"},
      {CollectiveKind::kPermute, &CollectiveCall::shift, "permute(float64[2, 2], axes x)",
       "permute(float64[2, 2], shift 1, axes x)"},
      {CollectiveKind::kAllGather, &CollectiveCall::dim, "all_gather(float64[2, 2], axes x)",
       "all_gather(float64[2, 2], dim 1, axes x)"},
      {CollectiveKind::kAllToAll, &CollectiveCall::dim_to, "all_to_all(float64[2, 2], axes x)",
       "all_to_all(float64[2, 2], dim_to 1, axes x)"},
  };
  for (const Different& different : cases) {
    MeshGroup members(1, {2});
    std::vector<Result> results;
    for (int32_t rank = 0; rank < 2; ++rank) {
      CollectiveCall call = call_of(different.kind, {0}, numbers({2, 2}, 1));
      call.*different.number = rank;
      results.push_back(members.mesh(rank).collective(call));
    }
    members.group().scheduler().run_for(30 * kSecond);
    int failed = 0;
    for (const Result& result : results) {
      if (!result->is_done() || result->error() == nullptr) continue;
      ++failed;
      expect_failure(*result->error(), Status::kDiverged, different.text);
      expect_failure(*result->error(), Status::kDiverged, different.other);
      EXPECT_EQ(result->error()->message().find("read alike"), std::string::npos);
    }
    EXPECT_GT(failed, 0) << different.other;
  }
}

TEST(Collectives, ComparePastCallsThatSendNothing) {
  MeshGroup members(1, {2});
  members.mesh(0).note("", "add(a, b)", 7);
  members.mesh(1).note("", "add(b, a)", 8);
  for (int i = 0; i < 70; ++i) {
    members.mesh(0).note("", "exp", 1);
    members.mesh(1).note("", "exp", 1);
  }
  const Result one = members.mesh(0).collective(sum_of({2}));
  const Result two = members.mesh(1).collective(sum_of({2}));
  expect_failure(failure_of(*one), Status::kDiverged, "programs differ before call 9, the first that both remember");
  EXPECT_EQ(failure_of(*two).message(), failure_of(*one).message());
  for (const Result& result : {one, two}) EXPECT_EQ(failure_of(*result).origin_rank(), 0);
}

TEST(Collectives, ACallThatSendsNothingIsComparedWithThePartsThatCame) {
  MeshGroup members(1, {2});
  const Result one = members.mesh(0).collective(sum_of({2}));
  members.group().scheduler().run_for(kSecond);
  members.mesh(1).note("", "exp", 1);
  expect_failure(failure_of(*one), Status::kDiverged,
                 "programs differ at call 1: worker \"w0\" (rank 0) calls all_reduce(float64[2], sum, axes x), worker "
                 "\"w1\" (rank 1) calls exp");
}

TEST(Collectives, AWrongArgumentFailsTheCallAndNotTheMesh) {
  MeshGroup members(1, {2});
  std::vector<Result> results;
  for (int32_t rank = 0; rank < 2; ++rank) {
    CollectiveCall call = call_of(CollectiveKind::kAllGather, {0}, numbers({2}, 1));
    call.dim = 1;
    expect_failure(failure_of(*members.mesh(rank).collective(call)), Status::kInvalidArgument,
                   "all_gather: dim 1 is out of range for float64[2]");
    results.push_back(members.mesh(rank).collective(sum_of({2})));
  }
  for (const Result& result : results) value_of(result);
}

TEST(Collectives, ASpecThatCannotBeReachedFailsTheCallAndNotTheMesh) {
  MeshGroup members(1, {2});
  layout::Spec partial(1);
  partial.set_partial(1);
  std::vector<Result> results;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const Result wrong = members.mesh(rank).redistribute({{2}, numbers({2}, 1), layout::Spec(1), partial, "", 0, ""});
    EXPECT_EQ(failure_of(*wrong).status(), Status::kInvalidArgument);
    results.push_back(members.mesh(rank).collective(sum_of({2})));
  }
  for (const Result& result : results) value_of(result);
  EXPECT_EQ(members.stats(0).calls, 2u);
}

TEST(Collectives, AMemberThatDoesNotCallIsNamed) {
  for_each_seed(10, [](uint64_t seed) {
    MeshGroup members(seed, {3}, {}, {}, 2 * kSecond);
    const Nanos begun = members.group().scheduler().now();
    const Result one = members.mesh(0).collective(sum_of({2}));
    const Result two = members.mesh(1).collective(sum_of({2}));
    for (const Result& result : {one, two}) {
      expect_failure(
          failure_of(*result), Status::kDeadline,
          "call 1, all_reduce(float64[2], sum, axes x), waits for worker \"w2\" (rank 2), which is not in any "
          "call, and has made none");
    }
    EXPECT_LT(members.group().scheduler().now() - begun, 3 * kSecond);
    // The third member calls after it has been told, and gets the same error.
    members.group().scheduler().run_for(kSecond);
    expect_failure(failure_of(*members.mesh(2).collective(sum_of({2}))), Status::kDeadline, "waits for worker \"w2\"");
    members.shut_down();
  });
}

TEST(Collectives, AMemberThatFailsAloneEndsItForAll) {
  MeshGroup members(1, {3});
  const Result one = members.mesh(0).collective(sum_of({2}));
  members.mesh(2).end(Error(Status::kOutOfMemory, "no memory for the batch"));
  const Error error = failure_of(*one);
  expect_failure(error, Status::kOutOfMemory, "no memory for the batch");
  EXPECT_EQ(error.origin_rank(), 2);
  expect_failure(failure_of(*members.mesh(1).collective(sum_of({2}))), Status::kOutOfMemory, "no memory");
}

// ---- losses and leaves ----

TEST(Collectives, AKilledMemberEndsItWithItsName) {
  for_each_seed(60, [](uint64_t seed) {
    SimGroupOptions options;
    options.lease = 5 * kSecond;
    MeshGroup members(seed, {4}, options);
    const auto victim = static_cast<int32_t>(seed % 4);
    const int64_t count = seed % 2 == 0 ? 3 : 70001;
    std::vector<std::vector<Result>> results(4);
    for (int k = 0; k < 3; ++k) {
      for (int32_t rank = 0; rank < 4; ++rank) {
        if (k == 2 && rank == victim) continue;
        results[static_cast<size_t>(rank)].push_back(members.mesh(rank).collective(sum_of({count})));
      }
    }
    members.group().scheduler().run_for(static_cast<Nanos>(seed % 7) * 100 * kMicrosecond);
    members.group().kill(victim);
    for (int32_t rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string name = "worker \"w" + std::to_string(victim) + "\"";
      const Error failure = failure_of(*results[static_cast<size_t>(rank)].back());
      expect_failure(failure, Status::kDisconnected, name);
      EXPECT_EQ(failure.message().find(name), failure.message().rfind(name)) << failure.message();
      for (const Result& result : results[static_cast<size_t>(rank)]) {
        wait(*result, kForever);
        if (result->error() != nullptr) continue;
        EXPECT_TRUE(same_bits(result->value(), expected_sum(std::vector<Tensor>(4, numbers({count}, 1)))));
      }
    }
    // The survivors make a new mesh.
    layout::MeshRequest request = members.request_;
    request.shape = {3};
    for (int32_t rank = 0; rank < 4; ++rank) {
      if (rank != victim) request.ranks.push_back(rank);
    }
    std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
    for (const int32_t rank : request.ranks) {
      made.push_back(members.group().worker(rank).meshes().create(request, 30 * kSecond));
    }
    std::vector<Result> sums;
    for (const auto& one : made) {
      wait(*one, kForever);
      sums.push_back(one->value()->collective(sum_of({2})));
    }
    for (const Result& sum : sums) value_of(sum);
  });
}

TEST(Collectives, AMemberMayLeaveBeforeOthersHaveFinished) {
  for_each_seed(40, [](uint64_t seed) {
    MeshGroup members(seed, {4});
    const int64_t count = seed % 2 == 0 ? 3 : 70001;
    std::vector<Result> results;
    for (int32_t rank = 0; rank < 4; ++rank) {
      for (int k = 0; k < 3; ++k) results.push_back(members.mesh(rank).collective(sum_of({count})));
      members.mesh(rank).leave();
      members.group().scheduler().run_for(static_cast<Nanos>(seed % 5) * 200 * kMicrosecond);
    }
    for (const Result& result : results) value_of(result);
    members.group().scheduler().run_for(kSecond);
    expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kInvalidState, "has released it");
    members.shut_down();
  });
}

// A part goes in pieces, of which 8 MiB are on their way at most: MESH_END would overtake the rest. Few seeds run,
// since a part above the window of chunks is 20 MB.
TEST(Collectives, AMemberThatLeavesHasSentItsLargePartsBefore) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    MeshGroup members(seed, {2});
    CollectiveCall call = call_of(CollectiveKind::kReduce, members.all_axes(), numbers({2'500'001}, 1));
    std::vector<Result> results;
    for (int32_t rank : {1, 0}) {  // the root, 0, has to wait for the other
      results.push_back(members.mesh(rank).collective(call));
      if (rank == 1) members.mesh(rank).leave();
      members.group().scheduler().run_for(static_cast<Nanos>(seed % 3) * 100 * kMicrosecond);
    }
    for (const Result& result : results) value_of(result);
    members.shut_down();
  }
}

// Parts of the calls that its program has made, small parts and parts in pieces, come whole to members that ask for
// them later.
TEST(Collectives, AMemberThatShutsDownHasSentItsPartsBefore) {
  for_each_seed(12, [](uint64_t seed) {
    SimGroupOptions options;
    if (seed % 3 == 0) options.faults.drop = 0.01;
    MeshGroup members(seed, {3}, options);
    CollectiveCall call =
        call_of(CollectiveKind::kReduce, members.all_axes(), numbers({seed % 4 == 0 ? 2'500'001 : 3}, 1));
    std::vector<Result> results;
    std::shared_ptr<Future<ShutdownReport>> shut_down;
    for (int32_t rank : {2, 1, 0}) {  // the root, 0, comes last
      results.push_back(members.mesh(rank).collective(call));
      if (rank == 2) {
        if (seed % 2 == 0) members.group().scheduler().run_for(static_cast<Nanos>(seed % 7) * 100 * kMicrosecond);
        shut_down = members.group().worker(2).shutdown(60 * kSecond);
      }
      members.group().scheduler().run_for(static_cast<Nanos>(seed % 5) * 200 * kMicrosecond);
    }
    EXPECT_TRUE(same_bits(value_of(results[2]), expected_sum(std::vector<Tensor>(3, call.tensor))));
    members.shut_down();
    EXPECT_TRUE(shut_down->value().clean);
  });
}

// Without a vote the member waits for no peer: the others get all of its parts, or an error with its name.
TEST(Collectives, AMemberThatShutsDownAtOnceGivesItsPartsOrItsName) {
  for_each_seed(24, [](uint64_t seed) {
    MeshGroup members(seed, {3});
    CollectiveCall call =
        call_of(CollectiveKind::kReduce, members.all_axes(), numbers({seed % 4 == 0 ? 2'500'001 : 3}, 1));
    std::vector<Result> results;
    for (int32_t rank : {2, 1, 0}) {
      results.push_back(members.mesh(rank).collective(call));
      members.group().scheduler().run_for(static_cast<Nanos>(seed % 7) * 100 * kMicrosecond);
      if (rank == 2) wait(*members.group().worker(2).shutdown(0), kForever);
    }
    wait(*results[2], kForever);
    if (results[2]->error() == nullptr) {
      EXPECT_TRUE(same_bits(results[2]->value(), expected_sum(std::vector<Tensor>(3, call.tensor))));
    } else {
      expect_failure(*results[2]->error(), Status::kDisconnected, "\"w2\"");
    }
  });
}

// A line remembers its last 64 calls, and a call that is under way may be older.
TEST(Collectives, AMemberMayBeFarAhead) {
  MeshGroup members(1, {2});
  const int count = 3 * static_cast<int>(Line::kRemembered);
  std::vector<Result> results;
  for (int32_t rank : {0, 1}) {
    for (int k = 0; k < count; ++k) results.push_back(members.mesh(rank).collective(sum_of({3})));
    members.group().scheduler().run_for(10 * kMillisecond);
  }
  for (const Result& result : results) value_of(result);
  members.shut_down();
}

TEST(Collectives, ALineHasAName) {
  MeshGroup members(1, {2});
  CollectiveCall call = sum_of({3});
  call.line = std::string(128, 'l');
  expect_failure(failure_of(*members.mesh(0).collective(call)), Status::kInvalidArgument, "at most 127");
  call.line = "\xFF";
  expect_failure(failure_of(*members.mesh(0).collective(call)), Status::kInvalidArgument, "UTF-8");
  members.shut_down();
}

// The memory of the host is used up, which is the failure that the others hear of.
TEST(Collectives, AMemberWithoutMemoryEndsItForAll) {
  MeshGroup members(1, {2});
  CollectiveCall call = sum_of({2});
  call.timeout = kForever;
  const Result waiting = members.mesh(0).collective(call);
  const Error error(Status::kOutOfMemory, "no memory for the next batch of the loader");
  SimMemory none;
  none.refuse(0, UINT64_MAX);
  {
    const MemoryScope scope(&none);
    members.mesh(1).end(error);
  }
  EXPECT_GT(none.refused(), 0u);
  const Error heard = failure_of(*waiting);
  expect_failure(heard, Status::kOutOfMemory, "out of memory");
  EXPECT_EQ(heard.origin_rank(), 1);
}

TEST(Collectives, ASlowMemberIsNoLostOne) {
  for_each_seed(20, [](uint64_t seed) {
    MeshGroup members(seed, {3});
    members.group().network().cut_all();
    std::vector<Result> results;
    for (int32_t rank = 0; rank < 3; ++rank) {
      results.push_back(members.mesh(rank).collective(sum_of({70001})));
      members.group().scheduler().run_for(500 * kMillisecond);
      members.group().network().cut_all();
    }
    for (const Result& result : results) value_of(result);
    members.shut_down();
  });
}

// ---- creation ----

TEST(Collectives, MembersThatAskForOtherMeshesAreTold) {
  SimGroupOptions options;
  SimWorkerGroup group(1, options);
  group.start();
  layout::MeshRequest request;
  request.shape = {2, 1};
  const auto one = group.worker(0).meshes().create(request, kSecond);
  request.shape = {1, 2};
  const auto two = group.worker(1).meshes().create(request, kSecond);
  expect_failure(failure_of(*one), Status::kDiverged, "rank 0 calls mesh_create(\"mesh\", [2, 1]");
  expect_failure(failure_of(*two), Status::kDiverged, "rank 1 calls mesh_create(\"mesh\", [1, 2]");
  EXPECT_EQ(failure_of(*one).message(), failure_of(*two).message());
  for (const auto& made : {one, two}) EXPECT_EQ(failure_of(*made).origin_rank(), 0);
  request.shape = {2};
  const auto alone = group.worker(0).meshes().create(request, kSecond);
  expect_failure(failure_of(*alone), Status::kDeadline, "\"w1\"");
}

TEST(Collectives, TwoMeshesOverTheSameRanksAreTwo) {
  MeshGroup members(1, {2});
  Mesh& first = members.mesh(0);
  const Result waiting = first.collective(sum_of({2}));
  const std::shared_ptr<Mesh> kept = first.shared_from_this();
  members.make();
  EXPECT_NE(kept->id(), members.mesh(0).id());
  const Result one = members.mesh(0).collective(sum_of({2}));
  const Result two = members.mesh(1).collective(sum_of({2}));
  value_of(one);
  value_of(two);
  EXPECT_FALSE(waiting->is_done());
}

// ---- three verdicts ----

// Parts of a closed line that come later are dropped; the other lines go on.
TEST(Collectives, ALineThatIsClosedEndsItsCallsAndNotTheMesh) {
  MeshGroup members(3, {2});
  const auto add_up = [&members](int32_t rank, const char* line) {
    CollectiveCall call = call_of(CollectiveKind::kAllReduce, {0}, numbers({2}, rank));
    call.line = line;
    call.timeout = kForever;
    return members.mesh(rank).collective(call);
  };
  const auto close = [&members](int32_t rank) {
    members.group().loop(rank).run([&members, rank] {
      Mesh::LineEnd end("once");
      members.mesh(rank).close_line(end, Error(Status::kCancelled, "it is over"));
      members.mesh(rank).close_line(end, Error(Status::kCancelled, "again"));
    });
  };
  const Result cancelled = add_up(0, "once");
  members.group().scheduler().run_for(kSecond);
  close(0);
  expect_failure(failure_of(*cancelled), Status::kCancelled, "it is over");
  wait(*add_up(1, "once"), kForever);     // the other's part came before
  const Result late = add_up(1, "once");  // parts of both come to a line that is closed
  members.group().scheduler().run_for(3 * kSecond);
  EXPECT_FALSE(late->is_done());
  close(1);
  expect_failure(failure_of(*late), Status::kCancelled, "it is over");
  expect_failure(failure_of(*add_up(0, "once")), Status::kCancelled, "the line was closed");
  const Result first = add_up(0, "");
  const Result second = add_up(1, "");
  for (const Result& result : {first, second}) wait(*result, kForever);
  EXPECT_EQ(values_of<double>(first->value()), values_of<double>(second->value()));
  for (int32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(members.stats(rank).open, 0u);
    members.group().loop(rank).run([&members, rank] { EXPECT_TRUE(members.mesh(rank).parts().end.is_idle()); });
  }
  members.shut_down();
}

// Each member waits for the other in a call that sends nothing. The member with fewer calls is asked, and told.
TEST(Collectives, MembersThatWaitForEachOtherInCallsThatDifferHearSo) {
  for (const bool is_ahead : {false, true}) {
    MeshGroup members(2, {2});
    const auto broadcast = [&](int32_t rank, int64_t root) {
      CollectiveCall call = call_of(CollectiveKind::kBroadcast, {0}, numbers({2}, 1));
      call.root = root;
      return members.mesh(rank).collective(call);
    };
    if (is_ahead) members.mesh(0).note("", "a call that sends nothing", 1);
    const Result first = broadcast(0, 1);
    const Result second = broadcast(1, 0);
    const Nanos begin = members.group().scheduler().now();
    for (const Result& result : {first, second}) {
      expect_failure(failure_of(*result), Status::kDiverged, "programs differ at call 1: ");
    }
    EXPECT_LT(members.group().scheduler().now() - begin, 3 * kSecond);
    members.shut_down();
  }
}

// `time_left`: of the timeout; 0: all.
void tell_where_it_is(Nanos timeout, Nanos time_left) {
  MeshGroup members(3, {2, 2}, {}, {}, 60 * kSecond);
  const auto begin = [&](int32_t rank, const layout::Axes& axes, Nanos patience, Nanos left = 0) {
    CollectiveCall call = call_of(CollectiveKind::kAllReduce, axes, numbers({2}, 1));
    call.timeout = patience;
    call.time_left = left;
    return members.mesh(rank).collective(call);
  };
  const Result row = begin(2, {1}, 0);  // for which rank 3 does not come
  members.group().scheduler().run_for(10 * kSecond);
  const Result own = begin(0, {1}, 0);
  const Result other = begin(1, {1}, 0);
  value_of(own);
  value_of(other);
  const Error error = failure_of(*begin(0, {0}, timeout, time_left));
  expect_failure(
      error, Status::kDeadline,
      fmt::format(
          "waits for worker \"w2\" (rank 2), which is at call 1, all_reduce(float64[2], sum, axes y), since {} s, "
          "and waits for rank 3; worker \"w3\" (rank 3), which is not in any call, and has made none",
          (10 * kSecond + (time_left == 0 ? timeout : time_left) + kSecond / 2) / kSecond));
  EXPECT_EQ(failure_of(*row).message(), error.message());
  for (const Error& one : {error, failure_of(*row)}) EXPECT_EQ(one.origin_rank(), 3);
}

// The newest answer counts, and ages. The missing member is named, also where others wait for it, and where there is
// time to ask them only once.
TEST(Collectives, ADeadlineTellsWhereTheMissingMemberIs) {
  for (const Nanos timeout : {20 * kSecond, 1400 * kMillisecond}) tell_where_it_is(timeout, 0);
  tell_where_it_is(20 * kSecond, 600 * kMillisecond);
}

// A mesh of two rows and two columns, and calls of it in which members wait for others.
class OldReportsTest : public ::testing::Test {
 protected:
  Result row(int32_t rank) { return begin(rank, 1, kForever); }
  Result column(int32_t rank, Nanos timeout = kForever) { return begin(rank, 0, timeout); }

  MeshGroup members_{3, {2, 2}};

 private:
  Result begin(int32_t rank, uint8_t axis, Nanos timeout) {
    CollectiveCall call = call_of(CollectiveKind::kAllReduce, {axis}, numbers({2}, 1));
    call.timeout = timeout;
    return members_.mesh(rank).collective(call);
  }
};

// w2 waited for w3 in an earlier call, to which w3 has come since. Now w2 stands, and reports nothing.
TEST_F(OldReportsTest, OfAnEarlierCallBlameNoMemberThatHasCome) {
  const Result waiting = row(2);
  for (const int32_t rank : {0, 1}) row(rank);
  const Result first = column(0);
  members_.group().scheduler().run_for(2 * kSecond);
  row(3);
  for (const int32_t rank : {1, 2, 3}) column(rank);
  value_of(waiting);
  value_of(first);
  members_.group().freeze(2);
  for (const int32_t rank : {1, 3}) column(rank);
  const Error error = failure_of(*column(0, kSecond));
  expect_failure(error, Status::kDeadline, "call 3, all_reduce(float64[2], sum, axes x), waits for worker \"w2\"");
  EXPECT_EQ(error.message().find("w3"), std::string::npos) << error.message();
  EXPECT_EQ(error.origin_rank(), 2);
}

// The oldest call of the line, which asks for all, has more time than this one.
TEST_F(OldReportsTest, ComeForACallThatIsNotTheOldest) {
  for (const int32_t rank : {2, 0, 1}) row(rank);
  column(0);
  members_.group().scheduler().run_for(2200 * kMillisecond);
  const Error error = failure_of(*column(0, 600 * kMillisecond));
  expect_failure(error, Status::kDeadline,
                 "worker \"w2\" (rank 2), which is at call 1, all_reduce(float64[2], sum, "
                 "axes y), since 3 s, and waits for rank 3; worker \"w3\" (rank 3)");
  EXPECT_EQ(error.origin_rank(), 3);
}

// Loaders ask for their line when a batch is late.
TEST_F(OldReportsTest, NameTheMemberWhoseRankGoesWithThem) {
  row(2);
  for (const int32_t rank : {0, 1}) row(rank);
  column(0);
  members_.group().scheduler().run_for(100 * kMillisecond);
  members_.group().loop(0).run([this] { members_.mesh(0).ask_missing(""); });
  members_.group().scheduler().run_for(100 * kMillisecond);
  MeshWaiting::Missing missing;
  members_.group().loop(0).run([this, &missing] { missing = members_.mesh(0).missing(""); });
  EXPECT_EQ(missing.rank, 3);
  EXPECT_NE(missing.text.find("and waits for rank 3; worker \"w3\" (rank 3), which is not in any call"),
            std::string::npos)
      << missing.text;
}

TEST(Collectives, MoreCallsThanALineHoldsAreRefusedOrWait) {
  MeshGroup members(5, {2});
  std::vector<Result> results;
  for (size_t i = 0; i < Mesh::kMostOpen; ++i) results.push_back(members.mesh(0).collective(sum_of({2})));
  CollectiveCall patient = sum_of({2});
  patient.waits_for_room = true;
  results.push_back(members.mesh(0).collective(patient));
  members.group().scheduler().run_for(kSecond);
  EXPECT_EQ(members.stats(0).open, Mesh::kMostOpen);
  EXPECT_EQ(members.stats(0).calls, Mesh::kMostOpen);
  for (size_t i = 0; i <= Mesh::kMostOpen; ++i) value_of(members.mesh(1).collective(sum_of({2})));
  for (const Result& result : results) value_of(result);

  for (size_t i = 0; i < Mesh::kMostOpen; ++i) members.mesh(0).collective(sum_of({2}));
  expect_failure(failure_of(*members.mesh(0).collective(sum_of({2}))), Status::kOverloaded, "256 calls are under way");
  const Result waiting = members.mesh(0).collective(patient);
  members.mesh(0).end(Error(Status::kRemote, "over"));
  expect_failure(failure_of(*waiting), Status::kRemote, "over");
}

}  // namespace
}  // namespace distag::sim
