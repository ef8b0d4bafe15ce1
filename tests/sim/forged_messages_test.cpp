// Messages about contexts and passes that no correct peer sends, and shortages that are no violation.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "base/violation.h"
#include "dautograd/pass_plan.h"
#include "ops/builtins.h"
#include "sim/square_test.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

// Memory for large payload that can be full.
class Bounded final : public FrameMemory {
 public:
  bool is_full = false;
  std::shared_ptr<std::byte> allocate(size_t size) override {
    if (is_full) throw Error(Status::kOutOfMemory, "the memory bound is reached");
    return {new std::byte[size], std::default_delete<std::byte[]>()};
  }
};

class ForgedMessagesTest : public SquareTest {
 protected:
  void make(int64_t elements = 1, bool is_planned = false) {
    SimGroupOptions options;
    if (!is_planned) options.lineage = kNoLineage;
    options.memory = [this](int32_t rank) { return rank == 1 ? memory_ : nullptr; };
    SquareTest::make(options, elements);
  }

  // Delivers the message as if it came now from the peer's stream.
  void deliver(int32_t to, size_t from, wire::Body body) {
    group_->loop(to).run([&] {
      wire::Message message{0, 0, {}, std::move(body)};
      group_->worker(to).dautograd().handle(peers_[from], message);
    });
  }
  void expect_violation(int32_t to, size_t from, const wire::Body& body) {
    EXPECT_THROW(deliver(to, from, body), Violation) << wire::body_name(body);
  }
  // As if the message had come, and no memory had been left to take it.
  void fall_short(int32_t to, size_t from, wire::Body body) {
    group_->loop(to).run([&] {
      const wire::Message outline{0, 0, {}, std::move(body)};
      group_->worker(to).dautograd().refuse(peers_[from], outline, Error(Status::kOutOfMemory, "no memory"));
    });
  }
  // Begins a pass, and returns the first message of this kind that goes to w1.
  template <typename Body>
  Body catch_next(BackwardMode mode, std::shared_ptr<Future<Value>>* pass) {
    std::optional<Body> caught;
    group_->network().set_tap([&caught](const std::string&, const std::string& to, const Frames& frames) {
      if (to != "w1" || caught) return;
      const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
      if (const auto* body = std::get_if<Body>(&message.body)) caught = *body;
    });
    BackwardOptions options;
    options.mode = mode;
    options.retain_graph = true;
    *pass = context_->backward_async({sum(y_)}, options);
    EXPECT_TRUE(group_->scheduler().run_until([&caught] { return caught.has_value(); }, kSecond));
    group_->network().set_tap({});
    return *caught;
  }
  // The only pass at w1.
  PassSnapshot pass_at_w1() {
    PassSnapshot pass;
    group_->loop(1).run([&] { pass = group_->worker(1).dautograd().contexts().at(0).passes.at(0); });
    return pass;
  }
  static Tensor sum(const Tensor& tensor) { return autograd::apply(ops::kSum, std::vector<Tensor>{tensor}, {})[0]; }
  // No peer was given up, and the context works as before.
  void expect_sound(double gradient = 6) {
    group_->scheduler().run_for(20 * kSecond);
    for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(stats(rank).passes_open, 0u) << "w" << rank;
    context_->backward({sum(y_)}, {});
    EXPECT_EQ(context_->gradients()->find(x_)->contiguous().data_as<double>()[0], gradient);
    for (int32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(group_->worker(rank).group().membership().alive_count(), 3u) << "w" << rank;
    }
  }

  std::shared_ptr<Bounded> memory_ = std::make_shared<Bounded>();
};

TEST_F(ForgedMessagesTest, AContextRecordsSoManyCalls) {
  SimGroupOptions options;
  options.max_sends = 3;
  SquareTest::make(options);  // has one already
  const auto square = [this] { return group_->call(0, 1, "square", {Value(x_)}, id()); };
  square();
  square();
  try {
    square();
    ADD_FAILURE() << "it was recorded";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kOverloaded) << error.message();
    EXPECT_NE(error.message().find("3 calls and answers"), std::string::npos) << error.message();
  }
  group_->call(0, 2, "nothing", {}, id());  // nothing of it is recorded
  expect_sound();
  square();
}

