#include <gtest/gtest.h>

#include <algorithm>

#include "base/violation.h"
#include "session/stream_shared.h"
#include "session_harness.h"

namespace distag {
namespace {

constexpr Nanos kLease = 5 * kSecond;

using FaultsTest = PairOfSessions;

// ---- drops ----

TEST_F(FaultsTest, ADropAtAnyPointLosesAndRepeatsNothing) {
  for (int after = 0; after < 40; ++after) {
    SimScheduler other(static_cast<uint64_t>(after) + 1);
    SimNetwork net(other);
    Node c(other, net, "c", 0), d(other, net, "d", 1);
    c.know(d);
    d.know(c);
    for (uint64_t i = 1; i <= 10; ++i) {
      c.say(d, i);
      d.say(c, i);
    }
    for (int step = 0; step < after; ++step) other.step();
    net.cut("c", "d");
    ASSERT_TRUE(other.run_until([&] { return c.is_drained() && d.is_drained() && d.heard.size() == 10; }, kLease))
        << after;
    EXPECT_EQ(c.heard, count_to(10)) << after;
    EXPECT_EQ(d.heard, count_to(10)) << after;
    EXPECT_TRUE(c.lost.empty() && d.lost.empty());
  }
}

TEST_F(FaultsTest, AFirstDialIsNoRedial) {
  network.let_redial_only("a");
  a.say(b, 1);
  EXPECT_FALSE(run_until([&] { return !b.heard.empty(); }, kLease / 2));
}

TEST_F(FaultsTest, EachDialAfterADropIsARedial) {
  meet();
  network.let_redial_only("a");
  for (uint64_t i = 2; i <= 4; ++i) {
    network.cut_all();
    a.say(b, i);
    ASSERT_TRUE(run_until([&] { return b.heard.size() == i; }, kLease)) << i;
  }
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

TEST_F(FaultsTest, WhatWasUnacknowledgedIsSentAgainAndRepetitionsAreDropped) {
  meet();
  // The ack of these is on its way when the connections drop.
  for (uint64_t i = 2; i <= 5; ++i) a.say(b, i);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 5; }));
  a.say(b, 6);
  network.cut_all();
  ASSERT_TRUE(run_until([&] { return a.is_drained() && b.heard.size() == 6; }, kLease));
  EXPECT_EQ(b.heard, count_to(6));
}

TEST_F(FaultsTest, ALargeMessageSurvivesDrops) {
  meet();
  wire::Call call = a.big_call(24 << 20);
  a.send(b.id(), call);
  for (int cut = 0; cut < 5; ++cut) {
    scheduler.run_for(500 * kMicrosecond);
    network.cut_all();
  }
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 2; }));
  Tensor sent = call.args[0].as_tensor();
  Tensor received = std::get<wire::Call>(b.messages[1].body).args[0].as_tensor();
  EXPECT_EQ(std::memcmp(received.data(), sent.data(), sent.byte_size()), 0);
  EXPECT_GT(a.session->stats().messages_replayed, 0u);
}

// Every message arrives exactly once and in order, whatever the network does to connections.
TEST(SessionProperty, RandomDropsDelaysAndRefusalsLoseNothing) {
  uint64_t replayed = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SimScheduler scheduler(seed);
    SimFaults faults;
    faults.drop = 0.1;
    faults.fail_dial = 0.2;
    faults.would_block = 0.1;
    faults.capacity = 5;
    SimNetwork network(scheduler, faults);
    Node a(scheduler, network, "a", 0), b(scheduler, network, "b", 1), c(scheduler, network, "c", 2);
    std::vector<Node*> nodes{&a, &b, &c};
    for (Node* one : nodes) {
      for (Node* other : nodes) {
        if (one != other) one->know(*other);
      }
    }
    std::map<std::pair<Node*, Node*>, uint64_t> sent;
    for (int i = 0; i < 150; ++i) {
      Node* from = nodes[scheduler.below(3)];
      Node* to = nodes[scheduler.below(3)];
      from->say(*to, ++sent[{from, to}] * 10 + static_cast<uint64_t>(to->self().rank));
      if (scheduler.chance(0.3)) scheduler.run_for(scheduler.between(0, 3 * kMillisecond));
    }
    auto total = [&] { return a.heard.size() + b.heard.size() + c.heard.size(); };
    ASSERT_TRUE(scheduler.run_until([&] { return total() == 150; }, 600 * kSecond)) << "seed " << seed;
    for (Node* to : nodes) {
      EXPECT_TRUE(to->lost.empty()) << "seed " << seed << ": " << to->lost[0].second.message();
      std::map<Incarnation, uint64_t> last;
      for (size_t i = 0; i < to->heard.size(); ++i) {
        EXPECT_EQ(to->heard[i] / 10, ++last[to->senders[i]]) << "seed " << seed;
      }
    }
    ASSERT_TRUE(scheduler.run_until([&] { return a.is_drained() && b.is_drained() && c.is_drained(); }, 600 * kSecond))
        << "seed " << seed;
    for (Node* node : nodes) {
      replayed += node->session->stats().messages_replayed;
      EXPECT_EQ(node->session->stats().bytes_in_flight, 0u);
    }
  }
  EXPECT_GT(replayed, 1000u) << "else nothing was tested";
}

