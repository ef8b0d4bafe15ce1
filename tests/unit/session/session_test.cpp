#include "session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "session_harness.h"

namespace distag {
namespace {

using SessionTest = PairOfSessions;

TEST_F(SessionTest, MessagesArriveOnceAndInOrder) {
  for (uint64_t i = 1; i <= 100; ++i) a.say(b, i);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 100; }));
  EXPECT_EQ(b.heard, count_to(100));
  EXPECT_EQ(b.senders.front(), a.id());
  EXPECT_EQ(b.messages.front().number, 1u);
  EXPECT_EQ(b.session->stats().messages_duplicated, 0u);
}

TEST_F(SessionTest, NoConnectionIsMadeBeforeTheFirstMessage) {
  scheduler.run_for(10 * kSecond);
  EXPECT_EQ(network.traffic().dials, 0u);
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
  EXPECT_EQ(network.traffic().dials, 2u) << "one by each";
}

TEST_F(SessionTest, BothMayBeginAtTheSameTime) {
  for (uint64_t i = 1; i <= 20; ++i) {
    a.say(b, i);
    b.say(a, i);
  }
  ASSERT_TRUE(run_until([&] { return a.heard.size() == 20 && b.heard.size() == 20; }));
  EXPECT_EQ(a.heard, count_to(20));
  EXPECT_EQ(b.heard, count_to(20));
  EXPECT_EQ(network.traffic().dials, 2u);
}

TEST_F(SessionTest, AMessageIsAcknowledgedAloneAfterAWhile) {
  bool acknowledged = false;
  SendOptions options;
  options.on_acknowledged = [&acknowledged] { acknowledged = true; };
  a.say(b, 1, std::move(options));
  ASSERT_TRUE(run_until([&] { return acknowledged; }, 100 * kMillisecond));
  EXPECT_TRUE(a.is_drained());
  EXPECT_EQ(a.session->stats().bytes_in_flight, 0u);
}

TEST_F(SessionTest, AnAnswerCarriesTheAcknowledgement) {
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1 && a.is_drained(); }));
  int messages_back = 0;
  network.set_tap([&](const std::string& from, const std::string&, const Frames&) { messages_back += from == "b"; });
  b.on_each = [&](const Peer& from, wire::Message&) { b.session->send(from.incarnation, wire::ShutdownVerdict{2}); };
  a.say(b, 2);
  ASSERT_TRUE(run_until([&] { return a.is_drained(); }, 2 * kMillisecond));
  EXPECT_EQ(messages_back, 1);
}

TEST_F(SessionTest, OnNumberRunsRightBeforeAndMayChangeTheBody) {
  SendOptions options;
  options.on_number = [](wire::Message& message) { std::get<wire::ShutdownVerdict>(message.body).round = 77; };
  a.say(b, 1, std::move(options));
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
  EXPECT_EQ(b.heard.front(), 77u);
}

TEST_F(SessionTest, WhatOnNumberSendsGoesBefore) {
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
  SendOptions options;
  options.on_number = [this](wire::Message&) { a.session->send(b.id(), wire::ShutdownVerdict{2}); };
  a.say(b, 3, std::move(options));
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 3; }));
  EXPECT_EQ(b.heard, count_to(3));
}

// A backlog, once the connection takes it, and its repetition on the next connection.
TEST_F(SessionTest, ThousandsThatWaitGoInShortTasks) {
  constexpr uint64_t kMessages = 5'000;
  size_t in_step = 0;
  size_t most = 0;
  size_t sent = 0;
  network.set_tap([&](const std::string& from, const std::string&, const Frames&) {
    if (from != "a") return;
    ++in_step;
    ++sent;
  });
  scheduler.set_observer([&] { most = std::max(most, std::exchange(in_step, 0)); });
  for (uint64_t i = 1; i <= kMessages; ++i) a.say(b, i);
  ASSERT_TRUE(run_until([&] { return sent > kMessages; }));
  EXPECT_LE(most, 80u);
  network.cut_all();
  ASSERT_TRUE(run_until([&] { return a.is_drained() && b.heard.size() == kMessages; }));
  EXPECT_EQ(b.heard, count_to(kMessages));
  EXPECT_GT(a.session->stats().messages_replayed, 320u) << "more than a few turns of them";
  EXPECT_LE(most, 80u);
}