// ---- who may say what ----

TEST_F(ForgedMessagesTest, AContextIsEndedByItsCreator) {
  make();
  expect_violation(1, 2, wire::Release{{id()}});
  EXPECT_EQ(stats(1).contexts, 1u);
}

TEST_F(ForgedMessagesTest, APassIsBegunAndEndedByItsInitiator) {
  make();
  const Id pass{incarnation(0), 77};
  expect_violation(1, 2, wire::Start{id(), pass, false});
  expect_violation(1, 2, wire::Verdict{id(), pass, false, {}});
  expect_violation(0, 1, wire::Verdict{id(), pass, false, {}});
  EXPECT_EQ(stats(1).passes_run, 0u);
}

TEST_F(ForgedMessagesTest, GradientsComeFromWhereTheValuesWent) {
  make();
  std::shared_ptr<Future<Value>> pass;
  const auto discover = catch_next<wire::Discover>(BackwardMode::kSmart, &pass);
  wire::Discover forged = discover;
  forged.request = {incarnation(2), 1};
  expect_violation(1, 2, forged);
  deliver(1, 0, discover);
  wire::Grad grad{id(), discover.pass, {incarnation(1), 1}, true, false, {true}, {Value(x_)}};
  expect_violation(1, 2, grad);
  grad.gradients = {Value(Tensor::scalar(Dtype::kFloat64, 1))};
  expect_violation(1, 0, grad);
  grad.gradients = {};
  expect_violation(1, 0, grad);
}

TEST_F(ForgedMessagesTest, ADiscoverIsAnsweredByWhomItWentTo) {
  make();
  std::shared_ptr<Future<Value>> pass;
  const auto discover = catch_next<wire::Discover>(BackwardMode::kSmart, &pass);
  group_->freeze(1);
  expect_violation(0, 2, wire::Discovered{id(), discover.pass, discover.request, false, {}, {}, false});
  expect_violation(0, 1, wire::Discovered{id(), discover.pass, {incarnation(0), 99}, false, {}, {}, false});
  group_->thaw(1);
  wait(*pass, kForever);
  EXPECT_EQ(pass->error(), nullptr);
}

// The pass would have no gradients where its gradients are unknown.
TEST_F(ForgedMessagesTest, ACommitOfAPassThatHasNotRunIsNotTakenForItsGradients) {
  make();
  std::shared_ptr<Future<Value>> pass;
  const auto discover = catch_next<wire::Discover>(BackwardMode::kSmart, &pass);
  group_->scheduler().run_until([this] { return stats(1).passes_open == 1; }, kSecond);
  deliver(1, 0, wire::Verdict{id(), discover.pass, true, {}});
  try {
    group_->worker(1).dautograd().find_context(id())->gradients();
    ADD_FAILURE() << "there were gradients";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kProtocol) << error.message();
    EXPECT_NE(error.message().find("\"w0\""), std::string::npos) << error.message();
  }
}

// ---- plans ----

TEST_F(ForgedMessagesTest, APassIsPlannedByItsInitiatorOnce) {
  make(1, true);
  std::shared_ptr<Future<Value>> pass;
  const auto expect = catch_next<wire::Expect>(BackwardMode::kSmart, &pass);
  expect_violation(1, 2, expect);
  expect_violation(0, 1, expect);
  group_->freeze(0);
  group_->scheduler().run_until([this] { return stats(1).passes_open == 1; }, kSecond);
  expect_violation(1, 0, expect);
}

TEST_F(ForgedMessagesTest, OfAPlannedPassTooGradientsComeFromWhereTheValuesWent) {
  make(1, true);
  const Id pair{incarnation(1), 1};
  wire::Grad grad{id(), {incarnation(2), 77}, pair, true, false, {true}, {Value(x_)}, true};
  expect_violation(1, 2, wire::Grad{id(), {incarnation(0), 77}, pair, true, false, {true}, {Value(x_)}, true});
  grad.gradients = {};
  expect_violation(1, 0, grad);
  grad.live = {true, true};
  expect_violation(1, 0, grad);
}

