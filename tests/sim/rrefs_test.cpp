// Remote references on whole workers: what users see of them, and that nothing is left when they are gone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "support/expect.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

using Ref = std::shared_ptr<Rref>;

Value as_value(const Ref& reference) { return Value(std::shared_ptr<ExternalValue>(reference)); }
Value whole(int64_t number) { return Value(number); }

using testing::error_of;

bool contains(const Error& error, const std::string& text) { return error.message().find(text) != std::string::npos; }

class RrefsTest : public ::testing::Test {
 protected:
  void make(int32_t size = 3, uint64_t seed = 1, uint64_t max_in_flight = 0, bool is_open = false) {
    SimGroupOptions options;
    options.size = size;
    options.is_open = is_open;
    options.max_in_flight = max_in_flight;
    group_.reset();
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    for (int32_t rank = 0; rank < size; ++rank) register_functions(rank);
    group_->start();
  }

  void register_functions(int32_t rank) {
    Rpc& rpc = group_->worker(rank).rpc();
    rpc.register_function("make", [](Invocation& invocation) { invocation.set_result(invocation.args().at(0)); });
    rpc.register_function("fail", [](Invocation&) { throw Error(static_cast<Status>(1007), "no such model"); });
    rpc.register_function(
        "keep", [this, rank](Invocation& invocation) { kept_[static_cast<size_t>(rank)] = invocation.args().at(0); });
    rpc.register_function(
        "give", [this, rank](Invocation& invocation) { invocation.set_result(kept_[static_cast<size_t>(rank)]); });
    // Hands its reference on to the ranks that follow, and gives what the last one fetches.
    rpc.register_function("hand_on", [this, rank](Invocation& invocation) {
      Values args = invocation.args();
      if (args.size() == 1) {
        invocation.set_result(fetch(rank, as_rref(args[0])));
        return;
      }
      const auto next = static_cast<int32_t>(args[1].as_int64());
      args.erase(args.begin() + 1);
      invocation.set_result(group_->call(rank, next, "hand_on", std::move(args)));
    });
    // The value that a reference of this worker stands for, plus one.
    rpc.register_function("bump", [](Invocation& invocation) {
      const Ref reference = as_rref(invocation.args().at(0));
      invocation.set_result(whole(reference->owned()->outcome().value().as_int64() + 1));
    });
    rpc.register_function("slow", [this, rank](Invocation& invocation) {
      group_->call(rank, rank, "wait", {});
      invocation.set_result(whole(5));
    });
    rpc.register_function("wait", [this](Invocation& invocation) { waiting_.push_back(invocation.defer()); });
  }

  Ref create(int32_t rank, Value value) { return group_->worker(rank).rrefs().create(std::move(value)); }
  Ref remote(int32_t from, int32_t to, const std::string& function, Values args = {}, const Id& context = {}) {
    CallRequest request;
    request.to = SimWorkerGroup::name(to);
    request.function = function;
    request.args = std::move(args);
    request.context = context;
    return group_->worker(from).rrefs().remote(std::move(request));
  }
  Value fetch(int32_t rank, const Ref& reference, const Id& context = {}) {
    FetchOptions options;
    options.context = context;
    const auto future = group_->worker(rank).rrefs().fetch(reference, options);
    wait(*future, kForever);
    return future->value();
  }
  RrefStats stats(int32_t rank) { return group_->worker(rank).stats().rrefs; }
  void settle() { group_->scheduler().run_for(kSecond); }
  void expect_nothing_left() {
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      if (group_->is_killed(rank)) continue;
      EXPECT_EQ(stats(rank).owned, 0u) << "w" << rank;
      EXPECT_EQ(stats(rank).used, 0u) << "w" << rank;
      EXPECT_EQ(stats(rank).forks, 0u) << "w" << rank;
    }
  }

  std::unique_ptr<SimWorkerGroup> group_;
  std::vector<Value> kept_ = std::vector<Value>(16);
  std::vector<std::shared_ptr<PendingReply>> waiting_;
};

