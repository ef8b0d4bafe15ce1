#include <gtest/gtest.h>

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

  // Where it can be dialled, though it says nothing there.
  std::string listen() {
    AcceptorEvents events;
    events.on_message = [](const ConnectionToken&, Frames) {};
    loop_.run([&] { acceptor_ = transport_.listen(transport_.private_address(), std::move(events)); });
    return acceptor_->endpoint();
  }
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
  bool acknowledged = false;
  SendOptions options;
  options.on_acknowledged = [&acknowledged] { acknowledged = true; };
  a.send(joined.incarnation, wire::QuietVerdict{1}, std::move(options));
  ASSERT_TRUE(run_until([&] { return joiner.heard.size() == 1; }));
  scheduler.run_for(100 * kMillisecond);
  EXPECT_FALSE(acknowledged);
  joiner.loop.run([&] { joiner.session->set_self(joined); });
  ASSERT_TRUE(run_until([&] { return acknowledged; }, 100 * kMillisecond));
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

// This version seals all it says; what comes without is no violation all the same, for nobody knows who changed it.
TEST_F(HandshakeTest, GarbageAndWhatHasNoChecksumBreaksTheConnectionAlone) {
  admit();
  a.transport->exact = false;
  rogue.say(1, wire::QuietVerdict{1});
  expect_refused(wire::RefuseReason::kDamaged);
  rogue.dial(a);
  scheduler.run_for(kMillisecond);
  rogue.answers.clear();
  rogue.say_frames({Frame::copy_of("garbage", 7)});
  expect_refused(wire::RefuseReason::kDamaged);
  EXPECT_TRUE(a.lost.empty());
  EXPECT_TRUE(a.heard.empty());
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
  EXPECT_EQ(a.session->find(4711)->name, "rogue");
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
    a.session->send(99, wire::QuietVerdict{1});
  });
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kSecond));
  EXPECT_EQ(a.lost[0].second.status(), Status::kPeerRestarted);
}

TEST_F(HandshakeTest, GarbageFromAStrangerChangesNothing) {
  rogue.say_frames({Frame::copy_of("garbage", 7)});
  expect_refused(wire::RefuseReason::kProtocol);
  rogue.say(1, wire::QuietVerdict{1});
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
  rogue.say(1, wire::QuietVerdict{1});
  rogue.say(3, wire::QuietVerdict{3});
  expect_lost_for("message 3 came where 2 was expected");
  EXPECT_EQ(a.heard, count_to(1));
}

TEST_F(HandshakeTest, ARepetitionIsDropped) {
  admit();
  rogue.say(1, wire::QuietVerdict{1});
  rogue.say(1, wire::QuietVerdict{1});
  rogue.say(2, wire::QuietVerdict{2});
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
  expect_lost_for("a CANCEL without a number");
}

TEST_F(HandshakeTest, AHelloWithANumberIsAViolation) {
  admit();
  rogue.say(1, hello);
  expect_lost_for("a HELLO with a number");
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
  wire::Encoded encoded = wire::encode({2, 0, {{1, 0}}, wire::QuietVerdict{2}}, {});
  rogue.say_frames({encoded.header});
  expect_lost_for("a message names transfer 1, which has not come");
}

}  // namespace
}  // namespace distag
