// A worker lacks descriptors or local ports, or cannot accept dials, for many leases, and then has them again. Its
// calls fail soon with OUT_OF_MEMORY and the cure, a deadline that comes first names the lack too, the worker gives up
// no peer for it, and its calls go well once there is room. A peer may give the worker up meanwhile, by its own lease,
// as it hears nothing: then the worker learns that when it is back, with the lack.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "coll/meshes.h"
#include "ops/builtins.h"
#include "support/leaves.h"
#include "support/sim_group.h"
#include "support/tensors.h"

namespace distag::sim {
namespace {

using distag::testing::tensor_of;

constexpr Nanos kLackLease = 5 * kSecond;

struct LackTally {
  size_t runs = 0;
  size_t given_up = 0;  // by a peer, which heard nothing
  size_t deadlines = 0;
};

class Lacks {
 public:
  Lacks(uint64_t seed, LackTally* tally) : tally_(tally), random_(seed), group_(seed, options()) {
    for (int32_t rank = 0; rank < group_.size(); ++rank) {
      group_.worker(rank).rpc().register_function(
          "twice", [](Invocation& invocation) { invocation.set_result(Value(2 * invocation.args()[0].as_int64())); });
    }
  }

  void run() {
    ++tally_->runs;
    group_.start();
    const bool has_met = below(2) == 0;
    if (has_met) {
      for (int32_t to = 1; to < group_.size(); ++to) ASSERT_EQ(call(0, to, 0), std::nullopt);
    }
    kind_ = below(2);
    set_lack(true);
    for (int32_t other = 1; other < group_.size(); ++other) group_.network().cut("w0", SimWorkerGroup::name(other));
    group_.scheduler().run_for(10 * kMillisecond);  // an earlier message may have run
    const Nanos begin = group_.scheduler().now();
    const Nanos until = begin + static_cast<Nanos>(5 + below(20)) * kLackLease;
    while (group_.scheduler().now() < until) fail_soon();
    expect_nobody_given_up();
    set_lack(false);
    for (int32_t to = 1; to < group_.size(); ++to) come_back(to, has_met);
    const auto reports = group_.shutdown();
    for (const ShutdownReport& report : reports) EXPECT_TRUE(report.clean || has_met);
  }

 private:
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }

  SimGroupOptions options() {
    SimGroupOptions options;
    options.size = 2 + static_cast<int32_t>(below(2));
    options.lease = kLackLease;
    options.faults.drop = below(2) == 0 ? 0 : 0.01;
    return options;
  }

  void set_lack(bool is_there) {
    kind_ == 0 ? group_.network().set_short("w0", is_there) : group_.network().set_without_ports("w0", is_there);
  }
  const char* cure() const { return kind_ == 0 ? "ulimit -n" : "ip_local_port_range"; }

  // Makes a call, and returns its error if it failed. `timeout` 0: without a deadline.
  std::optional<Error> call(int32_t from, int32_t to, Nanos timeout) {
    CallRequest request;
    request.to = SimWorkerGroup::name(to);
    request.function = "twice";
    request.args = {Value(int64_t{21})};
    request.timeout = timeout == 0 ? kForever : timeout;
    try {
      EXPECT_EQ(group_.call(from, std::move(request)).as_int64(), 42);
      return std::nullopt;
    } catch (const Error& error) {
      return error;
    }
  }

  void fail_soon() {
    const int32_t to = 1 + static_cast<int32_t>(below(static_cast<uint64_t>(group_.size() - 1)));
    const Nanos timeout = below(4) == 0 ? kLackLease / 20 : 0;
    const Nanos begin = group_.scheduler().now();
    const std::optional<Error> error = call(0, to, timeout);
    ASSERT_TRUE(error);
    EXPECT_LT(group_.scheduler().now() - begin, kLackLease);
    const bool is_late = error->status() == Status::kDeadline;
    tally_->deadlines += is_late;
    EXPECT_TRUE(is_late ? timeout != 0 : error->status() == Status::kOutOfMemory) << error->message();
    EXPECT_NE(error->message().find(cure()), std::string::npos) << error->message();
  }

  void come_back(int32_t to, bool has_met) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      const std::optional<Error> error = call(0, to, 0);
      if (!error) return;
      if (error->status() == Status::kDisconnected) {
        ++tally_->given_up;
        EXPECT_TRUE(has_met) << error->message();
        EXPECT_NE(error->message().find(cure()), std::string::npos) << error->message();
        return;
      }
      EXPECT_EQ(error->status(), Status::kOutOfMemory) << error->message();
    }
    ADD_FAILURE() << "no call to w" << to << " goes well again";
  }

  void expect_nobody_given_up() {
    for (const std::string& line : group_.log_lines()) {
      EXPECT_FALSE(line.starts_with("w0: ") && line.find(" is lost: ") != std::string::npos) << line;
    }
  }

  LackTally* const tally_;
  SeededRandom random_;
  SimWorkerGroup group_;
  uint64_t kind_ = 0;
};

TEST(LacksTest, WhatThisWorkerLacksForManyLeasesGivesUpNoPeer) {
  LackTally tally;
  const bool is_sweep = for_each_seed(200, [&tally](uint64_t seed) { Lacks(seed, &tally).run(); });
  if (!is_sweep) return;
  EXPECT_GT(tally.given_up, tally.runs / 10);
  EXPECT_GT(tally.deadlines, tally.runs);
}