// ---- damage ----

// The first word of each side, numbered messages and acknowledgements alike, and whole messages that vanish.
TEST(SessionProperty, WhatIsDamagedOnItsWayIsSentAgainAndNobodyIsLostForIt) {
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SimScheduler scheduler(seed);
    SimFaults faults;
    faults.flip = 0.1;
    faults.vanish = 0.002;  // seldom: each costs half a lease
    SimNetwork network(scheduler, faults);
    Node a(scheduler, network, "a", 0), b(scheduler, network, "b", 1);
    for (Node* node : {&a, &b}) node->transport->exact = false;
    a.know(b);
    b.know(a);
    const wire::Call call = a.big_call(3 << 20);
    for (uint64_t i = 1; i <= 20; ++i) {
      a.say(b, i);
      b.say(a, i);
      if (i == 10) a.send(b.id(), call);
      scheduler.run_for(scheduler.between(0, 3 * kMillisecond));
    }
    ASSERT_TRUE(scheduler.run_until([&] { return b.messages.size() == 21 && a.heard.size() == 20 && b.is_drained(); },
                                    600 * kSecond))
        << "seed " << seed << ", lost: " << (a.lost.empty() ? "" : a.lost[0].second.message()) << " and "
        << (b.lost.empty() ? "" : b.lost[0].second.message());
    EXPECT_TRUE(a.lost.empty() && b.lost.empty()) << "seed " << seed;
    EXPECT_EQ(a.heard, count_to(20)) << "seed " << seed;
    EXPECT_EQ(b.heard, count_to(20)) << "seed " << seed;
    const Tensor sent = call.args[0].as_tensor();
    for (const wire::Message& message : b.messages) {
      const auto* received = std::get_if<wire::Call>(&message.body);
      if (received == nullptr) continue;
      EXPECT_EQ(std::memcmp(received->args[0].as_tensor().data(), sent.data(), sent.byte_size()), 0) << "seed " << seed;
    }
    refused += a.session->stats().messages_refused + b.session->stats().messages_refused;
  }
  EXPECT_GT(refused, 1000u) << "else nothing was tested";
}

// A network on which every large message is damaged: the peer is lost by its lease in the end, not at once.
TEST_F(FaultsTest, WhatIsAlwaysDamagedIsDisconnectedAfterALease) {
  meet();
  for (Node* node : {&a, &b}) node->transport->exact = false;
  network.faults.flip = 1;
  const Nanos start = scheduler.now();
  a.say(b, 2);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }));
  EXPECT_EQ(a.lost[0].second.status(), Status::kDisconnected);
  EXPECT_GE(scheduler.now() - start, 4 * kSecond);
  EXPECT_EQ(b.heard, count_to(1));
}

