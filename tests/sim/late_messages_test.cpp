// Messages that are late, or of workers that are gone or never existed: they are refused, and make nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "sim/square_test.h"
#include "support/sim_group.h"
#include "wire/codec.h"

namespace distag::sim {
namespace {

class LateMessagesTest : public SquareTest {
 protected:
  LateMessagesTest() {
    SimGroupOptions options;
    options.is_open = true;
    make(options);
  }

  void leave(int32_t rank) {
    auto report = group_->worker(rank).shutdown(10 * kSecond);
    wait(*report, kForever);
    group_->scheduler().run_for(kSecond);
  }
  // Delivers the message as if it came now from the peer's stream.
  void deliver(int32_t to, int32_t from, wire::Body body) {
    group_->loop(to).run([&] {
      Dautograd& dautograd = group_->worker(to).dautograd();
      const Peer& peer = peers_[static_cast<size_t>(from)];
      wire::Message message{0, 0, {}, std::move(body)};
      try {
        static_cast<void>(dautograd.handle(peer, message));
      } catch (...) {
        dautograd.refuse(peer, message, current_error());
      }
    });
    group_->scheduler().run_for(kSecond);
  }
  wire::Discover discover_of(Incarnation initiator, uint64_t counter) const {
    return {context_->global_id(), {initiator, counter}, {incarnation(0), 0}, false, {{1, incarnation(0), {true}}}, {}};
  }
};

TEST_F(LateMessagesTest, APassOfAnInitiatorThatHasLeftIsNotMade) {
  leave(2);
  deliver(1, 0, discover_of(incarnation(2), 1));
  deliver(1, 0,
          wire::Grad{context_->global_id(), {incarnation(2), 2}, {incarnation(1), 1}, false, true, {true}, {Value()}});
  EXPECT_EQ(stats(1).passes_open, 0u);
  context_.reset();
  y_ = Tensor();
  for (const ShutdownReport& report : group_->shutdown(20 * kSecond)) EXPECT_TRUE(report.clean);
}

TEST_F(LateMessagesTest, NorIsOneOfAnInitiatorThatNeverWas) {
  for (uint64_t i = 1; i <= 100; ++i) deliver(1, 0, discover_of(4711 + i, i));
  EXPECT_EQ(stats(1).passes_open, 0u);
  EXPECT_EQ(stats(1).passes_run, 0u);
}

TEST_F(LateMessagesTest, OneInitiatorHasSoManyPassesOpenAndNoMore) {
  for (uint64_t i = 1; i <= 4200; ++i) {
    group_->loop(1).run([&] {
      wire::Message message{0, 0, {}, discover_of(incarnation(0), 100 + i)};
      try {
        group_->worker(1).dautograd().handle(peers_[0], message);
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kOverloaded) << error.message();
      }
    });
  }
  EXPECT_EQ(stats(1).passes_open, 4096u);
  group_->kill(0);
  group_->scheduler().run_for(20 * kSecond);
  EXPECT_EQ(stats(1).passes_open, 0u);
}

// The message that w2 holds the context comes after the leave of w2.
TEST_F(LateMessagesTest, AFastPassGoesOnWithoutAHolderThatHasLeft) {
  leave(2);
  group_->loop(0).run([&] {
    wire::AutogradMetadata metadata;
    metadata.context = context_->global_id();
    metadata.creator_rank = 0;
    metadata.joined = {incarnation(2)};
    group_->worker(0).dautograd().on_receive(metadata, peers_[1], {}, "call", true);
  });
  BackwardOptions fast;
  fast.mode = BackwardMode::kFast;
  context_->backward({y_}, fast);
  EXPECT_EQ(context_->gradients()->find(x_)->item(), 6);
}

// The gradient of a result of the worker that left cannot come any more.
TEST_F(LateMessagesTest, AFastPassThatNeedsOneThatHasLeftNamesIt) {
  const Tensor z = group_->call(0, 2, "square", {Value(x_)}, context_->global_id()).as_tensor();
  leave(2);
  BackwardOptions fast;
  fast.mode = BackwardMode::kFast;
  try {
    context_->backward({y_}, fast);
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
    EXPECT_NE(error.message().find("w2"), std::string::npos) << error.message();
  }
}

// Whether w0 learns soon of the w2 that comes back.
bool knows_returned(SimWorkerGroup& group, Incarnation before) {
  const auto is_known = [&group, before] {
    const auto member = group.worker(0).group().membership().find_by_rank(2);
    return member && member->peer.incarnation != before;
  };
  return group.scheduler().run_until(is_known, 3 * kSecond);
}

// Calls of w0 to a w2 that comes back, and waits for w1, which does not answer.
class EarlyCalls {
 public:
  static constexpr size_t kBytes = size_t{64} << 10;  // of an argument
  static constexpr uint64_t kCost = kBytes + 2048;    // at most