TEST_F(SessionTest, AMessageWithoutANumberCanBeWithdrawn) {
  bool numbered = false;
  SendOptions options;
  options.on_number = [&numbered](wire::Message&) { numbered = true; };
  Session::Ticket ticket = a.say(b, 1, std::move(options));
  ASSERT_NE(ticket, 0u) << "there is no connection yet";
  a.say(b, 2);
  a.loop.run([&] { EXPECT_TRUE(a.session->withdraw(b.id(), ticket)); });
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
  EXPECT_EQ(b.heard.front(), 2u);
  EXPECT_FALSE(numbered);
  a.loop.run([&] { EXPECT_FALSE(a.session->withdraw(b.id(), ticket)); });
}

TEST_F(SessionTest, ASendToOneselfArrivesInOrderAndIsAcknowledged) {
  int acknowledged = 0;
  for (uint64_t i = 1; i <= 3; ++i) {
    SendOptions options;
    options.on_acknowledged = [&acknowledged] { ++acknowledged; };
    a.say(a, i, std::move(options));
  }
  EXPECT_TRUE(a.heard.empty()) << "not within the send";
  EXPECT_FALSE(a.is_drained());
  ASSERT_TRUE(run_until([&] { return acknowledged == 3; }));
  EXPECT_EQ(a.heard, count_to(3));
  EXPECT_EQ(a.senders.front(), a.id());
  EXPECT_TRUE(a.is_drained());
  EXPECT_EQ(network.traffic().dials, 0u);
}

// The message fits when it is sent, and no longer fits when it gets its number.
TEST_F(SessionTest, AMessageToOneselfThatCannotTravelHoldsUpNoOther) {
  SessionConfig config;
  config.limits.max_message_bytes = 1 << 20;
  Node c(scheduler, network, "c", 2, config);
  SendOptions options;
  options.on_number = [&c](wire::Message& message) { message.body = c.big_call(2 << 20); };
  EXPECT_THROW(c.say(c, 1, std::move(options)), Error);
  c.say(c, 2);
  ASSERT_TRUE(run_until([&] { return c.heard.size() == 1; }));
  EXPECT_EQ(c.heard.front(), 2u);
  EXPECT_TRUE(c.is_drained());
}

TEST_F(SessionTest, ATensorSentToOneselfIsANewOneOverTheSameMemory) {
  wire::Call call = a.big_call(1 << 20);
  Tensor sent = call.args[0].as_tensor();
  a.send(a.id(), call);
  ASSERT_TRUE(run_until([&] { return a.messages.size() == 1; }));
  Tensor received = std::get<wire::Call>(a.messages[0].body).args[0].as_tensor();
  EXPECT_NE(received.id(), sent.id());
  EXPECT_EQ(received.data(), sent.data());
}

TEST_F(SessionTest, AnUnknownWorkerIsNotFound) {
  a.loop.run([&] {
    try {
      a.session->send(12345, wire::ShutdownVerdict{1});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kNotFound);
    }
  });
}

TEST_F(SessionTest, WhatIsTooLargeIsRefusedAtOnce) {
  SessionConfig config;
  config.limits.max_message_bytes = 1 << 20;
  Node c(scheduler, network, "c", 2, config);
  c.know(b);
  c.loop.run([&] {
    try {
      c.session->send(b.id(), c.big_call(2 << 20));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
      EXPECT_NE(error.message().find("1048576"), std::string::npos) << error.message();
    }
  });
  EXPECT_TRUE(c.is_drained());
}

TEST_F(SessionTest, WhatIsTooLargeForThePeerIsRefusedAtOnceAndNothingIsLost) {
  SessionConfig config;
  config.limits.max_message_bytes = 1 << 20;
  Node c(scheduler, network, "c", 2, config);
  a.know(c);
  c.know(a);
  a.loop.run([&] {
    for (size_t bytes : {size_t{1} << 20, size_t{8} << 20}) {
      try {
        a.session->send(c.id(), a.big_call(bytes));
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kInvalidArgument);
        EXPECT_NE(error.message().find("max_message_bytes of worker \"c\" (rank 2), which is 1048576"),
                  std::string::npos)
            << error.message();
        EXPECT_NE(error.message().find("that of this worker is 1073741824"), std::string::npos) << error.message();
      }
    }
  });
  a.send(c.id(), a.big_call((1 << 20) - 4096));
  a.say(c, 1);
  ASSERT_TRUE(run_until([&] { return c.heard == count_to(1) && c.messages.size() == 2; }));
  EXPECT_TRUE(a.lost.empty() && c.lost.empty());
}

