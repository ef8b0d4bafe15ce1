#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "session_harness.h"

namespace distag {
namespace {

// Somebody who speaks by hand: dials a node and sends what no honest worker would.
class Rogue {
 public:
  Rogue(SimScheduler& scheduler, SimNetwork& network)
      : loop_(scheduler, "rogue"), transport_(network, loop_, "rogue") {}
  ~Rogue() {
    loop_.run([this] {
      connection_.reset();
      acceptor_.reset();
    });
  }

  // Returns an address to dial, where it sends nothing but, if there is one, `answer_to_hello` to each HELLO.
  std::string listen(const std::string& address = "") {
    AcceptorEvents events;
    events.on_message = [this](const ConnectionToken& from, Frames frames) {
      const Frame header = frames.front();
      frames.erase(frames.begin());
      heard.push_back(wire::decode(header, frames, {}));
      if (!std::holds_alternative<wire::Hello>(heard.back().body) || !answer_to_hello) return;
      acceptor_->reply(from, {wire::encode({0, 0, {}, *answer_to_hello}, {}).header});
    };
    loop_.run([&] {
      acceptor_ = transport_.listen(address.empty() ? transport_.private_address() : address, std::move(events));
    });
    return acceptor_->endpoint();
  }
  void stop_listening() {
    loop_.run([this] { acceptor_.reset(); });
  }
  template <typename Body>
  size_t count_heard() const {
    return static_cast<size_t>(std::count_if(heard.begin(), heard.end(), [](const wire::Message& message) {
      return std::holds_alternative<Body>(message.body);
    }));
  }
  // From the next dial on.
  void set_key_of(const std::string& name) { transport_.key_name = name; }
  void dial(const Node& node) {
    ConnectionEvents events;
    events.on_message = [this](Frames frames) {
      const Frame header = frames.front();
      frames.erase(frames.begin());
      answers.push_back(wire::decode(header, frames, {}));
    };
    events.on_connected = [this] { connected = true; };
    loop_.run([&] { connection_ = transport_.dial(node.self().endpoint, std::move(events)); });
  }
  void say(uint64_t number, wire::Body body, uint64_t ack = 0) {
    wire::Encoded encoded = wire::encode({number, ack, {}, std::move(body)}, {});
    encoded.payload.insert(encoded.payload.begin(), encoded.header);
    say_frames(encoded.payload);
  }
  void say_frames(const Frames& frames) {
    loop_.run([&] { ASSERT_TRUE(connection_->send(frames)); });
  }
  bool is_refused(wire::RefuseReason reason) const {
    if (answers.empty()) return false;
    const auto* refusal = std::get_if<wire::Refuse>(&answers.back().body);
    return refusal != nullptr && refusal->reason == reason;
  }

  std::vector<wire::Message> answers;
  std::vector<wire::Message> heard;  // where it listens
  std::optional<wire::Body> answer_to_hello;
  bool connected = false;

 private:
  SimLoop loop_;
  SimTransport transport_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Connection> connection_;
};

class HandshakeTest : public PairOfSessions {
 protected:
  HandshakeTest() : rogue(scheduler, network) {
    peer = {5, "rogue", rogue.listen(), 4711, 1};
    hello.job = "job";
    hello.name = peer.name;
    hello.rank = peer.rank;
    hello.incarnation = peer.incarnation;
    hello.generation = 1;
    hello.endpoint = peer.endpoint;
    hello.wanted = a.id();
    rogue.dial(a);
    EXPECT_TRUE(run_until([&] { return rogue.connected; }));
  }

