#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>

#include "rpc_group.h"

namespace distag {
namespace {

using testing::floats;
using testing::number;
using testing::RpcGroup;
using testing::tensor;

// Plays the layer above: marks each tensor, and notes what it is told.
class NotingHook final : public CallHook {
 public:
  void on_call_begun(const Id& context) override {
    if (refuse_begin) fail(Status::kInvalidState, "the context has ended");
    ++open[context];
  }
  void on_call_ended(const Id& context) override { --open[context]; }

  wire::AutogradMetadata on_send(const Id& context, const Peer& to, const std::vector<const Value*>& values,
                                 const std::string& call, bool is_answer) override {
    if (refuse_send) fail(Status::kInvalidArgument, "mixed contexts");
    log.push_back(fmt::format("send {} to {}: {}", is_answer ? "answer" : "call", to.name, call));
    wire::AutogradMetadata metadata;
    metadata.context = context;
    metadata.creator_rank = 0;
    for (const Value* value : values) {
      value->for_each_tensor([&](const Tensor& sent) {
        sent_ids.push_back(sent.id());
        metadata.tracked.push_back(true);
      });
    }
    if (!metadata.tracked.empty()) metadata.pair = {self, ++last_pair};
    return metadata;
  }

  void on_receive(const wire::AutogradMetadata& metadata, const Peer& from, const std::vector<const Value*>& values,
                  const std::string& call, bool is_answer) override {
    if (refuse_receive) throw Error(Status::kOverloaded, "too many contexts");
    log.push_back(fmt::format("get {} from {}: {}", is_answer ? "answer" : "call", from.name, call));
    size_t tensors = 0;
    for (const Value* value : values) value->for_each_tensor([&tensors](const Tensor&) { ++tensors; });
    EXPECT_EQ(tensors, metadata.tracked.size());
  }

  void on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from) override {
    if (metadata.context) log.push_back(fmt::format("drop of {}", from.name));
  }

  int begun(const Id& context) { return open[context]; }

  Incarnation self = 1;
  bool refuse_begin = false;
  bool refuse_send = false;
  bool refuse_receive = false;
  std::map<Id, int> open;
  std::vector<uint64_t> sent_ids;
  std::vector<std::string> log;
  uint64_t last_pair = 0;
};

class CallHooksTest : public ::testing::Test {
 protected:
  CallHooksTest() : group(2) {
    for (size_t rank = 0; rank < 2; ++rank) {
      hooks[rank].self = group.node(rank).session->self().incarnation;
      group.rpc(rank).set_hook(&hooks[rank]);
    }
    group.rpc(1).register_function("same", [this](Invocation& invocation) {
      EXPECT_EQ(invocation.context(), context);
      invocation.set_result(invocation.args()[0]);
    });
    group.rpc(1).register_function("hold", [this](Invocation& invocation) { reply = invocation.defer(); });
    group.begin();
  }

  std::shared_ptr<Future<Value>> start(const std::string& function, Values args = {}, Nanos timeout = 0) {
    CallRequest request;
    request.context = context;
    request.to = "w1";
    request.function = function;
    request.args = std::move(args);
    request.timeout = timeout;
    return group.rpc(0).call(request);
  }

