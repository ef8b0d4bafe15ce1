#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "group/shared.h"
#include "rpc_group.h"

namespace distag {
namespace {

using testing::floats;
using testing::number;
using testing::RpcGroup;
using testing::tensor;

void add_numbers(Invocation& invocation) {
  invocation.set_result(number(invocation.args()[0].as_int64() + invocation.args()[1].as_int64()));
}

TEST(Calls, AnswersWithAValue) {
  RpcGroup group(2);
  group.rpc(1).register_function("add", add_numbers);
  group.begin();
  EXPECT_EQ(group.call(0, "w1", "add", {number(2), number(40)}).as_int64(), 42);
}

TEST(Calls, OnlyTheCallersOfAFunctionMayCallIt) {
  RpcGroup group(3);
  group.rpc(1).register_function("add", add_numbers, {"w2", "w9"});
  group.begin();
  const uint64_t refused = group.node(1).session->stats().messages_refused;
  const Error error = group.error_of(*group.start(0, "w1", "add", {number(2), number(40)}));
  EXPECT_EQ(error.status(), Status::kDenied);
  EXPECT_NE(error.message().find("worker \"w0\" may not call \"add\" on worker \"w1\""), std::string::npos)
      << error.message();
  EXPECT_EQ(group.node(1).session->stats().messages_refused, refused + 1);
  EXPECT_EQ(group.call(2, "w1", "add", {number(2), number(40)}).as_int64(), 42);
  EXPECT_EQ(group.call(1, "w1", "add", {number(2), number(40)}).as_int64(), 42);
  EXPECT_EQ(group.node(1).session->stats().messages_refused, refused + 1);
}

TEST(Calls, CarriesTensorsBothWaysAsNewOnes) {
  RpcGroup group(2);
  group.rpc(1).register_function("same", [](Invocation& invocation) { invocation.set_result(invocation.args()[0]); });
  group.begin();
  const Tensor sent = tensor({1, 2, 3});
  const Tensor got = group.call(0, "w1", "same", {Value(sent)}).as_tensor();
  EXPECT_EQ(floats(got), (std::vector<float>{1, 2, 3}));
  EXPECT_NE(got.id(), sent.id());
  EXPECT_FALSE(got.shares_storage_with(sent));
}

// Also over connections that drop, by which calls are sent again, and not into the calls beside it.
TEST(Calls, EachKeepsItsTraceparentOnTheWay) {
  const auto parent = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  RpcGroup group(2);
  std::vector<std::string> seen;
  group.rpc(1).register_function("see", [&seen](Invocation& invocation) {
    seen.push_back(invocation.trace_parent() == nullptr ? "" : invocation.trace_parent()->c_str());
  });
  group.begin();
  group.network.faults.drop = 0.2;
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (int i = 0; i < 40; ++i) {
    CallRequest request;
    request.to = "w1";
    request.function = "see";
    if (i % 2 == 0) request.trace_parent = parent;
    calls.push_back(group.rpc(0).call(std::move(request)));
  }
  for (const auto& call : calls) group.await(*call);
  EXPECT_GT(group.node(0).session->stats().messages_replayed, 0u);
  ASSERT_EQ(seen.size(), 40u);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), parent->text()), 20);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), ""), 20);
  EXPECT_EQ(group.rpc(0).stats().trace_parents_dropped + group.rpc(1).stats().trace_parents_dropped, 0u);
}