  void admit() {
    a.loop.run([&] { a.session->add_peer(peer); });
    rogue.say(0, hello);
    ASSERT_TRUE(run_until([&] { return !rogue.answers.empty(); }));
    ASSERT_TRUE(std::holds_alternative<wire::Welcome>(rogue.answers[0].body));
  }
  void expect_refused(wire::RefuseReason reason) {
    ASSERT_TRUE(run_until([&] { return !rogue.answers.empty() && rogue.is_refused(reason); }, kSecond));
  }
  void expect_lost_for(const std::string& text) {
    ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
    EXPECT_EQ(a.lost[0].second.status(), Status::kProtocol);
    EXPECT_NE(a.lost[0].second.message().find(text), std::string::npos) << a.lost[0].second.message();
    expect_refused(wire::RefuseReason::kProtocol);
  }

  Rogue rogue;
  Peer peer;
  wire::Hello hello;
};

TEST_F(HandshakeTest, AMemberIsWelcomedAndDialledBack) {
  const uint64_t dials = network.traffic().dials;
  admit();
  const auto& welcome = std::get<wire::Welcome>(rogue.answers[0].body);
  EXPECT_EQ(welcome.incarnation, a.id());
  EXPECT_EQ(welcome.next, 1u);
  EXPECT_EQ(network.traffic().dials, dials + 1);
}

TEST_F(HandshakeTest, WhoHasNoRankYetDialsBackOnceItHas) {
  Node joiner(scheduler, network, "joiner", -1);
  joiner.takes_strangers = true;
  Peer joined = joiner.self();
  joined.rank = 7;
  a.loop.run([&] { a.session->add_peer(joined); });
  a.send(joined.incarnation, wire::ShutdownVerdict{1});
  ASSERT_TRUE(run_until([&] { return joiner.heard.size() == 1; }));
  const uint64_t dials = network.traffic().dials;
  scheduler.run_for(100 * kMillisecond);
  EXPECT_EQ(network.traffic().dials, dials);
  EXPECT_TRUE(a.is_drained()) << "WELCOME has acknowledged it";
  joiner.loop.run([&] { joiner.session->set_self(joined); });
  scheduler.run_for(100 * kMillisecond);
  EXPECT_EQ(network.traffic().dials, dials + 1);
  joiner.loop.run([&] { EXPECT_TRUE(joiner.session->is_connected(a.id())); });
}

TEST_F(HandshakeTest, AnotherVersionIsRefused) {
  hello.protocol = 99;
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kVersion);
  EXPECT_EQ(std::get<wire::Refuse>(rogue.answers[0].body).text, "it speaks version 2 of the protocol, not version 99");
}

TEST_F(HandshakeTest, AProofOfAGroupKeyIsRefused) {
  hello.proof = {std::byte{1}};
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kKey);
}

// This version seals all it says; what comes without is no violation all the same: others may have changed it.
TEST_F(HandshakeTest, GarbageAndWhatHasNoChecksumBreaksTheConnectionAlone) {
  admit();
  a.transport->exact = false;
  rogue.say(1, wire::ShutdownVerdict{1});
  expect_refused(wire::RefuseReason::kDamaged);
  rogue.dial(a);
  scheduler.run_for(kMillisecond);
  rogue.answers.clear();
  rogue.say_frames({Frame::copy_of("garbage", 7)});
  expect_refused(wire::RefuseReason::kDamaged);
  EXPECT_TRUE(a.lost.empty());
  EXPECT_TRUE(a.heard.empty());
}

TEST_F(HandshakeTest, ANameThatIsNotThatOfTheKeyIsRefused) {
  a.takes_strangers = true;
  rogue.set_key_of("somebody");
  rogue.dial(a);
  scheduler.run_for(kMillisecond);
  const uint64_t refused = a.session->stats().messages_refused;
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kDenied);
  EXPECT_EQ(std::get<wire::Refuse>(rogue.answers[0].body).text, "its key is that of \"somebody\", not of \"rogue\"");
  EXPECT_EQ(a.session->stats().messages_refused, refused + 1);
  EXPECT_EQ(a.find(4711), nullptr);
  rogue.set_key_of("rogue");
  rogue.dial(a);
  scheduler.run_for(kMillisecond);
  rogue.say(0, hello);
  ASSERT_TRUE(run_until([&] { return rogue.answers.size() == 2; }));
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(rogue.answers[1].body));
}