// The message has about the largest size there is, and then gets metadata with its number.
TEST_F(SessionTest, AMessageMayGrowALittleWhenItGetsItsNumber) {
  SessionConfig config;
  config.limits.max_message_bytes = 1 << 20;
  Node c(scheduler, network, "c", 2, config);
  Node d(scheduler, network, "d", 3, config);
  c.know(d);
  d.know(c);
  SendOptions options;
  options.on_number = [message_maker = c.id()](wire::Message& message) {
    auto& metadata = std::get<wire::Call>(message.body).metadata;
    metadata.context = {1, 1};
    metadata.creator_rank = 0;
    metadata.pair = {message_maker, 2};
    metadata.tracked = {true};
    for (uint64_t holder = 1; holder <= 500; ++holder) metadata.joined.push_back(holder);
  };
  c.send(d.id(), c.big_call((1 << 20) - 1024), std::move(options));
  c.say(d, 1);
  ASSERT_TRUE(run_until([&] { return d.messages.size() == 2; }));
  EXPECT_TRUE(c.lost.empty() && d.lost.empty());
}

// ---- chunks ----

TEST_F(SessionTest, ALargeMessageArrivesWhole) {
  wire::Call call = a.big_call(20 << 20);
  Tensor sent = call.args[0].as_tensor();
  a.send(b.id(), call);
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 1; }));
  Tensor received = std::get<wire::Call>(b.messages[0].body).args[0].as_tensor();
  ASSERT_EQ(received.shape(), sent.shape());
  EXPECT_EQ(std::memcmp(received.data(), sent.data(), sent.byte_size()), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(received.data()) % 64, 0u);
  ASSERT_TRUE(run_until([&] { return a.is_drained(); }));
}

TEST_F(SessionTest, ASmallMessagePassesBetweenTheChunksOfALargeOne) {
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
  a.send(b.id(), a.big_call(64 << 20));
  a.say(b, 2);
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 3; }));
  EXPECT_TRUE(std::holds_alternative<wire::ShutdownVerdict>(b.messages[1].body));
  EXPECT_LT(b.messages[1].number, 12u) << "it waits for a few chunks only";
  EXPECT_TRUE(std::holds_alternative<wire::Call>(b.messages[2].body));
}

TEST_F(SessionTest, AtMostEightMebibytesOfChunksAreUnacknowledged) {
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1 && a.is_drained(); }));
  a.send(b.id(), a.big_call(64 << 20));
  size_t most = 0;
  ASSERT_TRUE(run_until([&] {
    most = std::max<size_t>(most, a.session->stats().bytes_in_flight);
    return b.messages.size() == 2;
  }));
  EXPECT_GE(most, 8u << 20);
  EXPECT_LT(most, 9u << 20);
}

TEST_F(SessionTest, ALargeMessageOfManyTensorsArrivesWhole) {
  wire::Call call = a.big_call(8);
  call.args.clear();
  for (int64_t i = 0; i < 100; ++i) {
    Tensor tensor = Tensor::empty(Dtype::kInt64, {1000 * (i % 20 + 1)});
    for (int64_t k = 0; k < tensor.count(); ++k) tensor.mutable_data_as<int64_t>()[k] = i * k;
    call.args.emplace_back(tensor);
  }
  a.send(b.id(), call);
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 1; }));
  const Values& args = std::get<wire::Call>(b.messages[0].body).args;
  for (size_t i = 0; i < 100; ++i) {
    const Tensor& sent = call.args[i].as_tensor();
    ASSERT_EQ(std::memcmp(args[i].as_tensor().data(), sent.data(), sent.byte_size()), 0) << i;
  }
}

TEST_F(SessionTest, ATensorOfOneMebibyteTravelsInOneMessage) {
  a.send(b.id(), a.big_call(1 << 20));
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 1; }));
  EXPECT_EQ(b.messages[0].number, 1u);
}

// The network hands frames over as they are, so a copy would show.
TEST_F(SessionTest, AFrameThatComesInOnePieceIsNotCopied) {
  wire::Call call = a.big_call(1 << 20);
  call.args.push_back(a.big_call(1 << 20).args[0]);
  a.send(b.id(), call);
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 1; }));
  EXPECT_EQ(b.messages[0].number, 3u) << "two pieces went ahead";
  const Values& args = std::get<wire::Call>(b.messages[0].body).args;
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(args[i].as_tensor().data(), call.args[i].as_tensor().data()) << i;
}

