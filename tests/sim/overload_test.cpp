// Workers that flood each other with calls within calls, while next to nothing may be on its way: all calls end. Also a
// member of a mesh that is far ahead of another one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "coll/meshes.h"
#include "layout/spec_text.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

constexpr size_t kMostBytes = 9'000;  // of an argument and of an answer
constexpr int64_t kDepth = 3;

class Flood {
 public:
  Flood(uint64_t seed, int32_t size) : random_(seed), group_(seed, options(seed, size)) {
    for (int32_t rank = 0; rank < size; ++rank) {
      group_.worker(rank).rpc().register_function("descend", [this, rank](Invocation& call) { descend(rank, call); });
    }
    group_.start();
  }

  void run() {
    std::vector<std::shared_ptr<Future<Value>>> calls;
    std::vector<int64_t> expected;
    for (int i = 0; i < 60; ++i) {
      const int32_t from = any();
      const auto depth = static_cast<int64_t>(below(kDepth + 1));
      calls.push_back(group_.worker(from).rpc().call(request(any(), depth)));
      expected.push_back(depth);
    }
    for (int i = 0; i < 3; ++i) plan_pause();
    for (size_t i = 0; i < calls.size(); ++i) {
      wait(*calls[i], kForever);
      EXPECT_EQ(calls[i]->value().as_list()[0].as_int64(), expected[i]);
    }
    expect_little_under_way();
    for (const ShutdownReport& report : group_.shutdown()) EXPECT_TRUE(report.clean);
  }

 private:
  static SimGroupOptions options(uint64_t seed, int32_t size) {
    SimGroupOptions made;
    made.size = size;
    made.max_in_flight = seed % 4 == 0 ? 1 : 4'000 * (seed % 4);
    made.faults.delay_per_kib = static_cast<Nanos>(seed % 5) * 100 * kMicrosecond;
    made.faults.drop = seed % 3 == 0 ? 0.01 : 0;
    made.faults.would_block = seed % 7 == 0 ? 0.05 : 0;
    return made;
  }
  uint64_t below(uint64_t bound) { return random_.next() % bound; }
  int32_t any() { return static_cast<int32_t>(below(static_cast<uint64_t>(group_.size()))); }