  EarlyCalls(uint64_t max_in_flight, const Function& function) : group(1, options(max_in_flight)) {
    group.start();
    const Incarnation before = group.worker(0).group().membership().find_by_rank(2)->peer.incarnation;
    group.kill(2);
    group.freeze(1);
    Worker& returned = group.restart(2);
    returned.rpc().register_function("take", function);
    started_ = returned.start(60 * kSecond);
    is_known_ = knows_returned(group, before);
  }

  bool is_known() const { return is_known_; }
  std::shared_ptr<Future<Value>> call() {
    CallRequest request;
    request.to = "w2";
    request.function = "take";
    request.args.push_back(Value::bytes(Value::Bytes(kBytes)));
    request.has_time = true;
    return group.worker(0).rpc().call(std::move(request));
  }
  void finish_start() {
    group.scheduler().run_for(kSecond);
    ASSERT_FALSE(started_->is_done());
    group.thaw(1);
    wait(*started_, kForever);
  }

  SimWorkerGroup group;

 private:
  static SimGroupOptions options(uint64_t max_in_flight) {
    SimGroupOptions made;
    made.size = 3;
    made.max_message_bytes = 16 * kBytes;
    made.max_in_flight = max_in_flight;
    return made;
  }

  std::shared_ptr<Future<Value>> started_;
  bool is_known_ = false;
};

// Each refused call leaves its room to another call.
TEST(EarlyMessagesTest, AWorkerThatStartsKeepsSoManyAndRefusesTheRest) {
  constexpr size_t kCalls = 40;
  EarlyCalls early(17 * EarlyCalls::kCost, [](Invocation&) {});
  ASSERT_TRUE(early.is_known());
  SimWorkerGroup& group = early.group;
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (size_t i = 0; i < kCalls; ++i) calls.push_back(early.call());
  early.finish_start();
  size_t refused = 0;
  for (const auto& call : calls) {
    ASSERT_TRUE(wait(*call, 60 * kSecond));
    if (call->error() == nullptr) continue;
    ++refused;
    EXPECT_EQ(call->error()->status(), Status::kOverloaded) << call->error()->message();
    EXPECT_EQ(call->error()->origin_rank(), 2);
    EXPECT_FALSE(call->error()->may_have_run());
  }
  EXPECT_EQ(refused, kCalls - 15);  // a header makes each a little larger
  for (const ShutdownReport& report : group.shutdown(30 * kSecond)) EXPECT_TRUE(report.clean);
  for (const std::string& line : group.log_lines())
    EXPECT_EQ(line.find("broke the protocol"), std::string::npos) << line;
}

// Only CREDIT reports that calls have begun.
TEST(EarlyMessagesTest, TheWishForRoomIsKeptForTheStart) {
  constexpr size_t kCalls = 10;
  std::vector<std::shared_ptr<PendingReply>> held;
  EarlyCalls early(5 * EarlyCalls::kCost, [&held](Invocation& call) { held.push_back(call.defer()); });
  ASSERT_TRUE(early.is_known());
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (size_t i = 0; i < kCalls; ++i) calls.push_back(early.call());
  early.finish_start();
  EXPECT_TRUE(early.group.scheduler().run_until([&held] { return held.size() == kCalls; }, 10 * kSecond))
      << held.size();
  for (const auto& reply : held) reply->finish(Value());
  for (const auto& call : calls) EXPECT_TRUE(wait(*call, 10 * kSecond));
}

// A member learns of the group before another one, and calls it. Half a lease later it would dial again by itself.
TEST(EarlyMessagesTest, AHelloBeforeTheRosterIsAnsweredWithIt) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimGroupOptions options;
    options.size = 2;
    SimWorkerGroup group(seed, options);
    group.network().faults.max_delay = 200 * kMillisecond;  // of each roster and each message
    group.worker(1).rpc().register_function("take", [](Invocation&) {});
    auto first = group.worker(0).start(60 * kSecond);
    auto second = group.worker(1).start(60 * kSecond);
    wait(*first, kForever);
    CallRequest request;
    request.to = "w1";
    request.function = "take";
    const auto call = group.worker(0).rpc().call(std::move(request));
    wait(*second, kForever);
    ASSERT_TRUE(group.scheduler().run_until([&call] { return call->is_done(); }, 1500 * kMillisecond)) << seed;
    EXPECT_EQ(call->error(), nullptr) << seed;
  }
}