// A member with a key of its own does not take the place of another by that one's incarnation.
TEST_F(HandshakeTest, AnIncarnationIsThatOfItsKey) {
  a.loop.run([&] { a.session->add_peer(peer); });
  rogue.set_key_of("somebody");
  rogue.dial(a);
  scheduler.run_for(kMillisecond);
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kDenied);
  EXPECT_TRUE(a.lost.empty());
}

TEST_F(HandshakeTest, AnotherJobIsRefused) {
  hello.job = "other";
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kJob);
}

TEST_F(HandshakeTest, WhoMeansAnotherIncarnationIsRefused) {
  hello.wanted = 1234;
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kIncarnation);
}

TEST_F(HandshakeTest, AStrangerIsRefusedUnlessItIsTaken) {
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kUnknown);
  a.takes_strangers = true;
  rogue.say(0, hello);
  ASSERT_TRUE(run_until([&] { return rogue.answers.size() == 2; }));
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(rogue.answers[1].body));
  EXPECT_EQ(a.find(4711)->name, "rogue");
}

// The stranger says HELLO again and again, each time on another connection; the rendezvous' answer counts for the last.
TEST_F(HandshakeTest, AStrangerWaitsForTheWordAndIsAskedForOnce) {
  a.takes_strangers = true;
  a.vouches = false;
  for (int i = 0; i < 3; ++i) {
    rogue.say(0, hello);
    scheduler.run_for(10 * kMillisecond);
    rogue.dial(a);
    scheduler.run_for(10 * kMillisecond);
  }
  rogue.say(0, hello);
  scheduler.run_for(100 * kMillisecond);
  EXPECT_TRUE(rogue.answers.empty());
  ASSERT_EQ(a.strangers.size(), 1u);
  EXPECT_EQ(a.find(4711), nullptr);
  a.settle_stranger(4711, a.strangers[0]);
  ASSERT_TRUE(run_until([&] { return !rogue.answers.empty(); }));
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(rogue.answers[0].body));
  a.settle_stranger(4711, std::nullopt);  // a late word
  EXPECT_NE(a.find(4711), nullptr);
}

// Beyond the bound no stranger is asked about: one that comes then is to come again.
TEST_F(HandshakeTest, StrangersThatWaitForTheWordAreBounded) {
  constexpr size_t kMost = 4096;
  a.takes_strangers = true;
  a.vouches = false;
  for (size_t i = 0; i <= kMost; ++i) {
    hello.incarnation = 10000 + i;
    rogue.say(0, hello);
    if (i % 500 == 0) scheduler.run_for(kMillisecond);  // it has room for the next ones
  }
  expect_refused(wire::RefuseReason::kDamaged);
  EXPECT_EQ(a.strangers.size(), kMost);
  a.settle_stranger(10000, std::nullopt);
  rogue.dial(a);
  scheduler.run_for(10 * kMillisecond);
  rogue.say(0, hello);
  ASSERT_TRUE(run_until([&] { return a.strangers.size() == kMost + 1; }));
  EXPECT_EQ(a.strangers.back().incarnation, hello.incarnation);
}

TEST_F(HandshakeTest, AStrangerThatNobodyKnowsIsDenied) {
  a.takes_strangers = true;
  a.vouches = false;
  rogue.say(0, hello);
  ASSERT_TRUE(run_until([&] { return a.strangers.size() == 1; }));
  a.settle_stranger(4711, std::nullopt);
  expect_refused(wire::RefuseReason::kDenied);
  EXPECT_EQ(std::get<wire::Refuse>(rogue.answers[0].body).text,
            "the rendezvous does not know worker \"rogue\" (rank 5)");
  EXPECT_EQ(a.find(4711), nullptr);
  EXPECT_EQ(a.session->stats().messages_refused, 1u);
  ASSERT_FALSE(a.logged.empty());
  EXPECT_NE(a.logged.back().find("was refused, and told: the rendezvous does not know"), std::string::npos)
      << a.logged.back();
}