TEST_F(RrefsTest, TheOwnerGivesTheValueItself) {
  make(1);
  const Tensor tensor = Tensor::scalar(Dtype::kFloat64, 2.5);
  Ref reference = create(0, Value(tensor));
  EXPECT_TRUE(reference->is_owner());
  EXPECT_TRUE(reference->is_confirmed());
  EXPECT_EQ(fetch(0, reference).as_tensor().id(), tensor.id());
  EXPECT_EQ(stats(0).owned, 1u);
  reference.reset();
  expect_nothing_left();
}

TEST_F(RrefsTest, AValueThatACallMadeStaysThere) {
  make(2);
  Ref reference = remote(0, 1, "make", {whole(42)});
  EXPECT_FALSE(reference->is_owner());
  EXPECT_EQ(reference->owner_peer()->name, "w1");
  EXPECT_EQ(fetch(0, reference).as_int64(), 42);
  EXPECT_TRUE(reference->is_confirmed());
  EXPECT_EQ(stats(0).used, 1u);
  EXPECT_EQ(stats(1).owned, 1u);
  EXPECT_EQ(stats(1).forks, 1u);
  reference.reset();
  settle();
  expect_nothing_left();
}

TEST_F(RrefsTest, ACallMayMakeAValueAtItsOwnWorker) {
  make(2);
  Ref reference = remote(0, 0, "make", {whole(42)});
  EXPECT_TRUE(reference->is_owner());
  EXPECT_EQ(fetch(0, reference).as_int64(), 42);
  reference.reset();
  settle();
  expect_nothing_left();
}

TEST_F(RrefsTest, TheResultOfAnOpMayStayToo) {
  make(2);
  const Tensor two = Tensor::scalar(Dtype::kFloat64, 2);
  const Ref sum = remote(0, 1, "add", {Value(two), Value(two)});
  const Ref square = remote(0, 1, "mul", {as_value(sum), as_value(sum)});
  EXPECT_EQ(fetch(0, square).as_tensor().item(), 16.0);
}

TEST_F(RrefsTest, TravelsAsArgumentAndAsResultInAllDirections) {
  make(3);
  for (int32_t owner = 0; owner < 3; ++owner) {
    for (int32_t from = 0; from < 3; ++from) {
      for (int32_t to = 0; to < 3; ++to) {
        Ref reference = create(owner, whole(owner));
        group_->call(owner, from, "keep", {as_value(reference)});
        reference.reset();
        // `from` passes it on to `to`, which fetches it; then `to` asks `from` for it.
        EXPECT_EQ(group_->call(from, to, "hand_on", {kept_[static_cast<size_t>(from)]}).as_int64(), owner);
        reference = as_rref(group_->call(to, from, "give", {}));
        EXPECT_EQ(fetch(to, reference).as_int64(), owner);
        EXPECT_EQ(reference->is_owner(), to == owner);
        kept_[static_cast<size_t>(from)] = Value();
        reference.reset();
        settle();
        expect_nothing_left();
      }
    }
  }
}

TEST_F(RrefsTest, IsHandedOnEightTimes) {
  for_each_seed(20, [this](uint64_t seed) {
    make(9, seed);
    Ref reference = remote(0, 1, "make", {whole(7)});
    Values args{as_value(reference)};
    for (int64_t next = 3; next <= 8; ++next) args.push_back(whole(next));
    args.push_back(whole(0));
    reference.reset();
    EXPECT_EQ(group_->call(0, 2, "hand_on", std::move(args)).as_int64(), 7);
    settle();
    expect_nothing_left();
  });
}

