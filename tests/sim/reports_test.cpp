// Facts in reports about passes that are under way and members that are gone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "ops/builtins.h"
#include "support/sim_group.h"
#include "worker/report.h"

namespace distag::sim {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

// Two workers, and a pass of w0 that needs w1, where a host function holds it.
class ReportsTest : public ::testing::Test {
 protected:
  explicit ReportsTest(SimGroupOptions options = {}) : group_(1, std::move(options)) {
    group_.worker(1).rpc().register_function("held", [this](Invocation& invocation) {
      autograd::CustomOp op;
      op.name = "held";
      op.forward = [](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
      op.backward = [this](Tensors gradients, size_t) {
        wait(*go_on_, kForever);
        return gradients;
      };
      const std::vector<Tensor> inputs{invocation.args()[0].as_tensor()};
      invocation.set_result(Value(autograd::apply_custom(std::move(op), inputs, 1)[0]));
    });
    group_.start();
    leaf_ = Tensor::scalar(Dtype::kFloat64, 2);
    autograd::set_requires_grad(leaf_, true);
    context_ = group_.worker(0).dautograd().create_context();
  }

  Tensor call_held() { return group_.call(0, 1, "held", {Value(leaf_)}, context_->global_id()).as_tensor(); }

  json report(int32_t rank) {
    const auto snapshot = group_.worker(rank).fetch_snapshot();
    wait(*snapshot, kForever);
    return json::parse(write_report(snapshot->value()));
  }
  // The only pass of the only context.
  json pass(int32_t rank) { return report(rank)["contexts"].at(0)["passes"].at(0); }

  SimWorkerGroup group_;
  const std::shared_ptr<Future<Unit>> go_on_ = Future<Unit>::make();
  Tensor leaf_;
  std::shared_ptr<Context> context_;
};

TEST_F(ReportsTest, ARunningPassTellsWhomItWaitsFor) {
  const Tensor root = call_held();
  const auto done = context_->backward_async({root}, {});
  group_.scheduler().run_for(kSecond);
  json seen = pass(0);
  EXPECT_EQ(seen["begun_here"], true);
  EXPECT_EQ(seen["mode"], "smart");
  EXPECT_EQ(seen["state"], "running");
  EXPECT_EQ(seen["waits_for"],
            (Texts{"the gradient of the arguments of call \"held\" on \"w1\"", "worker \"w1\" (rank 1)"}));
  seen = pass(1);
  EXPECT_EQ(seen["begun_here"], false);
  EXPECT_EQ(seen["state"], "running");
  EXPECT_EQ(seen["waits_for"], (Texts{"tasks of this worker"}));
  go_on_->complete(Unit{});
  wait(*done, kForever);
  done->value();
  EXPECT_EQ(report(0)["contexts"].at(0)["passes"], json::array());
}

// The same group without lineage.
class SearchReportsTest : public ReportsTest {
 protected:
  static SimGroupOptions options() {
    SimGroupOptions options;
    options.lineage = kNoLineage;
    return options;
  }
  SearchReportsTest() : ReportsTest(options()) {}
};

TEST_F(SearchReportsTest, APassThatSearchesTellsWhomItAsked) {
  const Tensor root = call_held();
  group_.freeze(1);
  const auto done = context_->backward_async({root}, {});
  group_.scheduler().run_for(kSecond);
  const json seen = pass(0);
  EXPECT_EQ(seen["state"], "searching");
  EXPECT_EQ(seen["waits_for"], (Texts{"worker \"w1\" (rank 1), to search on from what came from it"}));
  group_.thaw(1);
  go_on_->complete(Unit{});
  wait(*done, kForever);
  done->value();
}

TEST_F(ReportsTest, AParticipantThatIsDoneWaitsForTheVerdict) {
  const Tensor root = call_held();
  const auto done = context_->backward_async({root}, {});
  group_.scheduler().run_for(kSecond);
  group_.freeze(0);
  go_on_->complete(Unit{});
  group_.scheduler().run_for(kSecond);
  const json seen = pass(1);
  EXPECT_EQ(seen["state"], "done");
  EXPECT_EQ(seen["waits_for"], (Texts{"the verdict of the worker that began it"}));
  group_.thaw(0);
  wait(*done, kForever);
  done->value();
}

TEST_F(ReportsTest, ALostMemberIsToldWithTheReason) {
  call_held();
  group_.kill(1);
  group_.scheduler().run_for(20 * kSecond);
  const json seen = report(0);
  const json& member = seen["members"].at(1);
  EXPECT_EQ(member["name"], "w1");
  EXPECT_EQ(member["state"], "lost");
  EXPECT_EQ(member["connected"], false);
  EXPECT_NE(member["why"].get<std::string>().find("\"w1\""), std::string::npos) << member["why"];
  const std::string last = seen["events"].back()["text"];
  EXPECT_EQ(last, "lost: " + member["why"].get<std::string>());
}

}  // namespace
}  // namespace distag::sim
