// The last calls, passes and collectives of a worker: in its report, and in its log after an end that others caused.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "coll/meshes.h"
#include "support/sim_group.h"
#include "worker/report.h"

namespace distag::sim {
namespace {

using nlohmann::json;

class FlightTest : public ::testing::Test {
 protected:
  FlightTest() : group_(1, {}) {
    group_.worker(1).rpc().register_function("echo", [](Invocation& invocation) {
      invocation.set_result(invocation.args().empty() ? Value() : invocation.args()[0]);
    });
    group_.worker(1).rpc().register_function("hold", [this](Invocation&) { wait(*go_on_, kForever); });
    group_.start();
  }

  json report(int32_t rank) {
    const auto snapshot = group_.worker(rank).fetch_snapshot();
    wait(*snapshot, kForever);
    return json::parse(write_report(snapshot->value()));
  }
  // The last events of that name, which is one of the program: the library makes calls as well.
  std::vector<json> last(int32_t rank, const std::string& name) {
    std::vector<json> found;
    const json whole = report(rank);
    for (const json& event : whole["last"]) {
      if (event["name"] == name) found.push_back(event);
    }
    return found;
  }
  std::vector<std::string> blocks(int32_t rank) const {
    std::vector<std::string> found;
    for (const std::string& line : group_.log_lines()) {
      const bool is_block = line.find("ended here, the latest first:") != std::string::npos;
      if (is_block && line.starts_with(SimWorkerGroup::name(rank) + ":")) found.push_back(line);
    }
    return found;
  }
  void fail_held(Nanos timeout) {
    CallRequest request;
    request.to = "w1";
    request.function = "hold";
    request.timeout = timeout;
    EXPECT_THROW(group_.call(0, std::move(request)), Error);
  }

  SimWorkerGroup group_;
  const std::shared_ptr<Future<Unit>> go_on_ = Future<Unit>::make();
};

TEST_F(FlightTest, ACallIsThereOnBothSidesOnceItHasEnded) {
  group_.call(0, 1, "echo", {Value(int64_t{4})});
  group_.scheduler().run_for(2 * kSecond);
  for (const int32_t rank : {0, 1}) {
    const auto events = last(rank, "echo");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0]["kind"], rank == 0 ? "call" : "served");
    EXPECT_EQ(events[0]["peer"], rank == 0 ? "w1" : "w0");
    EXPECT_EQ(events[0]["state"], "done");
    EXPECT_EQ(events[0]["error"], nullptr);
    EXPECT_GE(events[0]["age_ms"], 1900);
    EXPECT_LE(events[0]["age_ms"], 2100);
    EXPECT_GE(events[0]["duration_ms"], 0);
    EXPECT_TRUE(blocks(rank).empty());
  }
}

TEST_F(FlightTest, ADeadlineTellsWhatWentOn) {
  group_.call(0, 1, "echo", {});
  fail_held(500 * kMillisecond);
  group_.scheduler().run_for(kSecond);
  const auto events = last(0, "hold");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["state"], "failed");
  EXPECT_EQ(events[0]["error"], "DEADLINE");
  EXPECT_GE(events[0]["duration_ms"], 500);
  EXPECT_LE(events[0]["duration_ms"], 600);
  ASSERT_EQ(blocks(0).size(), 1u);
  const std::string block = blocks(0)[0];
  EXPECT_TRUE(block.starts_with("w0: call \"hold\" to \"w1\" ended with DEADLINE after 0.5")) << block;
  EXPECT_NE(block.find("ago: call \"echo\" to \"w1\", OK after"), std::string::npos) << block;
  ASSERT_EQ(blocks(1).size(), 1u);
  EXPECT_TRUE(blocks(1)[0].starts_with("w1: call \"hold\" of \"w0\" ended with DEADLINE after 0.")) << blocks(1)[0];
  go_on_->complete(Unit{});
}

TEST_F(FlightTest, ABlockNamesTheCallsThatAreUnderWay) {
  CallRequest request;
  request.to = "w1";
  request.function = "hold";
  request.timeout = kForever;
  const auto held = group_.worker(0).rpc().call(std::move(request));
  group_.scheduler().run_for(kSecond);
  fail_held(250 * kMillisecond);
  group_.scheduler().run_for(kSecond);
  ASSERT_EQ(blocks(0).size(), 1u);
  EXPECT_NE(blocks(0)[0].find("under way here:\n  call \"hold\" to \"w1\", not answered for 1.2"), std::string::npos)
      << blocks(0)[0];
  go_on_->complete(Unit{});
  wait(*held, kForever);
}

TEST_F(FlightTest, ManyEndsAreOneBlockASecond) {
  const Nanos begun = group_.scheduler().now();
  for (int i = 0; i < 200; ++i) fail_held(50 * kMillisecond);
  const auto seconds = static_cast<size_t>((group_.scheduler().now() - begun) / kSecond);
  EXPECT_GE(seconds, 10u);
  EXPECT_GE(blocks(0).size(), seconds - 1);
  EXPECT_LE(blocks(0).size(), seconds + 1);
  EXPECT_NE(blocks(0).back().find("more like it since the record before"), std::string::npos);
  for (const std::string& block : blocks(0)) EXPECT_LT(block.size(), 16u << 10);
  EXPECT_EQ(report(0)["last"].size(), 100u);
  go_on_->complete(Unit{});
}