TEST_F(RrefsTest, ListsMapsAndOtherReferencesHoldReferences) {
  make(3);
  Ref inner = create(1, whole(1));
  Ref outer = create(2, Value::list({Value::map({{"inner", group_->call(2, 1, "make", {whole(0)})}}), whole(3)}));
  // w1 sends its reference to w2, which shares a map with it in it.
  group_->call(1, 2, "keep", {Value::map({{"inner", Value::list({as_value(inner)})}})});
  Ref shared = create(2, kept_[2]);
  kept_[2] = Value();
  group_->call(2, 0, "keep", {as_value(shared)});
  shared.reset();
  const Value map = fetch(0, as_rref(kept_[0]));
  EXPECT_EQ(fetch(0, as_rref(map.find("inner")->as_list()[0])).as_int64(), 1);
  kept_[0] = Value();
  inner.reset();
  outer.reset();
  settle();
  EXPECT_EQ(stats(1).forks, 1u) << "held by the map that the test still has";
}

TEST_F(RrefsTest, AFailureIsKeptAndAnswersEveryUse) {
  make(3);
  Ref reference = remote(0, 1, "fail");
  for (int i = 0; i < 2; ++i) {
    const Error error = error_of([&] { fetch(0, reference); });
    EXPECT_EQ(error.status(), static_cast<Status>(1007));
    EXPECT_TRUE(contains(error, "no such model")) << error.message();
    EXPECT_EQ(error.origin_rank(), 1);
  }
  EXPECT_EQ(error_of([&] { group_->call(0, 1, "bump", {as_value(reference)}); }).status(), static_cast<Status>(1007));
  EXPECT_EQ(error_of([&] { group_->call(0, 2, "hand_on", {as_value(reference)}); }).status(),
            static_cast<Status>(1007));
  EXPECT_EQ(error_of([&] { fetch(0, remote(0, 1, "bump", {as_value(reference)})); }).status(),
            static_cast<Status>(1007));
  EXPECT_EQ(error_of([&] { fetch(0, remote(0, 1, "missing")); }).status(), Status::kNotFound);
  reference.reset();
  settle();
  expect_nothing_left();
}

// The owner has never heard of the reference. The worker that passes it on needs nothing of it; a use of it fails.
TEST_F(RrefsTest, AReferenceWhoseCreationHasFailedIsPassedOn) {
  make(4);
  const Id ended = group_->worker(1).dautograd().create_context()->global_id();
  settle();
  Ref unmade;
  group_->worker(1).rpc().register_function("begin", [&](Invocation& invocation) {
    unmade = remote(1, 2, "make", {whole(1)}, ended);
    invocation.set_result(Value::list({as_value(unmade)}));
  });
  Ref answered = as_rref(group_->call(0, 1, "begin", {}).as_list().at(0));
  const Error error = error_of([&] { fetch(0, answered); });
  EXPECT_EQ(error.status(), Status::kNotFound) << error.message();
  EXPECT_TRUE(contains(error, "never went out")) << error.message();

  group_->call(1, 3, "keep", {Value::list({as_value(unmade)})});
  group_->call(1, 1, "keep", {as_value(unmade)});
  Ref kept = as_rref(kept_[3].as_list().at(0));
  EXPECT_EQ(error_of([&] { fetch(3, kept); }).status(), Status::kNotFound);
  for (const char* use : {"bump", "keep"}) {
    EXPECT_EQ(error_of([&] { group_->call(1, 2, use, {as_value(unmade)}); }).status(), Status::kInvalidState) << use;
  }
  EXPECT_EQ(error_of([&] { fetch(1, unmade); }).status(), Status::kInvalidState);
  for (Value& value : kept_) value = Value();
  answered = kept = unmade = nullptr;
  settle();
  expect_nothing_left();
}