// The caller has died, while the worker that starts still waits for another member.
TEST(EarlyMessagesTest, ACallOfOneThatDiedMeanwhileDoesNotRun) {
  SimGroupOptions options;
  options.size = 3;
  SimWorkerGroup group(1, options);
  group.start();
  const Incarnation before = group.worker(0).group().membership().find_by_rank(2)->peer.incarnation;
  group.kill(2);
  group.freeze(1);
  Worker& returned = group.restart(2);
  int runs = 0;
  returned.rpc().register_function("count", [&runs](Invocation&) { ++runs; });
  auto started = returned.start(60 * kSecond);
  ASSERT_TRUE(knows_returned(group, before));
  CallRequest request;
  request.to = "w2";
  request.function = "count";
  group.worker(0).rpc().call(std::move(request));
  group.scheduler().run_for(kSecond / 2);
  group.kill(0);
  group.scheduler().run_for(kSecond / 2);
  ASSERT_FALSE(started->is_done());
  group.thaw(1);
  wait(*started, kForever);
  group.scheduler().run_for(kSecond);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(returned.group().membership().find_by_rank(0)->state, Standing::kLost);
}

// ---- strangers ----

// The answer of w0 to a HELLO of a stranger with this rank, name and generation.
wire::Body answer_to_hello(SimWorkerGroup& group, int32_t rank, const std::string& name, uint64_t generation) {
  SimLoop loop(group.scheduler(), "stranger");
  SimTransport transport(group.network(), loop, "stranger");
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Connection> connection;
  std::optional<wire::Message> answer;
  loop.run([&] {
    acceptor = transport.listen(transport.private_address(), {[](const ConnectionToken&, const Frames&) {}});
    wire::Hello hello;
    hello.job = "default";
    hello.name = name;
    hello.rank = rank;
    hello.incarnation = 4711 + generation;
    hello.generation = generation;
    hello.endpoint = acceptor->endpoint();
    ConnectionEvents events;
    events.on_connected = [&connection, hello] {
      EXPECT_TRUE(connection->send({wire::encode({0, 0, {}, hello}, {}).header}));
    };
    events.on_message = [&answer](const Frames& frames) { answer = wire::decode(frames.front(), {}, {}); };
    connection = transport.dial(group.worker(0).group().membership().find_by_rank(0)->peer.endpoint, std::move(events));
  });
  EXPECT_TRUE(group.scheduler().run_until([&answer] { return answer.has_value(); }, kSecond));
  loop.run([&] {
    connection.reset();
    acceptor.reset();
  });
  return answer ? answer->body : wire::Body();
}

// A place belongs to the name that had it. A stranger that the rendezvous does not know is not admitted, whatever
// generation it says: neither to the place of a living member nor, in an open world, to a place of its own.
TEST(StrangersTest, AreAskedForAtTheRendezvous) {
  for (const bool is_open : {false, true}) {
    SimGroupOptions options;
    options.size = 2;
    options.is_open = is_open;
    SimWorkerGroup group(1, options);
    group.start();
    const auto reason = [&group](int32_t rank, const std::string& name, uint64_t generation) {
      return std::get<wire::Refuse>(answer_to_hello(group, rank, name, generation)).reason;
    };
    EXPECT_EQ(reason(1, "other", 2), wire::RefuseReason::kUnknown);
    EXPECT_EQ(reason(2, "w1", 1), wire::RefuseReason::kReplaced);
    EXPECT_EQ(reason(1, "w1", 99), wire::RefuseReason::kDenied);
    EXPECT_EQ(reason(2, "other", 1), is_open ? wire::RefuseReason::kDenied : wire::RefuseReason::kUnknown);
    const Membership& members = group.worker(0).group().membership();
    EXPECT_EQ(members.find_by_rank(1)->state, Standing::kMember);
    EXPECT_EQ(members.find_by_rank(1)->peer.generation, 1u);
    EXPECT_EQ(members.alive_count(), 2u);
  }
}

// w1 wants to stop, and w2 asks as if it led the vote, which w0 leads.
TEST(StrangersTest, WhoseVoteIsNotTheirsToLeadAreLoggedAndCounted) {
  SimGroupOptions options;
  options.size = 3;
  SimWorkerGroup group(1, options);
  group.start();
  const auto refused = [&group] {
    const auto stats = group.worker(1).fetch_loop_stats();
    EXPECT_TRUE(group.scheduler().run_until([&stats] { return stats->is_done(); }, kSecond));
    return stats->value().session.messages_refused;
  };
  const auto left = group.worker(1).shutdown(kForever);
  group.scheduler().run_for(100 * kMillisecond);
  const uint64_t before = refused();
  const Incarnation asked = group.worker(0).group().membership().find_by_rank(1)->peer.incarnation;
  group.loop(2).run([&] { group.worker(2).group().session().send(asked, wire::ShutdownPoll{7, {}}); });
  group.scheduler().run_for(kSecond);
  EXPECT_FALSE(left->is_done());
  EXPECT_EQ(refused(), before + 1);
  const auto& lines = group.log_lines();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "w1: worker \"w2\" (rank 2) asks for a vote that others lead"), 1);
}

}  // namespace
}  // namespace distag::sim