  RpcGroup group;
  NotingHook hooks[2];
  const Id context{77, 5};
  std::shared_ptr<PendingReply> reply;
};

TEST_F(CallHooksTest, SeeCallAndAnswerOnBothSides) {
  const Tensor sent = tensor({1, 2});
  auto future = start("same", {Value(sent)});
  group.await(*future);
  EXPECT_EQ(floats(future->value().as_tensor()), (std::vector<float>{1, 2}));
  EXPECT_EQ(hooks[0].log, (std::vector<std::string>{"send call to w1: call \"same\" on \"w1\"",
                                                    "get answer from w1: call \"same\" on \"w1\""}));
  EXPECT_EQ(hooks[1].log, (std::vector<std::string>{"get call from w0: call \"same\" on \"w1\"",
                                                    "send answer to w0: call \"same\" on \"w1\""}));
  EXPECT_EQ(hooks[0].begun(context), 0);
}

// The history of a tensor hangs on the handle that was given, not on the snapshot that travels.
TEST_F(CallHooksTest, SeeTheTensorsThatWereGiven) {
  const Tensor sent = tensor({1, 2});
  group.await(*start("same", {Value::list({number(1), Value(sent)})}));
  EXPECT_EQ(hooks[0].sent_ids, (std::vector<uint64_t>{sent.id()}));
}

TEST_F(CallHooksTest, AreNotAskedWithoutAContext) {
  group.rpc(1).register_function("plain", [](Invocation&) {});
  group.call(0, "w1", "plain", {Value(tensor({1}))});
  EXPECT_TRUE(hooks[0].log.empty());
  EXPECT_TRUE(hooks[1].log.empty());
}

TEST_F(CallHooksTest, MayRefuseACallBeforeItBegins) {
  hooks[0].refuse_begin = true;
  const Error error = group.error_of(*start("same", {number(1)}));
  EXPECT_EQ(error.status(), Status::kInvalidState);
  EXPECT_FALSE(error.may_have_run());
  EXPECT_TRUE(hooks[1].log.empty());
}

TEST_F(CallHooksTest, MayRefuseACallWhenItGetsItsNumber) {
  hooks[0].refuse_send = true;
  const Error error = group.error_of(*start("same", {number(1)}));
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_EQ(error.message(), "call \"same\" on \"w1\" (rank 1): mixed contexts");
  EXPECT_FALSE(error.may_have_run());
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(hooks[0].begun(context), 0);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
}

TEST_F(CallHooksTest, MayRefuseACallWhereItArrives) {
  hooks[1].refuse_receive = true;
  const Error error = group.error_of(*start("same", {number(1)}));
  EXPECT_EQ(error.status(), Status::kOverloaded);
  EXPECT_EQ(error.message(), "call \"same\" on \"w1\" (rank 1): too many contexts");
  EXPECT_FALSE(error.may_have_run());
  EXPECT_EQ(error.origin_rank(), 1);
}

TEST_F(CallHooksTest, MayRefuseAnAnswerWhereItLeaves) {
  hooks[1].refuse_send = true;
  const Error error = group.error_of(*start("same", {number(1)}));
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_TRUE(error.may_have_run());
  EXPECT_EQ(error.origin_rank(), 1);
}

TEST_F(CallHooksTest, MayRefuseAnAnswerWhereItArrives) {
  hooks[0].refuse_receive = true;
  const Error error = group.error_of(*start("same", {number(1)}));
  EXPECT_EQ(error.status(), Status::kOverloaded);
  EXPECT_TRUE(error.may_have_run());
  EXPECT_EQ(hooks[0].begun(context), 0);
}

TEST_F(CallHooksTest, CountOneEndForEachBeginHoweverACallEnds) {
  auto cancelled = start("hold");
  auto expired = start("hold", {}, kSecond);
  auto unknown = start("nope");
  auto lost = start("hold");
  group.run_until([this] { return reply != nullptr; });
  EXPECT_GE(hooks[0].begun(context), 3);
  cancelled->cancel();
  group.await(*expired);
  group.await(*unknown);
  EXPECT_EQ(hooks[0].begun(context), 1);
  group.await(*group.node(1).shutdown(0));
  group.await(*lost);
  EXPECT_EQ(hooks[0].begun(context), 0);
}

TEST_F(CallHooksTest, AContextThatEndsEndsItsCallsOnBothSides) {
  auto future = start("hold");
  ASSERT_TRUE(group.run_until([this] { return reply != nullptr; }));
  group.node(0).loop.run([this] { group.rpc(0).end_context(context); });
  ASSERT_TRUE(future->is_done());
  EXPECT_EQ(future->error()->status(), Status::kCancelled);
  EXPECT_EQ(future->error()->message(), "call \"hold\" on \"w1\" (rank 1): its context has ended");
  EXPECT_TRUE(group.run_until([this] { return reply->is_cancelled(); }));
  EXPECT_EQ(hooks[0].begun(context), 0);
}

TEST_F(CallHooksTest, AContextThatEndsAtTheCalleeAnswersCancelled) {
  auto future = start("hold");
  ASSERT_TRUE(group.run_until([this] { return reply != nullptr; }));
  group.node(1).loop.run([this] { group.rpc(1).end_context(context); });
  EXPECT_TRUE(reply->is_cancelled());
  const Error error = group.error_of(*future);
  EXPECT_EQ(error.status(), Status::kCancelled);
  EXPECT_TRUE(error.may_have_run());
}

// With 60,000 calls open, a look at all of them for each of 60,000 contexts would take ten minutes.
TEST_F(CallHooksTest, TheEndOfAContextDoesNotLookAtTheCallsOfOthers) {
  constexpr uint64_t kCalls = 60'000;
  std::vector<std::shared_ptr<PendingReply>> replies;
  group.rpc(1).register_function("keep", [&](Invocation& invocation) { replies.push_back(invocation.defer()); });
  std::vector<std::shared_ptr<Future<Value>>> open;
  for (uint64_t i = 0; i < kCalls; ++i) open.push_back(start("keep"));
  ASSERT_TRUE(group.run_until([this] { return group.rpc(1).stats().calls_open == kCalls; }));
  const auto begin = std::chrono::steady_clock::now();
  for (size_t rank : {0u, 1u}) {
    group.node(rank).loop.run([this, rank] {
      for (uint64_t i = 0; i < kCalls; ++i) group.rpc(rank).end_context({context.maker + 1, i + 1});
    });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("figure: unit_rpc.ends_of_contexts_s %.3f s\n", took.count());
  EXPECT_LT(took.count(), 100);
  EXPECT_FALSE(open.front()->is_done());
  group.node(0).loop.run([this] { group.rpc(0).end_context(context); });
  for (const auto& call : open) ASSERT_EQ(group.error_of(*call).status(), Status::kCancelled);
}

TEST(CallHooksAbsent, ACallInAContextIsRefused) {
  RpcGroup group(2);
  group.begin();
  CallRequest request;
  request.context = {1, 1};
  request.to = "w1";
  request.function = "neg";
  EXPECT_EQ(group.error_of(*group.rpc(0).call(request)).status(), Status::kInvalidArgument);
}

}  // namespace
}  // namespace distag