// A call that carries a reference does not need its owner either. The owner is killed before the call that makes the
// value, or after it.
TEST_F(RrefsTest, AReferenceToAValueOfAWorkerThatHasLeftIsPassedOn) {
  for_each_seed(40, [this](uint64_t seed) {
    make(3, seed);
    auto& scheduler = group_->scheduler();
    Ref made = remote(0, 1, "make", {whole(1)});
    if (seed % 2 == 0) settle();
    group_->kill(1);
    std::vector<Ref> references = {std::move(made)};
    // The owner is lost at some moment between these calls: then it cannot be called at all.
    try {
      for (int i = 0; i < 20; ++i) {
        references.push_back(remote(0, 1, "make", {whole(1)}));
        scheduler.run_for(scheduler.between(0, 500 * kMillisecond));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
    }
    for (const Ref& reference : references) {
      group_->call(0, 2, "keep", {as_value(reference)});
      const Ref kept = as_rref(kept_[2]);
      EXPECT_EQ(error_of([&] { fetch(2, kept); }).status(), Status::kDisconnected);
      EXPECT_EQ(error_of([&] { fetch(0, reference); }).status(), Status::kDisconnected);
    }
    kept_[2] = Value();
  });
}

// A worker that leaves in good order takes the calls that make values until a moment of its end, and then refuses them.
// References of both kinds are passed on while it leaves and after; a fetch fails once it has left.
TEST_F(RrefsTest, AReferenceThatALeavingWorkerRefusedIsPassedOn) {
  int refused = 0;
  const bool is_sweep = for_each_seed(40, [this, &refused](uint64_t seed) {
    make(3, seed, 0, true);
    auto& scheduler = group_->scheduler();
    std::vector<Ref> references;
    const auto pass_on = [this](const Ref& reference) {
      group_->call(0, 2, "keep", {as_value(reference)});
      return as_rref(kept_[2]);
    };
    const auto over = group_->worker(1).shutdown(kSecond);
    try {
      for (int i = 0; i < 20; ++i) {
        references.push_back(remote(0, 1, "make", {whole(1)}));
        scheduler.run_for(scheduler.between(0, 100 * kMillisecond));
        pass_on(references.back());
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
      EXPECT_TRUE(contains(error, "w1")) << "of the call to the worker that leaves: " << error.message();
    }
    wait(*over, kForever);
    settle();
    for (const Ref& reference : references) {
      const Ref kept = pass_on(reference);
      EXPECT_EQ(error_of([&] { fetch(2, kept); }).status(), Status::kDisconnected);
      const Error error = error_of([&] { fetch(0, reference); });
      EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
      refused += reference->failure() ? 1 : 0;
    }
    kept_[2] = Value();
  });
  if (!is_sweep) return;
  EXPECT_GT(refused, 0);
}

TEST_F(RrefsTest, AFailureThatNobodyRefersToIsLogged) {
  make(2);
  remote(0, 1, "fail");
  settle();
  const auto& lines = group_->log_lines();
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("no such model") != std::string::npos && line.find("call \"fail\" on \"w1\"") != std::string::npos;
  }));
  expect_nothing_left();
}

TEST_F(RrefsTest, AFunctionStartsWhenTheValuesOfItsArgumentsAreThere) {
  make(2);
  const Ref reference = remote(0, 1, "slow");
  CallRequest request;
  request.to = "w1";
  request.function = "bump";
  request.args = {as_value(reference)};
  const auto bumped = group_->worker(0).rpc().call(std::move(request));
  settle();
  EXPECT_FALSE(bumped->is_done());
  ASSERT_EQ(waiting_.size(), 1u);
  waiting_[0]->finish(Value());
  wait(*bumped, kForever);
  EXPECT_EQ(bumped->value().as_int64(), 6);
}

TEST_F(RrefsTest, AFetchOfAValueInTheMakingEndsByItsDeadline) {
  make(2);
  const Ref far = remote(0, 1, "slow");
  const Ref near = remote(0, 0, "slow");
  for (const Ref& reference : {far, near}) {
    FetchOptions options;
    options.timeout = 100 * kMillisecond;
    const auto future = group_->worker(0).rrefs().fetch(reference, options);
    wait(*future, kForever);
    ASSERT_NE(future->error(), nullptr);
    EXPECT_EQ(future->error()->status(), Status::kDeadline);
  }
  for (const auto& reply : waiting_) reply->finish(Value());
  EXPECT_EQ(fetch(0, far).as_int64(), 5);
  EXPECT_EQ(fetch(0, near).as_int64(), 5);
}