TEST(SessionProperty, LargeMessagesSurviveRandomDropsAndWithdrawals) {
  size_t long_headers = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimScheduler scheduler(seed);
    SimFaults faults;
    faults.drop = 0.05;
    faults.would_block = 0.2;
    SimNetwork network(scheduler, faults);
    SessionConfig config;
    config.limits.max_message_bytes = 4 << 20;
    Node a(scheduler, network, "a", 0, config), b(scheduler, network, "b", 1, config);
    a.know(b);
    b.know(a);
    std::vector<uint64_t> wanted;
    for (int i = 0; i < 12; ++i) {
      wire::Call call = a.big_call(size_t{64} << 10 << scheduler.below(5));
      // The header of a large call goes as a frame of its own, beside the others or ahead in chunks.
      call.args.push_back(Value::list(Value::List(scheduler.chance(0.15) ? 60000 : 0, Value(0.5))));
      const Session::Ticket ticket = a.send(b.id(), call);
      scheduler.run_for(scheduler.between(0, 2 * kMillisecond));
      bool withdrawn = false;
      if (scheduler.chance(0.3)) a.loop.run([&] { withdrawn = a.session->withdraw(b.id(), ticket); });
      if (!withdrawn) wanted.push_back(call.call.counter);
    }
    ASSERT_TRUE(
        scheduler.run_until([&] { return b.messages.size() == wanted.size() && a.is_drained(); }, 600 * kSecond))
        << "seed " << seed;
    std::vector<uint64_t> arrived;
    for (const wire::Message& message : b.messages) {
      const auto& call = std::get<wire::Call>(message.body);
      arrived.push_back(call.call.counter);
      const Tensor& tensor = call.args[0].as_tensor();
      for (int64_t i = 0; i < tensor.count(); i += 997) ASSERT_EQ(tensor.data_as<int64_t>()[i], i * 31);
      long_headers += call.args[1].as_list().empty() ? 0 : 1;
    }
    std::sort(arrived.begin(), arrived.end());
    EXPECT_EQ(arrived, wanted) << "seed " << seed;
    EXPECT_TRUE(b.lost.empty()) << "seed " << seed << ": " << b.lost[0].second.message();
    EXPECT_EQ(a.session->stats().bytes_in_flight, 0u);
  }
  EXPECT_GT(long_headers, 20u) << "else they were not tested";
}

// ---- loss ----

TEST_F(FaultsTest, AKilledPeerIsLostAtOnce) {
  meet();
  const Nanos begin = scheduler.now();
  network.kill("b");
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_LT(scheduler.now() - begin, 200 * kMillisecond);
  const Error& error = a.lost[0].second;
  EXPECT_EQ(a.lost[0].first, b.id());
  EXPECT_EQ(error.status(), Status::kDisconnected);
  EXPECT_EQ(error.message().find("worker \"b\" (rank 1) is lost: connection dropped and two redials were refused; last "
                                 "heard 0."),
            0u)
      << error.message();
  a.loop.run([&] {
    EXPECT_TRUE(a.session->gone(b.id()) != nullptr);
    EXPECT_TRUE(a.is_drained());
    EXPECT_THROW(a.session->send(b.id(), wire::Ping{}), Error);
    EXPECT_FALSE(a.session->add_peer(b.self())) << "never heard again";
  });
  EXPECT_EQ(a.session->stats().peers_lost, 1u);
  EXPECT_EQ(a.session->stats().peers_connected, 0u);
}

TEST_F(FaultsTest, WhatALostPeerHasNotAcknowledgedIsNotInFlight) {
  meet();
  network.kill("b");
  a.send(b.id(), a.big_call(20 << 20));
  EXPECT_GT(a.session->stats().bytes_in_flight, 0u);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_EQ(a.session->stats().bytes_in_flight, 0u);
}

TEST_F(FaultsTest, APeerThatWasNeverThereIsLostSoon) {
  network.kill("b");
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_EQ(a.session->stats().bytes_in_flight, 0u);
  EXPECT_NE(a.lost[0].second.message().find("never heard"), std::string::npos);
}

TEST_F(FaultsTest, WithoutAcknowledgementsForALeaseThePeerIsLost) {
  meet();
  network.part("a", "b");
  const Nanos begin = scheduler.now();
  a.say(b, 2);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty() && !b.lost.empty(); }));
  EXPECT_GE(scheduler.now() - begin, kLease);
  EXPECT_LT(scheduler.now() - begin, 2 * kLease);
  EXPECT_NE(a.lost[0].second.message().find("it has acknowledged nothing for"), std::string::npos);
}

// However often it acknowledges a few.
TEST(FloodsTest, APeerForWhomTooManyMessagesAreKeptIsLost) {
  SimScheduler scheduler(1);
  SimNetwork network(scheduler);
  SessionConfig config;
  config.max_kept = 100;
  Node a(scheduler, network, "a", 0, config);
  Node b(scheduler, network, "b", 1);
  a.know(b);
  b.know(a);
  const auto say = [&a, &b](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) a.say(b, i);
  };
  say(100);
  ASSERT_TRUE(scheduler.run_until([&] { return b.heard.size() == 100; }, kSecond));
  scheduler.run_for(config.lease / 2);
  say(100);  // not too many
  scheduler.run_for(config.lease / 2);
  EXPECT_TRUE(a.lost.empty());
  b.loop.freeze();
  say(101);
  scheduler.run_for(config.lease / 2);
  ASSERT_FALSE(a.lost.empty());
  EXPECT_NE(a.lost[0].second.message().find(" messages wait for its acknowledgement"), std::string::npos);
}