// A worker answers a false plan: the initiator then searches, and its caller does not notice.
TEST_F(ForgedMessagesTest, APlanThatDoesNotHoldIsAnsweredAndLeavesNothing) {
  make(1, true);
  const Id pass{incarnation(0), 77};
  const uint64_t counter = 1;  // of the only pair of w1
  std::vector<wire::Done> answers;
  group_->network().set_tap([&answers](const std::string&, const std::string& to, const Frames& frames) {
    const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
    const auto* done = std::get_if<wire::Done>(&message.body);
    if (to == "w0" && done != nullptr) answers.push_back(*done);
  });
  const uint64_t check = hash_of_slot({incarnation(0), 1}, 0);
  const std::vector<std::vector<wire::PairBits>> false_sends = {
      {{counter + 7, incarnation(1), {true}}},                                  // never made
      {{counter, incarnation(1), {false}}},                                     // for nothing
      {{counter, incarnation(1), {true, true}}},                                // too many values
      {{counter, incarnation(1), {true}}, {counter, incarnation(1), {true}}}};  // twice
  for (size_t i = 0; i < false_sends.size(); ++i) {
    deliver(1, 0, wire::Expect{id(), {pass.maker, pass.counter + i}, true, false_sends[i], check});
  }
  deliver(1, 0, wire::Expect{id(), {pass.maker, 90}, true, {{counter, incarnation(1), {true}}}, check + 1});
  deliver(1, 0, wire::Expect{{incarnation(0), 99}, {pass.maker, 91}, true, {{counter, incarnation(1), {true}}}, check});
  group_->scheduler().run_for(kSecond);
  group_->network().set_tap({});
  ASSERT_EQ(answers.size(), 6u);
  for (const wire::Done& done : answers) EXPECT_TRUE(done.failed && done.replan) << done.error.message();
  for (size_t i = 0; i < 4; ++i) deliver(1, 0, wire::Verdict{id(), {pass.maker, pass.counter + i}, false, {}});
  deliver(1, 0, wire::Verdict{id(), {pass.maker, 90}, false, {}});
  expect_sound();
}

// A gradient has to be for the values of the plan.
TEST_F(ForgedMessagesTest, AGradientForOtherValuesThanPlannedIsNotTaken) {
  make(1, true);
  const Id pair{incarnation(1), 1};
  const Id pass{incarnation(0), 77};
  bool is_answered = false;
  group_->network().set_tap([&is_answered](const std::string&, const std::string& to, const Frames& frames) {
    const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
    const auto* done = std::get_if<wire::Done>(&message.body);
    is_answered = is_answered || (to == "w0" && done != nullptr && done->replan);
  });
  deliver(1, 0, wire::Expect{id(), pass, true, {{1, incarnation(1), {true}}}, hash_of_slot({incarnation(0), 1}, 0)});
  deliver(1, 0, wire::Grad{id(), pass, pair, true, false, {false}, {}, true});
  group_->scheduler().run_for(10 * kMillisecond);
  group_->network().set_tap({});
  EXPECT_TRUE(is_answered);
  deliver(1, 0, wire::Verdict{id(), pass, false, {}});
  expect_sound();
}