// A pass from here waits for no call; a gathering waits for one that has no deadline.
TEST(LacksTest, APassEndsWithTheLack) {
  for_each_seed(50, [](uint64_t seed) {
    SimGroupOptions options;
    options.lease = kLackLease;
    SimWorkerGroup group(seed, options);
    group.start();
    const auto context = group.worker(0).dautograd().create_context();
    Tensor x = Tensor::empty(Dtype::kFloat64, {});
    x.mutable_data_as<double>()[0] = 3;
    autograd::set_requires_grad(x, true);
    const Tensor y = group.call(0, 1, "mul", {Value(x), Value(x)}, context->global_id()).as_tensor();
    group.network().set_short("w0", true);
    group.network().cut("w0", "w1");
    const auto pass = context->backward_async({y}, {});
    wait(*pass, kForever);
    ASSERT_NE(pass->error(), nullptr);
    EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
    EXPECT_NE(pass->error()->message().find("ulimit -n"), std::string::npos) << pass->error()->message();
    group.network().set_short("w0", false);
  });
}

// "w1" has to send gradients to "w2" and cannot reach it: it tells "w0", which initiated the pass.
TEST(LacksTest, APassEndsWithTheLackBetweenTwoOthers) {
  for_each_seed(50, [](uint64_t seed) {
    SimGroupOptions options;
    options.size = 3;
    options.lease = kLackLease;
    SimWorkerGroup group(seed, options);
    group.worker(1).rpc().register_function("relay", [&group](Invocation& invocation) {
      CallRequest request;
      request.to = "w2";
      request.function = "mul";
      request.args = {invocation.args()[0], invocation.args()[0]};
      request.context = invocation.context();
      request.within = invocation.shared_from_this();
      invocation.set_result(group.call(1, std::move(request)));
    });
    group.start();
    const auto context = group.worker(0).dautograd().create_context();
    Tensor x = Tensor::empty(Dtype::kFloat64, {});
    x.mutable_data_as<double>()[0] = 3;
    autograd::set_requires_grad(x, true);
    const Tensor y = group.call(0, 1, "relay", {Value(x)}, context->global_id()).as_tensor();
    group.network().set_mute("w1", true);
    group.network().hang_up("w1", "w2");
    const auto pass = context->backward_async({y}, {});
    wait(*pass, kForever);
    ASSERT_NE(pass->error(), nullptr);
    EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
    EXPECT_NE(pass->error()->message().find("ulimit -n"), std::string::npos) << pass->error()->message();
    group.network().set_mute("w1", false);
  });
}

// "w1" waits for a part that "w0" cannot send. The others wait for nothing, and hear of it by the end of the mesh.
TEST(LacksTest, AMeshWithACallUnderWayEndsWithTheLackOnAllMembers) {
  for_each_seed(50, [](uint64_t seed) {
    SimGroupOptions options;
    options.size = 3;
    options.lease = kLackLease;
    SimWorkerGroup group(seed, options);
    group.start();
    layout::MeshRequest request;
    request.name = "train";
    request.shape = {3};
    request.axis_names = {"x"};
    std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
    for (int32_t rank = 0; rank < 3; ++rank) made.push_back(group.worker(rank).meshes().create(request, 30 * kSecond));
    for (const auto& one : made) wait(*one, kForever);
    group.network().set_mute("w0", true);
    group.network().hang_up("w0", "w1");
    CollectiveCall call;
    call.axes = {0};
    call.tensor = tensor_of<double>({1}, {1});
    call.timeout = kForever;
    const auto expect_lack = [](Future<Tensor>& sum) {
      wait(sum, kForever);
      ASSERT_NE(sum.error(), nullptr);
      EXPECT_EQ(sum.error()->status(), Status::kOutOfMemory) << sum.error()->message();
      EXPECT_NE(sum.error()->message().find("ulimit -n"), std::string::npos) << sum.error()->message();
    };
    std::vector<std::shared_ptr<Future<Tensor>>> sums;
    for (const auto& mesh : made) sums.push_back(mesh->value()->collective(call));
    expect_lack(*sums[1]);
    group.scheduler().run_for(kSecond);
    for (const auto& mesh : made) expect_lack(*mesh->value()->collective(call));
    group.network().set_mute("w0", false);
  });
}

TEST(LacksTest, AGatheringEndsWithTheLack) {
  for_each_seed(50, [](uint64_t seed) {
    SimGroupOptions options;
    options.lease = kLackLease;
    SimWorkerGroup group(seed, options);
    group.start();
    group.network().set_short("w1", true);
    group.network().cut("w0", "w1");
    const auto gathered = group.worker(1).group().all_gather(Value(int64_t{1}), std::nullopt, kForever);
    wait(*gathered, kForever);
    ASSERT_NE(gathered->error(), nullptr);
    EXPECT_EQ(gathered->error()->status(), Status::kOutOfMemory) << gathered->error()->message();
    EXPECT_NE(gathered->error()->message().find("ulimit -n"), std::string::npos) << gathered->error()->message();
    group.network().set_short("w1", false);
  });
}

}  // namespace
}  // namespace distag::sim