// A piece of the message takes 1.5 leases, one way or both.
TEST_F(FaultsTest, OverASlowLinkNobodyIsLost) {
  for (const bool both : {false, true}) {
    SimScheduler other(1);
    SimNetwork slow(other);
    Node c(other, slow, "c", 0), d(other, slow, "d", 1);
    c.know(d);
    d.know(c);
    c.say(d, 1);
    d.say(c, 1);
    other.run_for(kSecond);
    slow.faults.delay_per_kib = kLease * 3 / 2 / 1024;
    c.send(d.id(), c.big_call(3 << 20));
    if (both) d.send(c.id(), d.big_call(3 << 20));
    ASSERT_TRUE(other.run_until([&] { return d.messages.size() == 2 && c.is_drained(); }, 60 * kLease)) << both;
    EXPECT_EQ(c.messages.size(), both ? 2u : 1u);
    EXPECT_TRUE(c.lost.empty() && d.lost.empty());
  }
}

TEST_F(FaultsTest, APartingShorterThanALeaseIsNoLoss) {
  meet();
  network.part("a", "b");
  a.say(b, 2);
  scheduler.run_for(kLease * 3 / 4);
  network.join("a", "b");
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 2 && a.is_drained(); }, kLease));
  scheduler.run_for(3 * kLease);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  EXPECT_EQ(b.heard, count_to(2));
}

TEST_F(FaultsTest, AnIdleStreamLivesByPings) {
  meet();
  scheduler.run_for(10 * kLease);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  EXPECT_EQ(a.messages.size(), 1u) << "pings are the session's own";
  // And its end is noticed though neither side says anything.
  network.part("a", "b");
  ASSERT_TRUE(run_until([&] { return !a.lost.empty() && !b.lost.empty(); }, 2 * kLease));
}

TEST_F(FaultsTest, APingIsAcknowledgedAtOnce) {
  meet();
  ASSERT_TRUE(run_until([&] { return !a.is_drained() || !b.is_drained(); }, kLease));
  const Nanos sent = scheduler.now();
  ASSERT_TRUE(run_until([&] { return a.is_drained() && b.is_drained(); }));
  EXPECT_LT(scheduler.now() - sent, kAckDelay);
}

// Their looks fall between each other's, as those of processes do.
TEST(IdleTest, OfTwoThatHaveNothingToSayOneAsksWhetherTheOtherLives) {
  for (const Nanos later : {Nanos{1}, Nanos{3}, Nanos{5}, Nanos{7}}) {
    SimScheduler scheduler(1);
    SimNetwork network(scheduler);
    Node a(scheduler, network, "a", 0);
    Node b(scheduler, network, "b", 1);
    Node gone(scheduler, network, "gone", 2);
    network.kill("gone");
    b.know(gone);
    b.say(gone, 1);  // from here on it looks
    scheduler.run_for(later * kLease / 32);
    a.know(b);
    b.know(a);
    a.say(b, 1);
    b.say(a, 1);
    scheduler.run_for(3 * kLease);
    const uint64_t before = network.traffic().messages;
    scheduler.run_for(10 * kLease);
    EXPECT_LE(network.traffic().messages - before, 2u * 10 * 4 + 2) << later;
    EXPECT_TRUE(a.lost.empty());
    EXPECT_EQ(b.lost.size(), 1u);
    network.kill("b");
    ASSERT_TRUE(scheduler.run_until([&a] { return !a.lost.empty(); }, 2 * kLease));
  }
}

TEST_F(FaultsTest, AnIdleStreamSaysNothingWhereEveryLossIsReported) {
  for (Node* node : {&a, &b}) node->transport->reports_losses = true;
  meet();
  scheduler.run_for(kLease);
  const uint64_t said = network.traffic().messages;
  scheduler.run_for(10 * kLease);
  EXPECT_EQ(network.traffic().messages, said);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  network.kill("b");
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kLease));
  EXPECT_EQ(a.lost.front().first, b.id());
}