// An endpoint that the rendezvous did not name, another generation, name or rank: what is said last counts, also while
// the question is open.
TEST_F(HandshakeTest, AStrangerThatTheRendezvousKnowsOtherwiseIsDenied) {
  a.takes_strangers = true;
  a.vouches = false;
  const std::vector<std::function<void(wire::Hello&)>> lies = {
      [](wire::Hello& said) { said.endpoint = "sim://b"; },
      [](wire::Hello& said) { said.generation = 2; },
      [](wire::Hello& said) { said.name = "another"; },
      [](wire::Hello& said) { said.rank = 3; },
  };
  for (const auto& lie : lies) {
    rogue.answers.clear();
    a.strangers.clear();
    rogue.say(0, hello);
    ASSERT_TRUE(run_until([&] { return a.strangers.size() == 1; }));
    wire::Hello lying = hello;
    lie(lying);
    rogue.say(0, lying);
    scheduler.run_for(10 * kMillisecond);
    EXPECT_EQ(a.strangers.size(), 1u);
    scheduler.run_for(kSecond);  // a line a second
    a.logged.clear();
    const uint64_t refused = a.session->stats().messages_refused;
    a.settle_stranger(4711, a.strangers[0]);
    expect_refused(wire::RefuseReason::kDenied);
    EXPECT_EQ(a.find(4711), nullptr);
    EXPECT_EQ(a.session->stats().messages_refused, refused + 1);
    ASSERT_EQ(a.logged.size(), 1u);
    EXPECT_NE(a.logged[0].find("was refused, and told: the rendezvous knows it as"), std::string::npos) << a.logged[0];
  }
}

TEST_F(HandshakeTest, AStrangerIsRefusedWhenNoWordComesForALease) {
  a.takes_strangers = true;
  a.vouches = false;
  rogue.say(0, hello);
  ASSERT_TRUE(run_until([&] { return a.strangers.size() == 1; }));
  scheduler.run_for(4 * kSecond);
  EXPECT_TRUE(rogue.answers.empty());
  ASSERT_TRUE(run_until([&] { return !rogue.answers.empty(); }, 3 * kSecond));
  EXPECT_TRUE(rogue.is_refused(wire::RefuseReason::kUnknown));
  a.settle_stranger(4711, a.strangers[0]);  // too late
  EXPECT_EQ(a.find(4711), nullptr);
}

// A stranger whose endpoint cannot even be dialled is not a member for a moment.
TEST_F(HandshakeTest, AStrangerWithAnEndpointThatIsNoneIsRefused) {
  a.takes_strangers = true;
  hello.endpoint = "no endpoint";
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kUnreachable);
  EXPECT_NE(std::get<wire::Refuse>(rogue.answers[0].body).text.find("\"no endpoint\""), std::string::npos);
  EXPECT_EQ(a.find(4711), nullptr);
}

TEST_F(HandshakeTest, WhoIsRefusedIsLoggedAndCounted) {
  a.takes_strangers = true;
  struct Lie {
    std::function<void(wire::Hello&)> tell;
    std::string logged;
  };
  const std::vector<Lie> lies = {
      {[](wire::Hello& said) { said.protocol = 99; }, "it speaks version 2 of the protocol, not version 99"},
      {[](wire::Hello& said) { said.job = "another"; }, "it belongs to job \"job\", not to \"another\""},
      {[](wire::Hello& said) { said.name = "b", said.generation = 0; }, "another worker named \"b\" has joined"},
      {[this](wire::Hello& said) { said.incarnation = b.id(); }, "this incarnation is known as worker \"b\""},
      {[](wire::Hello& said) { said.endpoint = "no endpoint"; }, "it cannot be dialled back"},
  };
  uint64_t refused = 0;
  for (const Lie& lie : lies) {
    scheduler.run_for(kSecond);  // a line a second
    a.logged.clear();
    rogue.answers.clear();
    wire::Hello said = hello;
    lie.tell(said);
    rogue.say(0, said);
    ASSERT_TRUE(run_until([&] { return !rogue.answers.empty(); }, kSecond)) << lie.logged;
    EXPECT_EQ(a.session->stats().messages_refused, ++refused) << lie.logged;
    ASSERT_EQ(a.logged.size(), 1u) << lie.logged;
    EXPECT_EQ(a.logged[0].rfind("worker \"" + said.name + "\" (rank 5) was refused, and told: " + lie.logged, 0), 0u)
        << a.logged[0];
  }
}