class CountingMemory final : public FrameMemory {
 public:
  std::shared_ptr<std::byte> allocate(size_t size) override {
    if (exhausted) fail(Status::kOutOfMemory, "no memory for {} bytes", size);
    std::shared_ptr<std::byte> bytes(static_cast<std::byte*>(::operator new(size, std::align_val_t(64))),
                                     [](std::byte* old) { ::operator delete(old, std::align_val_t(64)); });
    allocated.push_back(bytes.get());
    return bytes;
  }
  std::vector<const std::byte*> allocated;
  bool exhausted = false;
};

TEST_F(SessionTest, LargeTensorsGoToTheMemoryThatIsGivenForThem) {
  auto memory = std::make_shared<CountingMemory>();
  SessionConfig config;
  config.memory = memory;
  Node c(scheduler, network, "c", 2, config);
  a.know(c);
  c.know(a);
  // In a message, in a message that is too large for one because of two, in chunks.
  for (const std::vector<int>& sizes : {std::vector<int>{100'000}, {1 << 20, 1 << 20}, {5 << 20}}) {
    wire::Call call = a.big_call(8);
    for (int size : sizes) call.args.push_back(a.big_call(static_cast<size_t>(size)).args[0]);
    memory->allocated.clear();
    a.send(c.id(), call);
    const size_t before = c.messages.size();
    ASSERT_TRUE(run_until([&] { return c.messages.size() == before + 1; }));
    ASSERT_EQ(memory->allocated.size(), sizes.size()) << "each is copied once";
    const Values& args = std::get<wire::Call>(c.messages.back().body).args;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Tensor& sent = call.args[i + 1].as_tensor();
      EXPECT_EQ(args[i + 1].as_tensor().data(), memory->allocated[i]);
      EXPECT_EQ(std::memcmp(memory->allocated[i], sent.data(), sent.byte_size()), 0);
    }
  }
}

TEST_F(SessionTest, WithoutThatMemoryAFrameStaysWhereItIs) {
  auto memory = std::make_shared<CountingMemory>();
  memory->exhausted = true;
  SessionConfig config;
  config.memory = memory;
  Node c(scheduler, network, "c", 2, config);
  a.know(c);
  c.know(a);
  wire::Call call = a.big_call(100'000);
  a.send(c.id(), call);
  ASSERT_TRUE(run_until([&] { return c.messages.size() == 1; }));
  EXPECT_EQ(std::get<wire::Call>(c.messages[0].body).args[0].as_tensor().data(), call.args[0].as_tensor().data());
}

TEST_F(SessionTest, AWithdrawnLargeMessageIsForgottenByThePeer) {
  SessionConfig config;
  config.limits.max_message_bytes = 16 << 20;
  Node c(scheduler, network, "c", 2, config), d(scheduler, network, "d", 3, config);
  c.know(d);
  d.know(c);
  c.say(d, 1);
  ASSERT_TRUE(run_until([&] { return d.heard.size() == 1; }));
  for (int i = 0; i < 3; ++i) {
    Session::Ticket ticket = c.send(d.id(), c.big_call(15 << 20, "withdrawn"));
    ASSERT_NE(ticket, 0u);
    c.loop.run([&] { EXPECT_TRUE(c.session->withdraw(d.id(), ticket)); });
    c.send(d.id(), c.big_call(15 << 20, "kept"));
  }
  ASSERT_TRUE(run_until([&] { return d.messages.size() == 4 && c.is_drained(); }));
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(std::get<wire::Call>(d.messages[i].body).function, "kept");
  EXPECT_TRUE(d.lost.empty());
}

TEST_F(SessionTest, ALargeAnswerThatBecomesAnErrorWhenNumberedGoesWithoutItsChunks) {
  wire::Reply reply{{a.id(), 1}, false, {}, a.big_call(4 << 20).args[0], {}};
  SendOptions options;
  options.on_number = [](wire::Message& message) {
    auto& answer = std::get<wire::Reply>(message.body);
    answer.failed = true;
    answer.result = Value();
    answer.error = Error(Status::kInvalidState, "over");
  };
  a.send(b.id(), reply, std::move(options));
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 1 && a.is_drained(); }));
  EXPECT_TRUE(std::get<wire::Reply>(b.messages[0].body).failed);
  a.say(b, 5);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
}