// A peer that listens no more, though it lives, is given up after a lease: the message that it owes an answer for is
// waited for no longer.
TEST_F(FaultsTest, WhoOwesAnAnswerIsGivenUpAlsoWhereEveryLossIsReported) {
  for (Node* node : {&a, &b}) node->transport->reports_losses = true;
  meet();
  b.loop.freeze();
  a.say(b, 2);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, 2 * kLease));
  EXPECT_EQ(a.lost.front().first, b.id());
}

TEST_F(FaultsTest, APausedLoopRestartsItsLeases) {
  meet();
  a.say(b, 2);
  a.loop.freeze();
  scheduler.run_for(kLease - kSecond);
  a.loop.thaw();
  scheduler.run_for(3 * kLease);
  EXPECT_TRUE(a.lost.empty());
  EXPECT_TRUE(b.lost.empty());
}

// As when the machine sleeps: the acknowledgements lie there when both go on, and so do the ticks that are late.
TEST(SessionProperty, WhoPausedForLongerThanALeaseLooksAgainBeforeItGivesUp) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimScheduler scheduler(seed);
    SimNetwork network(scheduler);
    Node a(scheduler, network, "a", 0), b(scheduler, network, "b", 1);
    a.know(b);
    b.know(a);
    a.say(b, 1);
    b.say(a, 1);
    scheduler.run_for(scheduler.between(0, 2 * kLease));
    a.say(b, 2);
    for (Node* node : {&a, &b}) node->loop.freeze();
    scheduler.run_for(2 * kLease);
    for (Node* node : {&a, &b}) node->loop.thaw();
    ASSERT_TRUE(scheduler.run_until([&] { return b.heard.size() == 2 && a.is_drained(); }, kLease)) << seed;
    scheduler.run_for(2 * kLease);
    EXPECT_TRUE(a.lost.empty() && b.lost.empty()) << seed;
  }
}

// The messages that follow a damaged one on its connection would be gaps, each of them damage again.
TEST_F(FaultsTest, TheRestOfAConnectionThatWasGivenUpIsNotHeard) {
  for (Node* node : {&a, &b}) node->transport->exact = false;
  meet();
  network.faults.flip = 1;
  a.say(b, 2);
  network.faults.flip = 0;
  for (uint64_t i = 3; i <= 5; ++i) a.say(b, i);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 5 && a.is_drained(); }, kLease));
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  EXPECT_EQ(b.heard, count_to(5));
  EXPECT_EQ(b.session->stats().messages_refused, 1u);
}

TEST_F(FaultsTest, WhoWasGivenUpIsToldSoWhenItComesBack) {
  meet();
  a.loop.freeze();
  scheduler.run_for(2 * kLease);
  ASSERT_EQ(b.lost.size(), 1u);
  a.loop.thaw();
  a.say(b, 2);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kLease));
  EXPECT_NE(
      a.lost[0].second.message().find("it refused this worker: worker \"a\" (rank 0) is lost: it has acknowledged "
                                      "nothing"),
      std::string::npos)
      << a.lost[0].second.message();
  EXPECT_EQ(b.heard, count_to(1)) << "a fenced incarnation is never heard again";
}

TEST_F(FaultsTest, AFencedPeerIsToldAtOnce) {
  meet();
  a.loop.run([&] { a.session->fence(b.id(), Error(Status::kDisconnected, "enough")); });
  ASSERT_TRUE(run_until([&] { return !a.lost.empty() && !b.lost.empty(); }, 10 * kMillisecond));
  EXPECT_EQ(a.lost[0].second.message(), "enough");
  EXPECT_NE(b.lost[0].second.message().find("enough"), std::string::npos);
}

TEST_F(FaultsTest, AThrowOfTheLayersAboveRefusesThePeer) {
  b.on_each = [](const Peer&, wire::Message&) { violation("no such thing"); };
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty() && !b.lost.empty(); }, kSecond));
  EXPECT_EQ(b.lost[0].second.status(), Status::kProtocol);
  EXPECT_NE(b.lost[0].second.message().find("it broke the protocol: no such thing"), std::string::npos);
  EXPECT_EQ(b.session->stats().messages_refused, 1u);
}