// Others know the address of the one before, as each worker does for a while whose peer has restarted.
TEST_F(HandshakeTest, WhoSeeksAnotherIncarnationIsCountedAlone) {
  hello.wanted = 99;
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kIncarnation);
  EXPECT_EQ(a.session->stats().messages_refused, 1u);
  EXPECT_TRUE(a.logged.empty());
}

TEST_F(HandshakeTest, ANameInUseNeedsAHigherGeneration) {
  a.takes_strangers = true;
  hello.name = "b";
  hello.generation = 0;
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kReplaced);
  hello.generation = 1;
  rogue.say(0, hello);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_EQ(a.lost[0].first, b.id());
  EXPECT_EQ(a.lost[0].second.status(), Status::kPeerRestarted);
}

TEST_F(HandshakeTest, AKnownIncarnationUnderAnotherNameIsRefused) {
  hello.incarnation = b.id();
  rogue.say(0, hello);
  expect_refused(wire::RefuseReason::kProtocol);
  EXPECT_TRUE(a.lost.empty()) << "the one of that name did nothing wrong";
}

TEST_F(HandshakeTest, WhoCannotBeDialledBackIsToldSo) {
  peer.endpoint = hello.endpoint = "sim://nowhere";
  admit();
  expect_refused(wire::RefuseReason::kUnreachable);
  EXPECT_EQ(std::get<wire::Refuse>(rogue.answers.back().body).text, "it cannot dial back to sim://nowhere");
}

TEST_F(HandshakeTest, ARestartedPeerIsNamedSo) {
  // Behind b's endpoint there is another incarnation now.
  Peer gone = b.self();
  gone.incarnation = 99;
  gone.name = "b2";
  a.loop.run([&] {
    a.session->add_peer(gone);
    a.session->send(99, wire::ShutdownVerdict{1});
  });
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_EQ(a.lost[0].second.status(), Status::kPeerRestarted);
}

TEST_F(HandshakeTest, AWelcomeOfAnotherIncarnationIsNone) {
  rogue.answer_to_hello = wire::Welcome{4712, 1};
  a.loop.run([&] {
    a.session->add_peer(peer);
    a.session->send(peer.incarnation, wire::ShutdownVerdict{1});
  });
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_EQ(a.lost[0].second.status(), Status::kPeerRestarted);
  EXPECT_EQ(rogue.count_heard<wire::ShutdownVerdict>(), 0u);
}

TEST_F(HandshakeTest, AFencedIncarnationIsNotWelcomedAgain) {
  admit();
  a.loop.run([&] { a.session->fence(peer.incarnation, Error(Status::kDisconnected, "enough")); });
  for (const Nanos later : {kMillisecond, 20 * kSecond}) {
    scheduler.run_for(later);
    rogue.dial(a);
    scheduler.run_for(kMillisecond);
    rogue.answers.clear();
    rogue.say(0, hello);
    expect_refused(wire::RefuseReason::kFenced);
    EXPECT_EQ(rogue.answers.size(), 1u);
  }
}