// The request leaves its room to others, which may have to make the value.
TEST_F(RrefsTest, ARequestThatWaitsForAValueHoldsUpNoOther) {
  make(2, 1, 1500);
  const Ref far = remote(0, 1, "slow");
  const auto fetched = group_->worker(0).rrefs().fetch(far, {});
  ASSERT_TRUE(group_->scheduler().run_until([this] { return !waiting_.empty(); }, kSecond));
  EXPECT_EQ(group_->call(0, 1, "make", {whole(3)}).as_int64(), 3);
  EXPECT_FALSE(fetched->is_done());
  for (const auto& reply : waiting_) reply->finish(Value());
  wait(*fetched, kForever);
  EXPECT_EQ(fetched->value().as_int64(), 5);
}

TEST_F(RrefsTest, AnObjectStaysWithItsOwner) {
  make(2);
  bool destroyed = false;
  group_->worker(1).rpc().register_function("build", [&destroyed](Invocation& invocation) {
    invocation.set_result(
        Value(std::make_shared<HostObject>("counter", &destroyed, [&destroyed] { destroyed = true; })));
  });
  Ref reference = remote(0, 1, "build");
  const Error error = error_of([&] { fetch(0, reference); });
  EXPECT_EQ(error.status(), Status::kUnsupported);
  EXPECT_TRUE(contains(error, "counter")) << error.message();
  EXPECT_EQ(error_of([&] { group_->call(0, 1, "build", {}); }).status(), Status::kInvalidArgument);
  EXPECT_FALSE(std::exchange(destroyed, false) && false);
  reference.reset();
  settle();
  EXPECT_TRUE(destroyed);
  expect_nothing_left();
}

TEST_F(RrefsTest, AReferenceOfAnotherWorkerIsRefused) {
  make(2);
  const Ref reference = create(1, whole(1));
  const Error error = error_of([&] { group_->call(0, 1, "make", {as_value(reference)}); });
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_TRUE(contains(error, "another worker")) << error.message();
  EXPECT_EQ(error_of([&] { fetch(0, reference); }).status(), Status::kInvalidArgument);
}

TEST_F(RrefsTest, AnswersTheLossOfTheOwner) {
  make(3);
  const Ref reference = remote(0, 1, "make", {whole(1)});
  EXPECT_EQ(fetch(0, reference).as_int64(), 1);
  group_->kill(1);
  const Error error = error_of([&] { fetch(0, reference); });
  EXPECT_EQ(error.status(), Status::kDisconnected);
  EXPECT_TRUE(contains(error, "w1")) << error.message();
  EXPECT_EQ(error_of([&] { group_->call(0, 2, "hand_on", {as_value(reference)}); }).status(), Status::kDisconnected);
}

TEST_F(RrefsTest, TheForksOfALostUserAreDropped) {
  make(3);
  Ref reference = create(0, whole(1));
  group_->call(0, 1, "keep", {as_value(reference)});
  group_->call(0, 2, "keep", {as_value(reference)});
  reference.reset();
  EXPECT_EQ(stats(0).forks, 2u);
  group_->kill(1);
  ASSERT_TRUE(group_->scheduler().run_until([this] { return stats(0).forks == 1; }, 60 * kSecond));
  kept_[2] = Value();
  settle();
  EXPECT_EQ(stats(0).owned, 0u);
  kept_[1] = Value();
}