// ---- leaving ----

TEST_F(SessionTest, LeaveIsNoLoss) {
  a.say(b, 1);
  bool done = false;
  a.loop.run([&] { a.session->leave(kNever, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }, kSecond));
  ASSERT_TRUE(run_until([&] { return b.left.size() == 1; }));
  EXPECT_EQ(b.heard, count_to(1)) << "what was sent before arrives";
  a.stop();
  scheduler.run_for(20 * kSecond);
  EXPECT_TRUE(b.lost.empty());
  b.loop.run([&] {
    EXPECT_EQ(b.session->gone(b.id()), nullptr);
    try {
      b.session->send(b.senders.front(), wire::ShutdownVerdict{1});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kDisconnected);
      EXPECT_EQ(error.message(), "worker \"a\" (rank 0) has left the group");
    }
  });
}

TEST_F(SessionTest, ManyStreamsEndInTurnsAndNothingIsToldMeanwhile) {
  constexpr int kOthers = 100;
  std::vector<std::unique_ptr<Node>> others;
  for (int i = 0; i < kOthers; ++i) {
    others.push_back(std::make_unique<Node>(scheduler, network, "n" + std::to_string(i), i + 2));
    a.know(*others.back());
    others.back()->know(a);
    a.say(*others.back(), 1);
    others.back()->say(a, 1);
  }
  ASSERT_TRUE(run_until([&] { return a.is_drained() && a.heard.size() == kOthers; }));
  bool done = false;
  a.loop.run([&] { a.session->leave(kNever, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }));
  Node late(scheduler, network, "late", kOthers + 2);
  late.know(a);
  a.takes_strangers = true;
  int turns = 0;
  for (bool is_more = true; is_more; ++turns) {
    if (turns == 1) late.say(a, 2);
    a.loop.run([&] { is_more = a.session->close_some(); });
    scheduler.run_for(10 * kMillisecond);
  }
  EXPECT_GE(turns, 4);
  a.stop();
  scheduler.run_for(20 * kSecond);
  EXPECT_EQ(a.heard.size(), size_t{kOthers});
  EXPECT_TRUE(a.lost.empty());
  for (const auto& other : others) {
    EXPECT_EQ(other->left.size(), 1u);
    EXPECT_TRUE(other->lost.empty());
  }
}

TEST_F(SessionTest, LeaveComesAfterALargeMessage) {
  a.send(b.id(), a.big_call(32 << 20));
  bool done = false;
  a.loop.run([&] { a.session->leave(kNever, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }));
  ASSERT_EQ(b.messages.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<wire::Call>(b.messages[0].body));
}

TEST_F(SessionTest, BothLeaveAtTheSameTime) {
  for (uint64_t seed = 1; seed < 50; ++seed) {
    SimScheduler other(seed);
    SimNetwork net(other);
    Node c(other, net, "c", 0), d(other, net, "d", 1);
    c.know(d);
    d.know(c);
    c.say(d, 1);
    d.say(c, 1);
    int done = 0;
    auto leave = [&done](Node& node) {
      node.loop.run([&] {
        node.session->leave(node.loop.now() + 10 * kSecond, [&done, &node] {
          ++done;
          node.session.reset();
        });
      });
    };
    leave(c);
    leave(d);
    ASSERT_TRUE(other.run_until([&] { return done == 2; }, kSecond)) << seed;
    EXPECT_TRUE(c.lost.empty() && d.lost.empty()) << seed;
  }
}

TEST_F(SessionTest, LeaveEndsByItsDeadline) {
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
  network.part("a", "b");
  bool done = false;
  const Nanos begin = scheduler.now();
  a.loop.run([&] { a.session->leave(begin + 100 * kMillisecond, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }, kSecond));
  EXPECT_LT(scheduler.now() - begin, 110 * kMillisecond);
}

TEST_F(SessionTest, WithNobodyToLeaveItIsDoneAtOnce) {
  bool done = false;
  a.loop.run([&] { a.session->leave(kNever, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }, kMillisecond));
  a.loop.run([&] { EXPECT_THROW(a.session->send(b.id(), wire::ShutdownVerdict{1}), Error); });
}

}  // namespace
}  // namespace distag