TEST(Calls, TheirTimesAreCountedByFunction) {
  RpcGroup group(2);
  std::shared_ptr<PendingReply> reply;
  group.rpc(1).register_function("hold", [&reply](Invocation& invocation) { reply = invocation.defer(); });
  group.begin();
  const auto functions_of = [&group](size_t rank) {
    return group.node(rank).members.shared()->trace.timings().functions();
  };
  const auto call = group.start(0, "w1", "hold");
  ASSERT_TRUE(group.run_until([&reply] { return reply != nullptr; }));
  EXPECT_TRUE(functions_of(0).empty());
  group.scheduler.run_for(3 * kSecond);
  reply->finish(Value());
  group.await(*call);
  group.error_of(*group.start(0, "w1", "no such function"));

  const auto made = functions_of(0);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].name, "hold");
  EXPECT_GE(made[0].made.sum, 3 * kSecond);
  EXPECT_LT(made[0].made.sum, 4 * kSecond);
  EXPECT_EQ(made[0].served.sum, 0);
  EXPECT_EQ(made[1].name, "no such function");
  const auto served = functions_of(1);
  ASSERT_EQ(served.size(), 1u);  // callers do not choose names here
  EXPECT_EQ(served[0].name, "hold");
  EXPECT_GE(served[0].served.sum, 3 * kSecond);
  EXPECT_LE(served[0].served.sum, made[0].made.sum);
  EXPECT_LT(served[0].queued.sum, kSecond);
  EXPECT_EQ(std::accumulate(served[0].queued.buckets.begin(), served[0].queued.buckets.end(), uint64_t{0}), 1u);
  EXPECT_EQ(served[0].made.sum, 0);
}

TEST(Calls, AMessageKeepsTheValuesItWasSentWith) {
  RpcGroup group(2);
  std::vector<float> seen;
  group.rpc(1).register_function("see",
                                 [&seen](Invocation& invocation) { seen = floats(invocation.args()[0].as_tensor()); });
  group.begin();
  Tensor sent = tensor({1, 2});
  auto future = group.start(0, "w1", "see", {Value(sent)});
  sent.mutable_data_as<float>()[0] = 9;
  group.await(*future);
  EXPECT_EQ(seen, (std::vector<float>{1, 2}));
}

TEST(Calls, ToOneselfTakeTheSamePath) {
  RpcGroup group(1);
  group.rpc(0).register_function("add", add_numbers);
  group.rpc(0).register_function("fail", [](Invocation&) { fail(Status::kNotFound, "nothing here"); });
  group.begin();
  EXPECT_EQ(group.call(0, "w0", "add", {number(1), number(2)}).as_int64(), 3);
  EXPECT_EQ(group.error_of(*group.start(0, "w0", "fail")).message(), "call \"fail\" on \"w0\" (rank 0): nothing here");
}

TEST(Calls, AFunctionThatAnswersNothingAnswersNull) {
  RpcGroup group(2);
  group.rpc(1).register_function("quiet", [](Invocation&) {});
  group.begin();
  EXPECT_TRUE(group.call(0, "w1", "quiet").is_null());
}

TEST(Calls, TheInvocationSaysWhoCallsAndWithHowMuchTime) {
  RpcGroup group(2);
  std::string caller;
  Nanos left = 0;
  group.rpc(1).register_function("look", [&](Invocation& invocation) {
    caller = invocation.caller();
    left = invocation.time_left();
    EXPECT_EQ(invocation.function(), "look");
    EXPECT_FALSE(invocation.context());
    EXPECT_FALSE(invocation.is_cancelled());
  });
  group.begin();
  CallRequest request;
  request.to = "w1";
  request.function = "look";
  request.timeout = 3 * kSecond;
  group.await(*group.rpc(0).call(request));
  EXPECT_EQ(caller, "w0");
  EXPECT_LE(left, 3 * kSecond);
  EXPECT_GT(left, 2 * kSecond);
  request.timeout = kForever;
  group.await(*group.rpc(0).call(request));
  EXPECT_EQ(left, kForever);
}

TEST(Calls, RunInAnyOrderAndEachOnce) {
  RpcGroup group(3);
  std::vector<int> runs(100, 0);
  group.rpc(2).register_function(
      "count", [&runs](Invocation& invocation) { ++runs[static_cast<size_t>(invocation.args()[0].as_int64())]; });
  group.begin();
  std::vector<std::shared_ptr<Future<Value>>> futures;
  for (int64_t i = 0; i < 100; ++i)
    futures.push_back(group.start(static_cast<size_t>(i % 2), "w2", "count", {number(i)}));
  for (auto& future : futures) group.await(*future);
  EXPECT_EQ(runs, std::vector<int>(100, 1));
}

// ---- errors ----