TEST_F(FaultsTest, AnyOtherFailureOfTheLayersAboveEndsNobody) {
  b.on_each = [](const Peer&, wire::Message& message) {
    const uint64_t round = std::get<wire::ShutdownVerdict>(message.body).round;
    if (round == 1) throw std::bad_alloc();
    if (round == 2) fail(Status::kProtocol, "an answer of the host");
  };
  for (uint64_t round = 1; round <= 3; ++round) a.say(b, round);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 3 && a.is_drained(); }, kSecond));
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  EXPECT_EQ(b.session->stats().messages_refused, 0u);
  ASSERT_FALSE(b.logged.empty());
  EXPECT_NE(b.logged[0].find("worker \"a\""), std::string::npos) << b.logged[0];
}

// Large ones come in pieces to memory that is asked for before; smaller ones take theirs when they are decoded.
TEST_F(FaultsTest, WhatThereIsNoMemoryForIsToldAndTheStreamGoesOn) {
  class NoMemory final : public FrameMemory {
   public:
    std::shared_ptr<std::byte> allocate(size_t) override { throw Error(Status::kOutOfMemory, "the host has none"); }
  };
  SessionConfig config;
  config.memory = std::make_shared<NoMemory>();
  Node c(scheduler, network, "c", 2, config);
  a.know(c);
  c.know(a);
  for (int i = 0; i < 3; ++i) a.send(c.id(), a.big_call(size_t{8} << 20));
  a.say(c, 1);
  ASSERT_TRUE(run_until([&] { return c.unstored.size() == 3 && c.heard == count_to(1) && a.is_drained(); }));
  for (const auto& [outline, why] : c.unstored) {
    EXPECT_EQ(why.status(), Status::kOutOfMemory);
    EXPECT_EQ(std::get<wire::Call>(outline.body).function, "big");
    EXPECT_TRUE(std::get<wire::Call>(outline.body).args.at(0).is_null());
  }
  EXPECT_TRUE(a.lost.empty() && c.lost.empty());
  EXPECT_TRUE(c.messages.size() == 1) << "nothing but the last one";
}

TEST_F(FaultsTest, MessagesOfAFencedPeerAreNotLookedAt) {
  meet();
  network.part_one_way("a", "b");  // until the message is there: b says nothing more once it is told
  a.loop.run([&] { a.session->fence(b.id(), Error(Status::kDisconnected, "enough")); });
  b.say(a, 2);
  ASSERT_TRUE(run_until([&] { return a.session->stats().messages_refused == 1; }, 10 * kMillisecond));
  network.join("a", "b");
  ASSERT_TRUE(run_until([&] { return !b.lost.empty(); }, 20 * kMillisecond));
  EXPECT_EQ(a.heard, count_to(1));
}

// Ten thousand restarts of one worker: each incarnation stays refused, and costs a few bytes.
TEST_F(FaultsTest, OfPastIncarnationsATombstoneIsLeft) {
  constexpr uint64_t kRestarts = 10000;
  meet();
  const Peer first = b.self();
  for (uint64_t generation = 2; generation <= kRestarts; ++generation) {
    Peer next = first;
    next.incarnation = 1000000 + generation;
    next.generation = generation;
    a.loop.run([&] { EXPECT_TRUE(a.session->add_peer(next)); });
  }
  scheduler.run_for(2 * kLease);
  EXPECT_EQ(a.lost.size(), kRestarts - 1);
  a.loop.run([&] {
    for (const Incarnation past : {first.incarnation, Incarnation{1000002}, Incarnation{1009999}}) {
      ASSERT_NE(a.session->gone(past), nullptr);
      EXPECT_EQ(a.session->gone(past)->status(), Status::kPeerRestarted);
      EXPECT_EQ(a.session->find(past)->name, "b");
      EXPECT_THROW(a.session->send(past, wire::ShutdownVerdict{1}), Error);
      EXPECT_FALSE(a.session->add_peer([&] {
        Peer again = first;
        again.incarnation = past;
        return again;
      }()));
    }
    EXPECT_EQ(a.session->gone(1000000 + kRestarts), nullptr);
  });
}

TEST_F(FaultsTest, LostMessagesAreNeitherNumberedNorAcknowledged) {
  network.kill("b");
  bool numbered = false;
  bool acknowledged = false;
  SendOptions options;
  options.on_number = [&numbered](wire::Message&) { numbered = true; };
  options.on_acknowledged = [&acknowledged] { acknowledged = true; };
  a.say(b, 1, std::move(options));
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_FALSE(numbered || acknowledged);
}

}  // namespace
}  // namespace distag