TEST_F(RrefsTest, AnOwnerThatIsBackHasNoneOfTheOldValues) {
  for_each_seed(20, [this](uint64_t seed) {
    make(3, seed);
    const Ref reference = remote(0, 1, "make", {whole(1)});
    Tensor weight = Tensor::scalar(Dtype::kFloat64, 2);
    autograd::set_requires_grad(weight, true);
    const Ref parameter = remote(0, 1, "make", {Value(weight)});
    const auto optimizer = group_->worker(0).optim().make_optimizer("sgd", {as_value(parameter)});
    EXPECT_EQ(fetch(0, reference).as_int64(), 1);
    group_->kill(1);
    if (seed % 2 == 0) {  // whether its loss is seen before it is back, or not
      EXPECT_EQ(error_of([&] { fetch(0, reference); }).status(), Status::kDisconnected);
    }
    Worker& again = group_->restart(1);
    register_functions(1);
    const auto started = again.start(60 * kSecond);
    wait(*started, kForever);
    started->value();
    const Error error = error_of([&] { fetch(0, reference); });
    EXPECT_EQ(error.status(), Status::kPeerRestarted) << error.message();
    EXPECT_TRUE(contains(error, "w1")) << error.message();
    EXPECT_EQ(error_of([&] { group_->call(0, 1, "make", {as_value(reference)}); }).status(), Status::kOk)
        << "it can be passed on, also to the new one";
    EXPECT_EQ(error_of([&] { group_->call(0, 1, "hand_on", {as_value(reference)}); }).status(), Status::kPeerRestarted);
    const auto context = group_->worker(0).dautograd().create_context();
    const Error lost = error_of([&] { optimizer->step(context, {}); });
    EXPECT_EQ(lost.status(), Status::kPeerRestarted) << lost.message();
    EXPECT_EQ(fetch(0, remote(0, 1, "make", {whole(2)})).as_int64(), 2);
    settle();
    EXPECT_EQ(stats(1).owned + stats(2).owned, 0u);
  });
}

TEST_F(RrefsTest, TheForksOfAUserThatIsBackAreGone) {
  for_each_seed(20, [this](uint64_t seed) {
    make(2, seed);
    Ref reference = create(0, whole(1));
    group_->call(0, 1, "keep", {as_value(reference)});
    reference.reset();
    EXPECT_EQ(stats(0).forks, 1u);
    group_->kill(1);
    Worker& again = group_->restart(1);
    register_functions(1);
    const auto started = again.start(60 * kSecond);
    wait(*started, kForever);
    started->value();
    ASSERT_TRUE(group_->scheduler().run_until([this] { return stats(0).forks == 0; }, 60 * kSecond));
    EXPECT_EQ(stats(0).owned, 0u);
    kept_[1] = Value();
  });
}

TEST_F(RrefsTest, HistoryCrossesAFetchInAContext) {
  make(2);
  const auto context = group_->worker(0).dautograd().create_context();
  Tensor a = Tensor::scalar(Dtype::kFloat64, 2), b = Tensor::scalar(Dtype::kFloat64, 3);
  autograd::set_requires_grad(a, true);
  autograd::set_requires_grad(b, true);
  const Ref sum = remote(0, 1, "add", {Value(a), Value(b)}, context->global_id());
  const Tensor first = fetch(0, sum, context->global_id()).as_tensor();
  const Tensor second = fetch(0, sum, context->global_id()).as_tensor();
  // As the peer counts it: remote(add), fetched twice, both used.
  EXPECT_EQ(context->info().send_count, 1u);
  EXPECT_EQ(context->info().recv_count, 2u);
  const auto there = group_->worker(1).dautograd().find_context(context->global_id());
  EXPECT_EQ(there->info().send_count, 2u);
  EXPECT_EQ(there->info().recv_count, 1u);
  EXPECT_EQ(context->known_ranks(), std::vector<int32_t>{1});
  EXPECT_EQ(there->known_ranks(), std::vector<int32_t>{0});
  const std::vector<Tensor> factors{first, second};
  context->backward({autograd::apply(ops::kMul, factors, {})[0]}, {});
  EXPECT_EQ(context->gradients()->find(a)->item(), 10.0);
}