// This peer speaks all the time, and may be deaf.
TEST_F(HandshakeTest, WhoSpeaksAndAcknowledgesNothingIsLost) {
  rogue.answer_to_hello = wire::Welcome{peer.incarnation, 1};
  admit();
  a.send(peer.incarnation, wire::ShutdownVerdict{1});
  const Nanos begin = scheduler.now();
  for (uint64_t number = 1; a.lost.empty() && scheduler.now() - begin < 20 * kSecond; ++number) {
    rogue.say(number, wire::Ping{});
    scheduler.run_for(kSecond / 2);
  }
  ASSERT_EQ(a.lost.size(), 1u);
  EXPECT_LT(scheduler.now() - begin, 8 * kSecond);
  EXPECT_NE(a.lost[0].second.message().find("acknowledged nothing"), std::string::npos);
}

// As over a slow link: it says that it hears.
TEST_F(HandshakeTest, WhoAcknowledgesNothingMoreIsLostAfterFourLeases) {
  rogue.answer_to_hello = wire::Welcome{peer.incarnation, 1};
  admit();
  a.send(peer.incarnation, wire::ShutdownVerdict{1});
  const Nanos begin = scheduler.now(), lease = SessionConfig().lease;
  while (a.lost.empty() && scheduler.now() - begin < 10 * lease) {
    rogue.say(0, wire::Ack{});
    scheduler.run_for(kSecond / 2);
  }
  ASSERT_EQ(a.lost.size(), 1u);
  EXPECT_GE(scheduler.now() - begin, 4 * lease);
  EXPECT_LT(scheduler.now() - begin, 4 * lease + lease / 2);
}

// The other side may have lost what acknowledged them first.
TEST_F(HandshakeTest, ARepetitionIsAcknowledgedToo) {
  rogue.answer_to_hello = wire::Welcome{peer.incarnation, 1};
  admit();
  rogue.say(1, wire::ShutdownVerdict{1});
  ASSERT_TRUE(run_until([&] { return rogue.count_heard<wire::Ack>() == 1; }, kSecond));
  rogue.say(1, wire::ShutdownVerdict{1});
  ASSERT_TRUE(run_until([&] { return rogue.count_heard<wire::Ack>() == 2; }, 100 * kMillisecond));
  EXPECT_EQ(rogue.heard.back().ack, 1u);
}

// The peer listens again before the second redial.
TEST_F(HandshakeTest, OneRedialThatIsRefusedIsNoLoss) {
  rogue.answer_to_hello = wire::Welcome{peer.incarnation, 1};
  admit();
  a.send(peer.incarnation, wire::ShutdownVerdict{1});
  ASSERT_TRUE(run_until([&] { return rogue.count_heard<wire::ShutdownVerdict>() == 1; }, kSecond));
  const uint64_t dials = network.traffic().dials;
  rogue.stop_listening();
  ASSERT_TRUE(run_until([&] { return network.traffic().dials == dials + 1; }, kSecond));
  scheduler.run_for(2 * kMillisecond);
  rogue.listen(peer.endpoint);
  ASSERT_TRUE(run_until([&] { return rogue.count_heard<wire::ShutdownVerdict>() == 2; }, kSecond));
  EXPECT_TRUE(a.lost.empty());
}

// A connection on which nothing moves is given up for another one.
TEST_F(HandshakeTest, AStreamThatStallsIsDialledAnew) {
  admit();
  a.send(peer.incarnation, wire::ShutdownVerdict{1});
  ASSERT_TRUE(run_until([&] { return rogue.count_heard<wire::Hello>() == 1; }, kSecond));
  scheduler.run_for(2 * kSecond);
  rogue.answer_to_hello = wire::Welcome{peer.incarnation, 1};
  ASSERT_TRUE(run_until([&] { return rogue.count_heard<wire::ShutdownVerdict>() == 1; }, 3 * kSecond));
  EXPECT_TRUE(a.lost.empty());
}

TEST_F(HandshakeTest, GarbageFromAStrangerChangesNothing) {
  rogue.say_frames({Frame::copy_of("garbage", 7)});
  expect_refused(wire::RefuseReason::kProtocol);
  rogue.say(1, wire::ShutdownVerdict{1});
  a.say(b, 1);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1; }));
  EXPECT_TRUE(a.heard.empty());
  EXPECT_EQ(a.session->stats().messages_refused, 2u);
}