  CallRequest request(int32_t to, int64_t depth) {
    CallRequest made;
    made.to = SimWorkerGroup::name(to);
    made.function = "descend";
    made.args = {Value(depth), Value::bytes(Value::Bytes(below(kMostBytes)))};
    made.has_time = true;
    return made;
  }
  // Answers with the depth that it reached, and some load.
  void descend(int32_t rank, Invocation& call) {
    const int64_t left = call.args()[0].as_int64();
    int64_t depth = 0;
    if (left > 0) {
      int32_t to = any();
      if (to == rank && below(2) == 0) to = (rank + 1) % group_.size();
      depth = 1 + group_.call(rank, request(to, left - 1)).as_list()[0].as_int64();
    }
    call.set_result(Value::list({Value(depth), Value::bytes(Value::Bytes(below(kMostBytes)))}));
  }
  void plan_pause() {
    const int32_t rank = any();
    const Nanos begin = group_.scheduler().now() + static_cast<Nanos>(below(50)) * kMillisecond;
    group_.scheduler().at(begin, [this, rank] { group_.freeze(rank); });
    group_.scheduler().at(begin + static_cast<Nanos>(below(2'000)) * kMillisecond, [this, rank] { group_.thaw(rank); });
  }
  void expect_little_under_way() {
    group_.scheduler().run_for(10 * kSecond);
    for (int32_t rank = 0; rank < group_.size(); ++rank) {
      EXPECT_EQ(group_.worker(rank).stats().rpc.calls_open, 0u) << "w" << rank;
    }
  }

  SeededRandom random_;
  SimWorkerGroup group_;
};

TEST(OverloadTest, TwoWorkersThatFloodEachOtherAllEnd) {
  for_each_seed(300, [](uint64_t seed) { Flood(seed, 2).run(); });
}

TEST(OverloadTest, ThreeWorkersThatFloodEachOtherAllEnd) {
  for_each_seed(200, [](uint64_t seed) { Flood(seed, 3).run(); });
}

// Two workers and a mesh of both.
class SimMeshPair {
 public:
  explicit SimMeshPair(const SimGroupOptions& options) : group_(1, options) {
    group_.start();
    layout::MeshRequest request;
    request.name = "train";
    request.shape = {2};
    request.axis_names = {"x"};
    std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
    for (int32_t rank = 0; rank < 2; ++rank) made.push_back(group_.worker(rank).meshes().create(request, 30 * kSecond));
    for (const auto& one : made) {
      wait(*one, kForever);
      meshes_.push_back(one->value());
    }
  }
  Mesh& mesh(size_t rank) { return *meshes_[rank]; }
  void run_for(Nanos time) { group_.scheduler().run_for(time); }

 private:
  SimWorkerGroup group_;
  std::vector<std::shared_ptr<Mesh>> meshes_;
};

// w0 is the root of broadcasts, and as such waits for no member.
class BroadcastTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMost = 64'000;
  static constexpr int64_t kElements = 1'000;  // 8 KB

  static SimGroupOptions options() {
    SimGroupOptions options;
    options.max_early = kMost;
    return options;
  }
  std::shared_ptr<Future<Tensor>> broadcast(size_t rank) {
    CollectiveCall call;
    call.kind = CollectiveKind::kBroadcast;
    call.axes = {0};
    call.tensor = Tensor::empty(Dtype::kFloat64, {kElements});
    return pair_.mesh(rank).collective(call);
  }

  SimMeshPair pair_{options()};
};

TEST_F(BroadcastTest, AMemberThatIsTooFarAheadEndsTheMesh) {
  for (int i = 0; i < 7; ++i) wait(*broadcast(0), kForever);
  pair_.run_for(kSecond);
  wait(*broadcast(1), kForever);
  broadcast(0);
  pair_.run_for(kSecond);
  wait(*broadcast(1), kForever);
  for (int i = 0; i < 3; ++i) broadcast(0);
  pair_.run_for(kSecond);
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto late = broadcast(rank);
    wait(*late, kForever);
    ASSERT_NE(late->error(), nullptr);
    EXPECT_EQ(late->error()->status(), Status::kOverloaded);
    EXPECT_NE(late->error()->message().find("is at call 10, this member"), std::string::npos)
        << late->error()->message();
  }
}

TEST_F(BroadcastTest, MembersThatKeepUpMayGoOnForEver) {
  for (int i = 0; i < 100; ++i) {
    for (int ahead = 0; ahead < 6; ++ahead) broadcast(0);
    pair_.run_for(100 * kMillisecond);
    for (int behind = 0; behind < 6; ++behind) {
      const auto one = broadcast(1);
      wait(*one, kForever);
      ASSERT_EQ(one->error(), nullptr) << one->error()->message();
    }
  }
}

// w0 has all rows, and gives half of each to w1, which gives nothing back and comes late.
TEST(MoveTest, AGiverDoesNotRunAheadOfWhoIsLate) {
  constexpr int64_t kColumns = int64_t{8} << 20;  // 32 MiB of the 64 are given, in 4 pieces
  SimGroupOptions options;
  options.max_early = uint64_t{20} << 20;
  SimMeshPair pair(options);
  const layout::MeshShape& mesh = pair.mesh(0).shape();
  const layout::Spec rows = layout::parse_spec(mesh, "('x', None)", 2),
                     columns = layout::parse_spec(mesh, "(None, 'x')", 2);
  const Dims shape{1, kColumns};
  Tensor whole = Tensor::empty(Dtype::kFloat64, shape);
  for (int64_t i = 0; i < kColumns; ++i) whole.mutable_data_as<double>()[i] = static_cast<double>(i);
  const auto given = pair.mesh(0).redistribute({shape, whole, rows, columns, "", 0, ""});
  pair.run_for(kSecond);
  const auto taken =
      pair.mesh(1).redistribute({shape, Tensor::empty(Dtype::kFloat64, {0, kColumns}), rows, columns, "", 0, ""});
  for (const auto& one : {given, taken}) wait(*one, kForever);
  ASSERT_EQ(taken->error(), nullptr) << taken->error()->message();
  EXPECT_EQ(given->error(), nullptr);
  EXPECT_EQ(taken->value().shape(), (Dims{1, kColumns / 2}));
  EXPECT_EQ(taken->value().data_as<double>()[kColumns / 2 - 1], static_cast<double>(kColumns - 1));
}

}  // namespace
}  // namespace distag::sim