TEST_F(RrefsTest, AGracefulShutdownNamesWhatIsStillHeld) {
  make(2);
  CallRequest request;
  request.to = "w1";
  request.function = "make";
  request.args = {whole(1)};
  request.label = "weights of layer 3";
  const Ref reference = group_->worker(0).rrefs().remote(std::move(request));
  fetch(0, reference);
  const auto reports = group_->shutdown();
  EXPECT_TRUE(reports[0].clean);
  EXPECT_FALSE(reports[1].clean);
  ASSERT_EQ(reports[1].leaked_rrefs.size(), 1u);
  EXPECT_NE(reports[1].leaked_rrefs[0].find("weights of layer 3"), std::string::npos) << reports[1].leaked_rrefs[0];
  EXPECT_NE(reports[1].leaked_rrefs[0].find("worker \"w0\""), std::string::npos) << reports[1].leaked_rrefs[0];
}

TEST_F(RrefsTest, AReportTellsWhoHoldsWhat) {
  make(2);
  const Ref made = remote(0, 1, "make", {whole(1)});
  const Ref failed = remote(0, 1, "fail");
  const Ref making = remote(0, 1, "slow");
  fetch(0, made);
  settle();
  const auto report = group_->worker(1).fetch_snapshot();
  wait(*report, kForever);
  const auto& rrefs = report->value().rrefs;
  ASSERT_EQ(rrefs.size(), 3u);
  const char* states[] = {"made", "failed", "making"};
  const Ref references[] = {made, failed, making};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_STREQ(rrefs[i].state, states[i]);
    EXPECT_EQ(rrefs[i].id, references[i]->number());
    EXPECT_EQ(rrefs[i].holders, std::vector<std::string>{"w0"});
    EXPECT_NE(rrefs[i].origin.find("on \"w1\" from \"w0\""), std::string::npos) << rrefs[i].origin;
  }
  for (const auto& reply : waiting_) reply->finish(Value());
}

TEST_F(RrefsTest, WhatIsReleasedRightBeforeAShutdownIsNoLeak) {
  for_each_seed(100, [this](uint64_t seed) {
    make(3, seed);
    Ref reference = remote(0, 1, "make", {whole(1)});
    group_->call(0, 2, "keep", {as_value(reference)});
    reference.reset();
    kept_[2] = Value();
    for (const ShutdownReport& report : group_->shutdown()) {
      EXPECT_TRUE(report.clean);
      EXPECT_TRUE(report.leaked_rrefs.empty());
    }
  });
}

// Two of three workers have nothing to say to the leader while the release is on its way between them.
TEST_F(RrefsTest, AShutdownWaitsForAReleaseThatIsSlow) {
  make(3);
  Ref reference = remote(2, 1, "make", {whole(1)});
  fetch(2, reference);
  settle();
  group_->network().part("w1", "w2");
  reference.reset();
  group_->scheduler().run_for(10 * kMillisecond);
  group_->scheduler().at(group_->scheduler().now() + kSecond, [this] { group_->network().join("w1", "w2"); });
  for (const ShutdownReport& report : group_->shutdown()) {
    EXPECT_TRUE(report.clean);
    EXPECT_TRUE(report.leaked_rrefs.empty());
  }
}

// The two could not tell each other of the release any more, and the leader hears both.
TEST_F(RrefsTest, AShutdownDoesNotWaitForWhatTwoThatLostEachOtherSaid) {
  make(3);
  Ref reference = remote(2, 1, "make", {whole(1)});
  fetch(2, reference);
  group_->call(0, 1, "make", {whole(1)});
  group_->call(0, 2, "make", {whole(1)});
  settle();
  group_->network().part("w1", "w2");
  reference.reset();
  group_->scheduler().run_for(20 * kSecond);
  ASSERT_EQ(group_->worker(1).group().membership().find_by_rank(2)->state, Standing::kLost);
  const Nanos begin = group_->scheduler().now();
  for (const ShutdownReport& report : group_->shutdown()) EXPECT_EQ(report.open_calls, 0);
  EXPECT_LT(group_->scheduler().now() - begin, 10 * kSecond);
}

}  // namespace
}  // namespace distag::sim