// The gradient waits for the EXPECT; the initiator hears of it, and a second gradient for the same values is found out.
TEST_F(ForgedMessagesTest, AGradientThatComesBeforeItsPlanWaits) {
  make(1, true);
  const Id pair{incarnation(1), 1};
  const Id pass{incarnation(2), 77};
  const wire::Grad grad{id(), pass, pair, true, false, {true}, {Value(x_)}, true};
  group_->freeze(2);
  deliver(1, 0, grad);
  EXPECT_EQ(stats(1).passes_open, 1u);
  deliver(1, 2, wire::Expect{id(), pass, true, {{1, incarnation(1), {true}}}, hash_of_slot({incarnation(0), 1}, 0)});
  group_->scheduler().run_for(10 * kMillisecond);
  EXPECT_EQ(pass_at_w1().stage, "done");
  deliver(1, 2, wire::Verdict{id(), pass, false, {}});
  deliver(1, 0, grad);
  deliver(1, 0, grad);
  group_->scheduler().run_for(10 * kMillisecond);
  EXPECT_EQ(pass_at_w1().stage, "running");
  EXPECT_GE(pass_at_w1().age, 10 * kMillisecond);
  EXPECT_LT(pass_at_w1().age, 20 * kMillisecond);
  group_->thaw(2);
  group_->scheduler().run_for(kSecond);
  EXPECT_EQ(stats(1).passes_open, 0u) << "the initiator knows of no such pass, and has said so";
  deliver(1, 0, wire::Grad{id(), {incarnation(0), 78}, pair, true, false, {true}, {Value(x_)}, true});
  EXPECT_EQ(stats(1).passes_open, 0u) << "an initiator tells its plan first";
  expect_sound();
}

// ---- gradients with a history ----

// A peer whose distag knows no history: its gradients would be silently missing from a second pass.
TEST_F(ForgedMessagesTest, APeerThatGivesGradientsNoHistoryEndsThePass) {
  make();
  group_->freeze(1);
  BackwardOptions options;
  options.create_graph = true;
  const auto pass = context_->backward_async({sum(y_)}, options);
  group_->scheduler().run_for(kMillisecond);
  deliver(0, 1, wire::Done{id(), {incarnation(0), 1}, false, {}, 1, 1, {}});
  wait(*pass, kForever);
  ASSERT_NE(pass->error(), nullptr);
  EXPECT_EQ(pass->error()->status(), Status::kUnsupported) << pass->error()->message();
  EXPECT_NE(pass->error()->message().find("\"w1\" (rank 1) is too old"), std::string::npos) << pass->error()->message();
  EXPECT_TRUE(context_->gradients()->entries.empty());
  group_->thaw(1);
  expect_sound();
}

TEST_F(ForgedMessagesTest, MessagesOfAPassAgreeOnTheHistory) {
  make();
  const Id pass{incarnation(0), 77};
  const Id pair{incarnation(1), 1};
  std::vector<Status> answers;
  group_->network().set_tap([&answers](const std::string&, const std::string& to, const Frames& frames) {
    const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
    const auto* done = std::get_if<wire::Done>(&message.body);
    if (to == "w0" && done != nullptr) answers.push_back(done->error.status());
  });
  const std::vector<wire::PairBits> pairs = {{pair.counter, pair.maker, {true}}};
  for (uint64_t i = 0; i < 2; ++i) {
    const Id one{pass.maker, pass.counter + i};
    deliver(1, 0, wire::Discover{id(), one, {incarnation(0), 1000 + i}, true, pairs, {}, true});
    if (i == 0) deliver(1, 0, wire::Discover{id(), one, {incarnation(0), 2000}, true, pairs, {}, false});
    if (i == 1) deliver(1, 0, wire::Grad{id(), one, pair, true, false, {true}, {Value(x_)}});
    group_->scheduler().run_for(10 * kMillisecond);
    deliver(1, 0, wire::Verdict{id(), one, false, {}});
  }
  group_->network().set_tap({});
  EXPECT_EQ(answers, (std::vector<Status>{Status::kUnsupported, Status::kUnsupported}));
  expect_sound();
}

TEST_F(ForgedMessagesTest, TheHistoryOfAGradientIsOfItsSender) {
  make();
  const Id pass{incarnation(0), 77};
  const Id pair{incarnation(1), 1};
  deliver(1, 0,
          wire::Discover{id(), pass, {incarnation(0), 1000}, true, {{pair.counter, pair.maker, {true}}}, {}, true});
  wire::Grad grad{id(), pass, pair, true, false, {true}, {Value(autograd::detach(x_))}};
  grad.creates_graph = true;
  grad.recording = {id(), 0, {incarnation(2), 50}, {true}, {}, {}};
  expect_violation(1, 0, grad);  // of another maker
  grad.recording = {{incarnation(0), 9}, 0, {incarnation(0), 50}, {true}, {}, {}};
  expect_violation(1, 0, grad);  // of another context
  grad.recording = {id(), 0, {incarnation(0), 50}, {false}, {}, {}};
  expect_violation(1, 0, grad);  // of no value
  grad.recording = {id(), 0, {incarnation(0), 50}, {true, true}, {}, {}};
  expect_violation(1, 0, grad);  // of more than came
  deliver(1, 0, wire::Verdict{id(), pass, false, {}});
  expect_sound();
}