TEST(Calls, AnErrorNamesFunctionWorkerRankAndKeepsStatusAndOrigin) {
  RpcGroup group(2);
  group.rpc(1).register_function("embed",
                                 [](Invocation&) { throw Error(static_cast<Status>(1007), "index 7 out of range"); });
  group.begin();
  const Error error = group.error_of(*group.start(0, "w1", "embed"));
  EXPECT_EQ(static_cast<int32_t>(error.status()), 1007);
  EXPECT_EQ(error.message(), "call \"embed\" on \"w1\" (rank 1): index 7 out of range");
  EXPECT_EQ(error.origin_rank(), 1);
  EXPECT_TRUE(error.may_have_run());
}

TEST(Calls, AnErrorPassesThroughNestedCallsAndNamesEachHop) {
  RpcGroup group(3);
  group.rpc(2).register_function("inner", [](Invocation&) { fail(Status::kInvalidArgument, "no such row"); });
  group.rpc(1).register_function("outer", [&group](Invocation&) {
    auto future = group.start(1, "w2", "inner");
    wait(*future, kForever);
    future->value();
  });
  group.begin();
  const Error error = group.error_of(*group.start(0, "w1", "outer"));
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_EQ(error.message(), "call \"outer\" on \"w1\" (rank 1): call \"inner\" on \"w2\" (rank 2): no such row");
  EXPECT_EQ(error.origin_rank(), 2);
  EXPECT_TRUE(error.may_have_run());
}

// The outer call did run, although the inner call did not.
TEST(Calls, AFunctionThatFailsHasRunWhateverItFailedWith) {
  RpcGroup group(2);
  group.rpc(1).register_function("outer", [&group](Invocation&) {
    auto future = group.start(1, "w0", "missing");
    wait(*future, kForever);
    EXPECT_FALSE(future->error()->may_have_run());
    future->value();
  });
  group.begin();
  const Error error = group.error_of(*group.start(0, "w1", "outer"));
  EXPECT_EQ(error.status(), Status::kNotFound);
  EXPECT_TRUE(error.may_have_run());
  EXPECT_EQ(error.origin_rank(), 0);
}

TEST(Calls, UnknownFunctionDidNotRun) {
  RpcGroup group(2);
  group.begin();
  const Error error = group.error_of(*group.start(0, "w1", "nope"));
  EXPECT_EQ(error.status(), Status::kNotFound);
  EXPECT_EQ(error.message(),
            "call \"nope\" on \"w1\" (rank 1): worker \"w1\" (rank 1) has no function \"nope\", and no built-in op has "
            "that name");
  EXPECT_FALSE(error.may_have_run());
}