TEST_F(HandshakeTest, StrangersFillNoLog) {
  for (int i = 0; i < 100; ++i) rogue.say_frames({Frame::copy_of("garbage", 7)});
  ASSERT_TRUE(run_until([&] { return a.session->stats().messages_refused == 100; }));
  EXPECT_EQ(a.logged.size(), 1u);
  scheduler.run_for(kSecond);
  rogue.say_frames({Frame::copy_of("garbage", 7)});
  ASSERT_TRUE(run_until([&] { return a.logged.size() == 2; }));
  EXPECT_NE(a.logged[1].find("a stranger was refused: "), std::string::npos) << a.logged[1];
  EXPECT_NE(a.logged[1].find(" (99 more like it since the record before)"), std::string::npos) << a.logged[1];
}

TEST_F(HandshakeTest, AGapIsAViolation) {
  admit();
  rogue.say(1, wire::ShutdownVerdict{1});
  rogue.say(3, wire::ShutdownVerdict{3});
  expect_lost_for("message 3 came where 2 was expected");
  EXPECT_EQ(a.heard, count_to(1));
}

TEST_F(HandshakeTest, ARepetitionIsDropped) {
  admit();
  rogue.say(1, wire::ShutdownVerdict{1});
  rogue.say(1, wire::ShutdownVerdict{1});
  rogue.say(2, wire::ShutdownVerdict{2});
  ASSERT_TRUE(run_until([&] { return a.heard.size() == 2; }));
  EXPECT_EQ(a.heard, count_to(2));
  EXPECT_EQ(a.session->stats().messages_duplicated, 1u);
}

TEST_F(HandshakeTest, AnAckOfWhatWasNeverSentIsAViolation) {
  admit();
  rogue.say(0, wire::Ack{}, 7);
  expect_lost_for("it acknowledged 7, which was never sent");
}

TEST_F(HandshakeTest, GarbageFromAMemberIsAViolation) {
  admit();
  rogue.say_frames({Frame::copy_of("garbage", 7)});
  expect_lost_for("malformed message");
}

TEST_F(HandshakeTest, ACallWithoutANumberIsAViolation) {
  admit();
  rogue.say(0, wire::Cancel{{4711, 1}});
  expect_lost_for("CANCEL without a number");
}

TEST_F(HandshakeTest, AHelloWithANumberIsAViolation) {
  admit();
  rogue.say(1, hello);
  expect_lost_for("HELLO with a number");
}

TEST_F(HandshakeTest, ATransferAboveTheLimitIsAViolationBeforeAnythingIsAllocated) {
  admit();
  rogue.say(1, wire::Chunk{1, 0, uint64_t{1} << 50, false, Frame::copy_of("x", 1)});
  expect_lost_for("above the max_message_bytes");
}

TEST_F(HandshakeTest, ChunksOutOfOrderAreAViolation) {
  admit();
  rogue.say(1, wire::Chunk{1, 0, 10, false, Frame::copy_of("x", 1)});
  rogue.say(2, wire::Chunk{1, 5, 10, false, Frame::copy_of("x", 1)});
  expect_lost_for("a chunk at 5 of 10 of transfer 1, of which 1 of 10 bytes have come");
}

TEST_F(HandshakeTest, AMessageThatNamesAnUnfinishedTransferIsAViolation) {
  admit();
  rogue.say(1, wire::Chunk{1, 0, 10, false, Frame::copy_of("x", 1)});
  wire::Encoded encoded = wire::encode({2, 0, {{1, 0}}, wire::ShutdownVerdict{2}}, {});
  rogue.say_frames({encoded.header});
  expect_lost_for("a message names transfer 1, which has not come");
}

}  // namespace
}  // namespace distag