TEST_F(ForgedMessagesTest, AShortageAtAnExpectFailsThePassAlone) {
  make(1, true);
  std::shared_ptr<Future<Value>> pass;
  const auto expect = catch_next<wire::Expect>(BackwardMode::kSmart, &pass);
  fall_short(1, 0, expect);
  wait(*pass, 2 * kSecond);
  ASSERT_NE(pass->error(), nullptr);
  EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
  expect_sound();
}

// ---- what is late ----

TEST_F(ForgedMessagesTest, ALateAnswerMakesNoContext) {
  make();
  wire::AutogradMetadata metadata;
  metadata.context = id();
  metadata.creator_rank = 0;
  context_.reset();
  y_ = Tensor();
  group_->scheduler().run_for(kSecond);
  group_->loop(1).run([&] { group_->worker(1).dautograd().on_receive(metadata, peers_[2], {}, "call", true); });
  EXPECT_EQ(stats(1).contexts, 0u);
}

TEST_F(ForgedMessagesTest, NorDoesACallInAContextOfOneThatIsGone) {
  make();
  wire::AutogradMetadata metadata;
  metadata.context = {incarnation(0), 99};
  metadata.creator_rank = 0;
  group_->kill(0);
  group_->scheduler().run_for(20 * kSecond);
  group_->loop(1).run(
      [&] { EXPECT_THROW(group_->worker(1).dautograd().on_receive(metadata, peers_[2], {}, "call", false), Error); });
  EXPECT_EQ(stats(1).contexts, 0u);
}

// ---- shortages ----

TEST_F(ForgedMessagesTest, AShortageAtADiscoverFailsThePassAlone) {
  make();
  std::shared_ptr<Future<Value>> pass;
  const auto discover = catch_next<wire::Discover>(BackwardMode::kSmart, &pass);
  fall_short(1, 0, discover);
  wait(*pass, 2 * kSecond);
  ASSERT_NE(pass->error(), nullptr);
  EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
  EXPECT_NE(pass->error()->message().find("w1"), std::string::npos) << pass->error()->message();
  expect_sound();
}

TEST_F(ForgedMessagesTest, AShortageAtAStartFailsThePassAlone) {
  make();
  std::shared_ptr<Future<Value>> pass;
  const auto start = catch_next<wire::Start>(BackwardMode::kFast, &pass);
  fall_short(1, 0, start);
  wait(*pass, 2 * kSecond);
  ASSERT_NE(pass->error(), nullptr);
  EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
  EXPECT_NE(pass->error()->message().find("w1"), std::string::npos) << pass->error()->message();
  expect_sound();
}

// The gradient comes in pieces, for which w1 has no room.
TEST_F(ForgedMessagesTest, AMemoryBoundThatAGradMeetsFailsThePassAlone) {
  for (const BackwardMode mode : {BackwardMode::kSmart, BackwardMode::kFast}) {
    make(1 << 18);
    memory_->is_full = true;
    BackwardOptions options;
    options.mode = mode;
    options.retain_graph = true;
    const auto pass = context_->backward_async({sum(y_)}, options);
    wait(*pass, 2 * kSecond);
    ASSERT_NE(pass->error(), nullptr);
    EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
    EXPECT_NE(pass->error()->message().find("w1"), std::string::npos) << pass->error()->message();
    EXPECT_TRUE(context_->gradients()->entries.empty());
    memory_->is_full = false;
    expect_sound();
    context_.reset();
    y_ = Tensor();
    peers_.clear();
    group_.reset();
  }
}

}  // namespace
}  // namespace distag::sim