TEST_F(FlightTest, TheLossOfAPeerEndsCallsOnBothSides) {
  group_.worker(0).rpc().register_function("hold", [this](Invocation&) { wait(*go_on_, kForever); });
  CallRequest request;
  request.to = "w0";
  request.function = "hold";
  request.timeout = kForever;
  const auto served = group_.worker(1).rpc().call(request);
  request.to = "w1";
  const auto made = group_.worker(0).rpc().call(request);
  group_.scheduler().run_for(kSecond);
  group_.kill(1);
  group_.scheduler().run_for(20 * kSecond);
  const auto events = last(0, "hold");
  ASSERT_EQ(events.size(), 2u);
  for (const json& event : events) {
    EXPECT_EQ(event["error"], "DISCONNECTED");
    EXPECT_EQ(event["peer"], "w1");
  }
  EXPECT_NE(events[0]["kind"], events[1]["kind"]);
  EXPECT_EQ(blocks(0).size(), 1u);
  // A call that finds the peer gone was never under way: it is in the report alone.
  request.function = "echo";
  EXPECT_THROW(group_.call(0, request), Error);
  group_.scheduler().run_for(2 * kSecond);
  ASSERT_EQ(last(0, "echo").size(), 1u);
  EXPECT_EQ(last(0, "echo")[0]["error"], "DISCONNECTED");
  EXPECT_EQ(blocks(0).size(), 1u);
  go_on_->complete(Unit{});
}

TEST_F(FlightTest, PassesAreThereWithTheirEnd) {
  group_.worker(1).rpc().register_function("double", [](Invocation& invocation) {
    const Tensor x = invocation.args()[0].as_tensor();
    invocation.set_result(Value(autograd::apply(*ops::find_op("add"), std::vector<Tensor>{x, x}, {})[0]));
  });
  Tensor leaf = Tensor::scalar(Dtype::kFloat64, 2);
  autograd::set_requires_grad(leaf, true);
  const auto context = group_.worker(0).dautograd().create_context();
  const auto forward = [&] { return group_.call(0, 1, "double", {Value(leaf)}, context->global_id()).as_tensor(); };
  context->backward({forward()}, {});
  group_.scheduler().run_for(kSecond);
  ASSERT_EQ(last(0, "pass").size(), 1u);
  EXPECT_EQ(last(0, "pass")[0]["kind"], "pass");
  EXPECT_EQ(last(0, "pass")[0]["state"], "done");
  ASSERT_EQ(last(1, "pass of another").size(), 1u);
  EXPECT_EQ(last(1, "pass of another")[0]["peer"], "w0");
  const Tensor root = forward();
  group_.kill(1);
  BackwardOptions options;
  options.timeout = kSecond;
  EXPECT_THROW(context->backward({root}, options), Error);
  group_.scheduler().run_for(2 * kSecond);
  ASSERT_EQ(last(0, "pass").size(), 2u);
  EXPECT_EQ(last(0, "pass")[1]["error"], "DISCONNECTED");
  ASSERT_EQ(blocks(0).size(), 1u);
  EXPECT_TRUE(blocks(0)[0].starts_with("w0: pass ended with DISCONNECTED after 0.")) << blocks(0)[0];
  // A pass that stays on its worker.
  context->backward({autograd::apply(*ops::find_op("add"), std::vector<Tensor>{leaf, leaf}, {})[0]}, {});
  EXPECT_EQ(last(0, "pass").back()["state"], "done");
}

TEST_F(FlightTest, CollectivesAreThereWhileTheyWaitAndOnceTheyHaveEnded) {
  layout::MeshRequest request;
  request.name = "train";
  request.shape = {2};
  request.axis_names = {"x"};
  std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
  for (const int32_t rank : {0, 1}) made.push_back(group_.worker(rank).meshes().create(request, 2 * kSecond));
  for (const auto& one : made) wait(*one, kForever);
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  call.axes = layout::axes_of(1);
  call.tensor = Tensor::scalar(Dtype::kFloat64, 2);
  const auto both = {made[0]->value()->collective(call), made[1]->value()->collective(call)};
  for (const auto& one : both) wait(*one, kForever);
  const auto alone = made[0]->value()->collective(call);
  group_.scheduler().run_for(kSecond);
  json open = report(0)["collectives"];
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0]["mesh"], "train");
  EXPECT_EQ(open[0]["waits_for"], json::array({1}));
  wait(*alone, kForever);
  group_.scheduler().run_for(kSecond);
  EXPECT_TRUE(report(0)["collectives"].empty());
  const auto events = last(0, open[0]["text"]);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["kind"], "collective");
  EXPECT_EQ(events[0]["state"], "done");
  EXPECT_EQ(events[1]["error"], "DEADLINE");
  EXPECT_NEAR(events[1]["duration_ms"].get<double>(), 2000, 1);
  EXPECT_EQ(blocks(0).size(), 1u);
}

}  // namespace
}  // namespace distag::sim