TEST(Calls, UnknownWorkerAndWrongTimesAreRefusedAtOnce) {
  RpcGroup group(1);
  EXPECT_THROW(group.start(0, "w0", "f"), Error);
  group.begin();
  try {
    group.start(0, "w9", "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kNotFound);
    EXPECT_EQ(error.message(), "call \"f\": there is no worker \"w9\" in the group");
  }
  group.await(*group.node(0).shutdown(kSecond));
  try {
    group.start(0, "w0", "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState);
  }
}

TEST(Calls, NamesThatNoFunctionCanHaveAreRefusedAtOnce) {
  RpcGroup group(2);
  group.begin();
  for (const std::string& name : {std::string(), std::string(128, 'x'), std::string("\xC3")}) {
    try {
      group.start(0, "w1", name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
    }
  }
  EXPECT_EQ(group.error_of(*group.start(0, "w1", std::string(127, 'x'))).status(), Status::kNotFound);
}

TEST(Calls, AForeignExceptionIsInternal) {
  RpcGroup group(2);
  group.rpc(1).register_function("throw", [](Invocation&) { throw std::runtime_error("what a day"); });
  group.rpc(1).register_function("throw int", [](Invocation&) { throw 5; });
  group.begin();
  EXPECT_EQ(group.error_of(*group.start(0, "w1", "throw")).status(), Status::kInternal);
  EXPECT_EQ(group.error_of(*group.start(0, "w1", "throw int")).status(), Status::kInternal);
}

TEST(Calls, ArgumentsThatCannotTravelAreRefused) {
  RpcGroup group(2);
  group.rpc(1).register_function("same", [](Invocation& invocation) { invocation.set_result(invocation.args()[0]); });
  group.begin();
  const Tensor large = Tensor::empty(Dtype::kFloat32, Dims{2 << 20});
  const Error error = group.error_of(*group.start(0, "w1", "same", {Value(large)}));
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_FALSE(error.may_have_run());
}

TEST(Calls, AnAnswerThatCannotTravelIsAnError) {
  RpcGroup group(2);
  group.rpc(1).register_function("large", [](Invocation& invocation) {
    invocation.set_result(Value(Tensor::empty(Dtype::kFloat32, Dims{2 << 20})));
  });
  group.rpc(1).register_function("object", [](Invocation& invocation) {
    invocation.set_result(Value(std::make_shared<HostObject>("thing", nullptr, Task())));
  });
  group.begin();
  for (const char* function : {"large", "object"}) {
    const Error error = group.error_of(*group.start(0, "w1", function));
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << error.message();
    EXPECT_TRUE(error.may_have_run());
    EXPECT_EQ(error.origin_rank(), 1);
  }
}

// ---- answers ----

TEST(Calls, AnAnswerIsSetOnce) {
  RpcGroup group(2);
  group.rpc(1).register_function("twice", [](Invocation& invocation) {
    invocation.set_result(number(1));
    try {
      invocation.set_result(number(2));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidState);
    }
    EXPECT_THROW(invocation.defer(), Error);
  });
  group.begin();
  EXPECT_EQ(group.call(0, "w1", "twice").as_int64(), 1);
}

TEST(Calls, AFailureGoesBeforeAnAnswerThatWasSet) {
  RpcGroup group(2);
  group.rpc(1).register_function("both", [](Invocation& invocation) {
    invocation.set_result(number(1));
    fail(Status::kNotFound, "after all");
  });
  group.begin();
  EXPECT_EQ(group.error_of(*group.start(0, "w1", "both")).status(), Status::kNotFound);
}

TEST(Calls, ADeferredReplyIsFinishedLater) {
  RpcGroup group(2);
  std::shared_ptr<PendingReply> reply;
  group.rpc(1).register_function("later", [&reply](Invocation& invocation) {
    reply = invocation.defer();
    EXPECT_THROW(invocation.set_result(number(1)), Error);
    EXPECT_THROW(invocation.defer(), Error);
  });
  group.begin();
  auto future = group.start(0, "w1", "later");
  ASSERT_TRUE(group.run_until([&reply] { return reply != nullptr; }));
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(future->is_done());
  EXPECT_FALSE(reply->is_cancelled());
  EXPECT_TRUE(reply->finish(number(7)));
  EXPECT_FALSE(reply->finish(number(8)));
  EXPECT_FALSE(reply->fail(Error(Status::kNotFound, "x")));
  group.await(*future);
  EXPECT_EQ(future->value().as_int64(), 7);
}

TEST(Calls, ADeferredReplyMayFail) {
  RpcGroup group(2);
  std::shared_ptr<PendingReply> reply;
  group.rpc(1).register_function("later", [&reply](Invocation& invocation) { reply = invocation.defer(); });
  group.begin();
  auto future = group.start(0, "w1", "later");
  ASSERT_TRUE(group.run_until([&reply] { return reply != nullptr; }));
  EXPECT_TRUE(reply->fail(Error(static_cast<Status>(1234), "no luck")));
  const Error error = group.error_of(*future);
  EXPECT_EQ(error.message(), "call \"later\" on \"w1\" (rank 1): no luck");
  EXPECT_EQ(static_cast<int32_t>(error.status()), 1234);
  EXPECT_EQ(error.origin_rank(), 1);
}

TEST(Calls, AReplyComesSecondOnceItsFunctionHasFailed) {
  RpcGroup group(2);
  std::shared_ptr<PendingReply> reply;
  bool is_finished = false;
  group.rpc(1).register_function("fail", [&](Invocation& invocation) {
    reply = invocation.defer();
    if (invocation.args()[0].as_int64() != 0) is_finished = reply->finish(number(5));
    fail(Status::kNotFound, "after all");
  });
  group.begin();
  EXPECT_EQ(group.error_of(*group.start(0, "w1", "fail", {number(0)})).status(), Status::kNotFound);
  EXPECT_FALSE(reply->finish(number(7)));
  EXPECT_FALSE(reply->fail(Error(Status::kDenied, "x")));
  // The other way round the failure comes second.
  EXPECT_EQ(group.call(0, "w1", "fail", {number(1)}).as_int64(), 5);
  EXPECT_TRUE(is_finished);
}

TEST(Calls, ADroppedReplyIsRemote) {
  RpcGroup group(2);
  group.rpc(1).register_function("drop", [](Invocation& invocation) { invocation.defer(); });
  group.begin();
  const Error error = group.error_of(*group.start(0, "w1", "drop"));
  EXPECT_EQ(error.status(), Status::kRemote);
  EXPECT_TRUE(error.may_have_run());
}

// ---- ops ----

TEST(Calls, ABuiltInOpIsCalledWithItsInputs) {
  RpcGroup group(2);
  group.begin();
  EXPECT_EQ(floats(group.call(0, "w1", "neg", {Value(tensor({1, -2}))}).as_tensor()), (std::vector<float>{-1, 2}));
}

TEST(Calls, AnOpTakesItsAttributesFromATrailingMap) {
  RpcGroup group(2);
  group.begin();
  const Value scale = Value::map({{"value", Value(2.5)}});
  EXPECT_EQ(floats(group.call(0, "w1", "mul_scalar", {Value(tensor({2, 4})), scale}).as_tensor()),
            (std::vector<float>{5, 10}));
}

TEST(Calls, AnOpLeavesOutInputsThatAreNull) {
  RpcGroup group(2);
  group.begin();
  const Value x(tensor({1, 2}).view(Dims{1, 2}, Dims{2, 1}, 0));
  const Value weight(tensor({3, 4}).view(Dims{1, 2}, Dims{2, 1}, 0));
  EXPECT_EQ(floats(group.call(0, "w1", "linear", {x, weight, Value()}).as_tensor()), (std::vector<float>{11}));
}

TEST(Calls, AnOpRefusesWhatItCannotTake) {
  RpcGroup group(2);
  group.begin();
  const Error error = group.error_of(*group.start(0, "w1", "neg", {number(3)}));
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_EQ(
      error.message(),
      "call \"neg\" on \"w1\" (rank 1): argument 0 of op \"neg\" is an int64; an op takes tensors (null: left out), "
      "then a map of its attributes");
  EXPECT_FALSE(error.may_have_run());
  const Error shapes = group.error_of(*group.start(0, "w1", "add", {Value(tensor({1, 2})), Value(tensor({1, 2, 3}))}));
  EXPECT_EQ(shapes.status(), Status::kInvalidArgument);
  EXPECT_EQ(shapes.origin_rank(), 1);
}

TEST(Calls, OnlyACheapOpOnSmallTensorsRunsOnTheLoop) {
  RpcGroup group(2);
  group.begin();
  group.node(1).compute.freeze();
  EXPECT_EQ(group.call(0, "w1", "neg", {Value(tensor({1}))}).as_tensor().count(), 1);
  auto large = group.start(0, "w1", "neg", {Value(Tensor::empty(Dtype::kFloat32, Dims{512 << 10}))});
  const Tensor row = Tensor::empty(Dtype::kFloat32, Dims{1, 4096});
  const Tensor column = Tensor::empty(Dtype::kFloat32, Dims{4096, 1});
  auto wide = group.start(0, "w1", "add", {Value(row), Value(column)});
  auto heavy = group.start(0, "w1", "matmul", {Value(row), Value(column)});
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(large->is_done() || wide->is_done() || heavy->is_done());
  group.node(1).compute.thaw();
  group.await(*large);
  EXPECT_EQ(large->value().as_tensor().count(), 512 << 10);
  group.await(*heavy);
}

TEST(Calls, AShortPassRunsOnTheLoopWhereNothingElseIsOpen) {
  RpcGroup group(2);
  group.begin();
  group.node(1).compute.freeze();
  const Value pass(Tensor::empty(Dtype::kFloat32, Dims{64 << 10}));
  EXPECT_EQ(group.call(0, "w1", "neg", {pass}).as_tensor().count(), 64 << 10);
  auto heavy = group.start(
      0, "w1", "matmul",
      {Value(Tensor::empty(Dtype::kFloat32, Dims{1, 4096})), Value(Tensor::empty(Dtype::kFloat32, Dims{4096, 1}))});
  auto beside = group.start(0, "w1", "neg", {pass});
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(heavy->is_done() || beside->is_done());
  group.node(1).compute.thaw();
  group.await(*beside);
  group.await(*heavy);
}

TEST(Calls, AFunctionHidesAnOpOfItsName) {
  RpcGroup group(2);
  group.rpc(1).register_function("neg", [](Invocation& invocation) { invocation.set_result(number(5)); });
  group.begin();
  EXPECT_EQ(group.call(0, "w1", "neg").as_int64(), 5);
}

// A host whose allocator gives nothing.
class ShortMemory final : public FrameMemory {
 public:
  std::shared_ptr<std::byte> allocate(size_t) override { throw Error(Status::kOutOfMemory, "the host gave none"); }
};

TEST(Calls, WhoHasNoMemoryForACallAnswersSoAndGoesOn) {
  RpcGroup group(2, 1, {}, std::make_shared<ShortMemory>());
  size_t runs = 0;
  group.rpc(1).register_function("take", [&runs](Invocation&) { ++runs; });
  group.rpc(1).register_function("add", add_numbers);
  group.begin();
  const Value large(Tensor::empty(Dtype::kFloat64, {400000}));
  const Error error = group.error_of(*group.start(0, "w1", "take", {large}));
  EXPECT_EQ(error.status(), Status::kOutOfMemory) << error.message();
  EXPECT_FALSE(error.may_have_run());
  EXPECT_EQ(error.origin_rank(), 1);
  EXPECT_EQ(runs, 0u);
  EXPECT_EQ(group.call(0, "w1", "add", {number(2), number(40)}).as_int64(), 42);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
}

TEST(Calls, WhoHasNoMemoryForAnAnswerFailsTheCallAndGoesOn) {
  RpcGroup group(2, 1, {}, std::make_shared<ShortMemory>());
  group.rpc(1).register_function(
      "give", [](Invocation& invocation) { invocation.set_result(Value(Tensor::empty(Dtype::kFloat64, {400000}))); });
  group.rpc(1).register_function("add", add_numbers);
  group.begin();
  const Error error = group.error_of(*group.start(0, "w1", "give"));
  EXPECT_EQ(error.status(), Status::kOutOfMemory) << error.message();
  EXPECT_TRUE(error.may_have_run());
  EXPECT_EQ(group.call(0, "w1", "add", {number(2), number(40)}).as_int64(), 42);
  EXPECT_EQ(group.rpc(0).stats().calls_open, 0u);
}

TEST(Calls, StatisticsCountWhatIsOpen) {
  RpcGroup group(2);
  std::shared_ptr<PendingReply> reply;
  group.rpc(1).register_function("later", [&reply](Invocation& invocation) { reply = invocation.defer(); });
  group.begin();
  auto future = group.start(0, "w1", "later");
  ASSERT_TRUE(group.run_until([&reply] { return reply != nullptr; }));
  EXPECT_EQ(group.rpc(0).stats().calls_made, 1u);
  EXPECT_EQ(group.rpc(0).stats().calls_open, 1u);
  EXPECT_EQ(group.rpc(0).stats().futures_open, 1u);
  EXPECT_EQ(group.rpc(1).stats().calls_served, 1u);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 1u);
  reply->fail(Error(Status::kNotFound, "x"));
  group.await(*future);
  EXPECT_EQ(group.rpc(0).stats().calls_open, 0u);
  EXPECT_EQ(group.rpc(0).stats().calls_failed, 1u);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
}

}  // namespace
}  // namespace distag
