#include <gtest/gtest.h>

#include "joiners.h"
#include "wire/codec.h"

namespace distag {
namespace {

using testing::Joiner;
using testing::Meeting;
using testing::names;

constexpr const char* kUri = "tcp://127.0.0.1:29500";

TEST(RendezvousTcp, AllGetTheSameMembersInAnyOrderOfComing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Meeting meeting(kUri, seed);
    for (int32_t rank : {2, 1, 0, 3}) {
      meeting.add(rank, 4);
      meeting.scheduler.run_for(meeting.scheduler.between(0, 300 * kMillisecond));
    }
    for (auto& joiner : meeting.joiners) {
      ASSERT_TRUE(joiner->succeeds());
      EXPECT_EQ(names(joiner->outcome()), "w0 w1 w2 w3");
    }
  }
}

// A roster of 800 takes 20 pages, of which some are lost where a connection drops or takes no more.
TEST(RendezvousTcp, ALargeGroupMeetsThoughPagesAreLost) {
  Meeting meeting(kUri);
  meeting.network.faults.drop = 0.01;
  meeting.network.faults.would_block = 0.02;
  for (int32_t rank = 0; rank < 800; ++rank) meeting.add(rank, 800, 120 * kSecond);
  for (auto& joiner : meeting.joiners) {
    ASSERT_TRUE(joiner->succeeds());
    ASSERT_EQ(joiner->outcome().members.size(), 800u);
    for (int32_t rank = 0; rank < 800; rank += 37) {
      EXPECT_EQ(joiner->outcome().members[static_cast<size_t>(rank)].rank, rank);
    }
  }
}

TEST(RendezvousTcp, AWorldOfOneNeedsNobody) {
  Meeting meeting(kUri);
  EXPECT_TRUE(meeting.add(0, 1).succeeds());
}

TEST(RendezvousTcp, SurvivesDropsAndRefusedDials) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Meeting meeting(kUri, seed);
    meeting.network.faults.drop = 0.2;
    meeting.network.faults.fail_dial = 0.3;
    meeting.network.faults.would_block = 0.3;
    for (int32_t rank = 0; rank < 5; ++rank) meeting.add(rank, 5, 60 * kSecond);
    for (auto& joiner : meeting.joiners) ASSERT_TRUE(joiner->succeeds()) << "seed " << seed;
  }
}

TEST(RendezvousTcp, TheDeadlineListsWhoIsMissingEverywhere) {
  Meeting meeting(kUri);
  meeting.add(0, 4, kSecond);
  meeting.add(2, 4, 10 * kSecond);
  meeting.scheduler.run_for(700 * kMillisecond);
  for (auto& joiner : meeting.joiners) {
    EXPECT_EQ(joiner->error().status(), Status::kDeadline);
    EXPECT_EQ(joiner->error().message(),
              "rendezvous \"tcp://127.0.0.1:29500\": rank 1, 3 of a world of 4 did not come in time");
    EXPECT_LT(joiner->told_at(), 2001 * kMillisecond);
  }
}

// Whoever joins is dialled by all: what cannot be is refused before anybody hears of it.
TEST(RendezvousTcp, WhoCannotBeDialledIsRefused) {
  Meeting meeting(kUri);
  meeting.add(0, 2, 60 * kSecond);
  JoinRequest request = meeting.request(1, 2);
  request.self.endpoint = "no endpoint";
  Joiner& joiner = meeting.add(std::move(request));
  EXPECT_EQ(joiner.error().status(), Status::kInvalidArgument);
  EXPECT_NE(joiner.error().message().find("cannot be dialled"), std::string::npos) << joiner.error().message();
}

TEST(RendezvousTcp, AGuestListsWhoIsMissingAtItsOwnDeadline) {
  Meeting meeting(kUri);
  meeting.add(0, 3, 60 * kSecond);
  Joiner& guest = meeting.add(1, 3, kSecond);
  EXPECT_EQ(guest.error().message(),
            "rendezvous \"tcp://127.0.0.1:29500\": rank 2 of a world of 3 did not come in time");
}

TEST(RendezvousTcp, NobodyThereIsDisconnected) {
  Meeting meeting(kUri);
  Joiner& guest = meeting.add(1, 2, kSecond);
  EXPECT_EQ(guest.error().status(), Status::kDisconnected);
  EXPECT_LT(guest.told_at(), 2001 * kMillisecond);
}

TEST(RendezvousTcp, APortInUseIsNamed) {
  Meeting meeting(kUri);
  meeting.add(0, 2);
  Joiner& second = meeting.add(0, 2);
  EXPECT_EQ(second.error().status(), Status::kInvalidState);
  EXPECT_NE(second.error().message().find(kUri), std::string::npos);
  meeting.add(1, 2);
  EXPECT_TRUE(meeting.joiners[0]->succeeds());
}

TEST(RendezvousTcp, RefusesANameInUseAndGoesOn) {
  Meeting meeting(kUri);
  meeting.add(0, 3);
  meeting.add(1, 3);
  meeting.scheduler.run_for(kSecond);
  JoinRequest rival = meeting.request(2, 3);
  rival.self.name = "w1";
  EXPECT_EQ(meeting.add(rival).error().message(),
            "rendezvous \"tcp://127.0.0.1:29500\": the name \"w1\" is in use by rank 1");
  EXPECT_EQ(meeting.add(1, 3).error().status(), Status::kInvalidState);
  meeting.add(2, 3);
  EXPECT_TRUE(meeting.joiners[0]->succeeds());
  EXPECT_TRUE(meeting.joiners[1]->succeeds());
}

TEST(RendezvousTcp, ARestartedGuestTakesThePlaceOfTheOneThatDied) {
  Meeting meeting(kUri);
  meeting.add(0, 3, 60 * kSecond);
  meeting.add(1, 3, 60 * kSecond);
  meeting.scheduler.run_for(kSecond);
  meeting.joiners[1]->leave();  // its connection drops
  meeting.scheduler.run_for(kSecond);
  Joiner& again = meeting.add(1, 3, 60 * kSecond);
  meeting.add(2, 3, 60 * kSecond);
  ASSERT_TRUE(again.succeeds());
  EXPECT_EQ(names(again.outcome()), "w0 w1 w2");
  EXPECT_EQ(again.outcome().members[1].incarnation, again.request().self.incarnation);
  EXPECT_EQ(again.outcome().members[1].generation, 2u);
}

TEST(RendezvousTcp, AMemberKeepsItsPlaceThoughItFoundNoDescriptorToDialAgain) {
  Meeting meeting(kUri);
  meeting.add(0, 2);
  meeting.add(1, 2);
  ASSERT_TRUE(meeting.joiners[1]->succeeds());
  meeting.network.set_short("w1", true);
  meeting.network.cut("w0", "w1");
  meeting.scheduler.run_for(kSecond);
  meeting.network.set_short("w1", false);
  meeting.scheduler.run_for(20 * kSecond);
  EXPECT_EQ(meeting.add(1, 2).error().status(), Status::kInvalidState);
}

TEST(RendezvousTcp, AnotherSizeOfTheWorldIsRefusedAndTheGroupGoesOn) {
  Meeting meeting(kUri);
  meeting.add(0, 3);
  meeting.add(1, 3);
  meeting.scheduler.run_for(100 * kMillisecond);
  Joiner& other = meeting.add(2, 4);
  EXPECT_EQ(other.error().status(), Status::kInvalidArgument);
  EXPECT_NE(other.error().message().find("worker \"w2\" expects a world of 4, the others a world of 3"),
            std::string::npos);
  meeting.add(2, 3);
  for (const int at : {0, 1, 3}) EXPECT_TRUE(meeting.joiners[static_cast<size_t>(at)]->succeeds());
}

TEST(RendezvousTcp, WhoCameWithAnotherSizeIsToldToThoseWhoWaitInVain) {
  Meeting meeting(kUri);
  for (const int32_t rank : {0, 1}) {
    JoinRequest request = meeting.request(rank, 3);
    request.deadline = meeting.scheduler.now() + 5 * kSecond;
    meeting.add(request);
  }
  meeting.scheduler.run_for(kSecond);
  meeting.add(2, 4);
  for (const size_t at : {0u, 1u}) {
    EXPECT_EQ(
        meeting.joiners[at]->error().message(),
        "rendezvous \"tcp://127.0.0.1:29500\": rank 2 of a world of 3 did not come in time; refused meanwhile: worker "
        "\"w2\" expects a world of 4, the others a world of 3; give all the same size (at sim://w2)");
  }
}

TEST(RendezvousTcp, OfManyStrangersTheLastAreTold) {
  Meeting meeting(kUri);
  JoinRequest first = meeting.request(0, 2);
  first.deadline = meeting.scheduler.now() + 60 * kSecond;
  Joiner& host = meeting.add(first);
  for (int32_t i = 0; i < 20; ++i) {
    JoinRequest request = meeting.request(1, 3 + i);
    meeting.add_at("h" + std::to_string(i), request).error();
  }
  const std::string why = host.error().message();
  EXPECT_EQ(why.find("a world of 14,"), std::string::npos) << why;
  for (int32_t i = 12; i < 20; ++i) EXPECT_NE(why.find(fmt::format("a world of {},", 3 + i)), std::string::npos) << why;
  EXPECT_TRUE(why.ends_with("; and 12 more")) << why;
}

TEST(RendezvousTcp, WhoCameAgainWithTheRightSizeIsNotBlamed) {
  Meeting meeting(kUri);
  JoinRequest first = meeting.request(0, 3);
  first.deadline = meeting.scheduler.now() + 5 * kSecond;
  Joiner& waiting = meeting.add(first);
  meeting.scheduler.run_for(100 * kMillisecond);
  EXPECT_EQ(meeting.add(2, 4).error().status(), Status::kInvalidArgument);
  meeting.add(2, 3);
  EXPECT_EQ(waiting.error().message(),
            "rendezvous \"tcp://127.0.0.1:29500\": rank 1 of a world of 3 did not come in time");
}

TEST(RendezvousTcp, AnotherJobIsDeniedAndTheGroupGoesOn) {
  Meeting meeting(kUri);
  meeting.add(0, 2);
  JoinRequest other = meeting.request(1, 2);
  other.job = "another";
  EXPECT_EQ(meeting.add(other).error().status(), Status::kDenied);
  EXPECT_TRUE(meeting.add(1, 2).succeeds());
}

TEST(RendezvousTcp, ALatecomerHearsThatTheGroupIsComplete) {
  Meeting meeting(kUri);
  meeting.add(0, 2);
  meeting.add(1, 2);
  ASSERT_TRUE(meeting.joiners[0]->succeeds());
  ASSERT_TRUE(meeting.joiners[1]->succeeds());
  JoinRequest late = meeting.request(1, 2);
  late.self.name = "late";
  Joiner& latecomer = meeting.add(late);
  EXPECT_EQ(latecomer.error().status(), Status::kInvalidState);
  EXPECT_NE(latecomer.error().message().find("is complete, worker \"late\" comes too late"), std::string::npos);
}

TEST(RendezvousTcp, GarbageDoesNotDisturb) {
  Meeting meeting(kUri);
  meeting.add(0, 2);
  sim::SimLoop loop(meeting.scheduler, "stranger");
  sim::SimTransport transport(meeting.network, loop, "stranger");
  std::unique_ptr<Connection> connection;
  int answers = 0;
  loop.run([&] {
    ConnectionEvents events;
    events.on_message = [&answers](const Frames&) { ++answers; };
    events.on_connected = [&connection] {
      const std::string bytes(300, '\xA5');
      EXPECT_TRUE(connection->send({Frame::copy_of(bytes.data(), bytes.size())}));
      EXPECT_TRUE(connection->send({Frame(), Frame(), Frame()}));
      wire::Message cancel;
      cancel.body = wire::Cancel{{1, 2}};
      EXPECT_TRUE(connection->send({wire::encode(cancel, wire::Limits()).header}));
    };
    events.on_writable = [] {};
    events.on_dropped = [](bool) {};
    connection = transport.dial(kUri, std::move(events));
  });
  EXPECT_TRUE(meeting.scheduler.run_until([&answers] { return answers == 3; }, kSecond));
  EXPECT_TRUE(meeting.add(1, 2).succeeds());
  EXPECT_TRUE(meeting.joiners[0]->succeeds());
  loop.run([&connection] { connection.reset(); });
}

// Anybody who can reach the port may send as much as they like.
TEST(RendezvousTcp, BadMessagesFillNoLog) {
  constexpr int kMessages = 50000;
  Meeting meeting(kUri);
  auto& host = meeting.add(0, 2);
  sim::SimLoop loop(meeting.scheduler, "stranger");
  sim::SimTransport transport(meeting.network, loop, "stranger");
  std::unique_ptr<Connection> connection;
  int sent = 0;
  int answers = 0;
  auto pump = [&] {
    wire::Message cancel;
    cancel.body = wire::Cancel{{1, 2}};
    const Frame frames[] = {Frame::copy_of("garbage", 7), wire::encode(cancel, wire::Limits()).header};
    while (sent < kMessages && connection->send({frames[sent % 2]})) ++sent;
  };
  loop.run([&] {
    ConnectionEvents events;
    events.on_message = [&](const Frames&) { ++answers; };
    events.on_connected = pump;
    events.on_writable = pump;
    events.on_dropped = [](bool) {};
    connection = transport.dial(kUri, std::move(events));
  });
  const Nanos begin = meeting.scheduler.now();
  EXPECT_TRUE(meeting.scheduler.run_until([&sent] { return sent == kMessages; }, 600 * kSecond));
  meeting.scheduler.run_for(kSecond);
  EXPECT_GT(answers, 1000);
  EXPECT_GE(host.logged.size(), 1u);
  EXPECT_LE(host.logged.size(), 2 + static_cast<size_t>((meeting.scheduler.now() - begin) / kSecond));
  EXPECT_TRUE(meeting.add(1, 2).succeeds());
  loop.run([&connection] { connection.reset(); });
}

TEST(RendezvousTcp, AnotherVersionIsRefused) {
  Meeting meeting(kUri);
  meeting.add(0, 2);
  sim::SimLoop loop(meeting.scheduler, "newer");
  sim::SimTransport transport(meeting.network, loop, "newer");
  std::unique_ptr<Connection> connection;
  std::optional<wire::Roster> roster;
  loop.run([&] {
    ConnectionEvents events;
    events.on_message = [&roster](const Frames& frames) {
      roster = std::get<wire::Roster>(
          wire::decode(frames.front(), Frames(frames.begin() + 1, frames.end()), wire::Limits()).body);
    };
    events.on_connected = [&connection] {
      wire::Join join;
      join.job = "job";
      join.protocol = wire::kProtocolVersion + 1;
      join.world_size = 2;
      join.member = {1, "w1", "sim://w1", 77, 0};
      wire::Message message;
      message.body = join;
      EXPECT_TRUE(connection->send({wire::encode(message, wire::Limits()).header}));
    };
    events.on_writable = [] {};
    events.on_dropped = [](bool) {};
    connection = transport.dial(kUri, std::move(events));
  });
  ASSERT_TRUE(meeting.scheduler.run_until([&roster] { return roster.has_value(); }, kSecond));
  EXPECT_TRUE(roster->refused);
  EXPECT_EQ(roster->error.status(), Status::kProtocol);
  EXPECT_TRUE(meeting.add(1, 2).succeeds());
  loop.run([&connection] { connection.reset(); });
}

// Somebody with a key of its own name, who speaks to rank 0, or in its place, by hand.
class Stranger {
 public:
  explicit Stranger(Meeting& meeting)
      : meeting_(meeting), loop_(meeting.scheduler, "stranger"), transport_(meeting.network, loop_, "stranger") {
    transport_.key_name = "stranger";
  }
  ~Stranger() { drop(); }

  void drop() {
    loop_.run([this] {
      connection_.reset();
      acceptor_.reset();
    });
  }
  // The answer to it, on a connection of its own.
  wire::Roster join(const wire::Member& member, int32_t world_size = 3) {
    std::optional<wire::Roster> answer;
    ConnectionEvents events;
    events.on_message = [&answer](const Frames& frames) {
      answer = std::get<wire::Roster>(wire::decode(frames.front(), {}, {}).body);
    };
    const wire::Join join{"job", wire::kProtocolVersion, world_size, member};
    events.on_connected = [&] { EXPECT_TRUE(connection_->send({wire::encode({0, 0, {}, join}, {}).header})); };
    loop_.run([&] { connection_ = transport_.dial(kUri, std::move(events)); });
    EXPECT_TRUE(meeting_.scheduler.run_until([&answer] { return answer.has_value(); }, kSecond));
    return answer.value_or(wire::Roster());
  }
  // Answers each JOIN with this.
  void serve(const std::vector<wire::Member>& members) {
    AcceptorEvents events;
    events.on_message = [this, members](const ConnectionToken& from, const Frames&) {
      wire::Roster roster;
      roster.members = members;
      roster.total = static_cast<uint32_t>(members.size());
      acceptor_->reply(from, {wire::encode({0, 0, {}, roster}, {}).header});
    };
    loop_.run([&] { acceptor_ = transport_.listen(kUri, std::move(events)); });
  }

 private:
  Meeting& meeting_;
  sim::SimLoop loop_;
  sim::SimTransport transport_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Acceptor> acceptor_;
};

// A rank that is another's, one that no world has, another size, a generation before it came, and another's name.
TEST(RendezvousTcp, WhomItRefusesItLogsAndCounts) {
  Meeting meeting(kUri);
  Joiner& host = meeting.add(0, 3);
  meeting.add(1, 3);
  meeting.scheduler.run_for(100 * kMillisecond);
  EXPECT_EQ(host.refused(), 0u);
  struct Lie {
    int32_t world_size;
    wire::Member member;
    std::string logged;
  };
  const std::vector<Lie> lies = {
      {3, {1, "stranger", "sim://x", 77, 0, 0}, "rank 1"},
      {3, {7, "stranger", "sim://x", 77, 0, 0}, "rank 7"},
      {4, {2, "stranger", "sim://x", 77, 0, 0}, "expects a world of 4"},
      {3, {2, "stranger", "sim://x", 77, 3, 0}, "was given up here, or is of an earlier group"},
      {3, {2, "w9", "sim://x", 77, 0, 0}, "takes the name \"w9\", but its key is that of \"stranger\""}};
  uint64_t refused = 0;
  for (const Lie& lie : lies) {
    meeting.scheduler.run_for(kSecond);  // a line a second
    host.logged.clear();
    Stranger stranger(meeting);
    EXPECT_TRUE(stranger.join(lie.member, lie.world_size).refused) << lie.logged;
    EXPECT_EQ(host.refused(), ++refused) << lie.logged;
    ASSERT_EQ(host.logged.size(), 1u) << lie.logged;
    EXPECT_NE(host.logged[0].find(": refused: "), std::string::npos) << host.logged[0];
    EXPECT_NE(host.logged[0].find(lie.logged), std::string::npos) << host.logged[0];
    stranger.drop();
  }
  EXPECT_TRUE(meeting.add(2, 3).succeeds());
  EXPECT_EQ(host.refused(), refused);
}

// Each by its reason and its place; with many the last ones. One that came again as it should is not among them.
TEST(RendezvousTcp, AGroupThatNeverFillsTellsWhyEachStrangerWasRefused) {
  Meeting meeting(kUri);
  JoinRequest first = meeting.request(0, 4);
  first.deadline = meeting.scheduler.now() + 30 * kSecond;
  Joiner& host = meeting.add(first);
  meeting.add(1, 4, 60 * kSecond);
  meeting.scheduler.run_for(100 * kMillisecond);
  JoinRequest rival = meeting.request(2, 4);
  rival.self.name = "w1";
  rival.self.endpoint = "sim://elsewhere";
  meeting.add(rival).error();
  meeting.add(1, 4).error();  // the same place from the same host: one line with the next
  meeting.add(1, 4).error();
  meeting.add(2, 5).error();  // a wrong size, and comes again
  meeting.add(2, 4, 60 * kSecond);
  Stranger stranger(meeting);
  EXPECT_TRUE(stranger.join({3, "w9", "sim://x", 77, 0, 0}, 4).refused);
  const std::string why = host.error().message();
  EXPECT_EQ(why,
            "rendezvous \"tcp://127.0.0.1:29500\": rank 3 of a world of 4 did not come in time; refused meanwhile: "
            "the name \"w1\" is in use by rank 1 (at sim://elsewhere); the name \"w1\" is in use by rank 1 (at "
            "sim://w1); a worker takes the name \"w9\", but its key is that of \"stranger\" (at sim://x)");
}

// A stranger that says where it runs, and starts again and again, is named once, with its last process.
TEST(RendezvousTcp, AStrangerIsToldWithItsHostAndItsProcess) {
  Meeting meeting(kUri);
  JoinRequest first = meeting.request(0, 3);
  first.deadline = meeting.scheduler.now() + 30 * kSecond;
  Joiner& host = meeting.add(first);
  meeting.add(1, 3, 60 * kSecond);
  meeting.scheduler.run_for(100 * kMillisecond);
  for (const uint64_t process : {4711u, 4712u}) {
    JoinRequest rival = meeting.request(2, 3);
    rival.self.name = "w1";
    rival.self.endpoint = "sim://elsewhere";
    rival.host = "node7";
    rival.process = process;
    meeting.add(rival).error();
  }
  EXPECT_EQ(host.error().message(),
            "rendezvous \"tcp://127.0.0.1:29500\": rank 2 of a world of 3 did not come in time; refused meanwhile: "
            "the name \"w1\" is in use by rank 1 (at sim://elsewhere) (process 4712 of host node7)");
}

// A stranger with a wrong key dials again and again, each time from another port: it is one line, and pushes nothing
// out.
TEST(RendezvousTcp, WrongKeysLeaveRoomForTheOtherReasons) {
  Meeting meeting(kUri);
  JoinRequest first = meeting.request(0, 2);
  first.deadline = meeting.scheduler.now() + 30 * kSecond;
  Joiner& host = meeting.add(first);
  meeting.scheduler.run_for(100 * kMillisecond);
  JoinRequest rival = meeting.request(1, 2);
  rival.self.name = "w0";
  meeting.add(rival).error();
  meeting.add(1, 3).error();
  for (int port = 40'000; port < 40'020; ++port) {
    for (const char* from : {"tcp://10.0.0.7", "tcp://[fe80::7]"}) {
      const std::string why = fmt::format("a connection from {}:{} was refused: it has another key", from, port);
      host.loop().run([&] { meeting.network.deny(kUri, why); });
    }
  }
  // Not every transport knows the port.
  host.loop().run([&] { meeting.network.deny(kUri, "a connection from tcp://fe80::7 was refused: it has no key"); });
  EXPECT_EQ(host.refused(), 43u);
  EXPECT_EQ(
      host.error().message(),
      "rendezvous \"tcp://127.0.0.1:29500\": rank 1 of a world of 2 did not come in time; refused meanwhile: the "
      "name \"w0\" is in use by rank 0 (at sim://w1); worker \"w1\" expects a world of 3, the others a world of 2; "
      "give all the same size (at sim://w1); a connection from tcp://10.0.0.7 was refused: it has another key; a "
      "connection from tcp://[fe80::7] was refused: it has another key; a connection from tcp://fe80::7 was refused: "
      "it has no key");
  EXPECT_LT(host.error().message().size(), 496u) << "the message of the C interface";
}

// A key says whose place it may be: else its connection would count as that of the member, which goes with it.
TEST(RendezvousTcp, NobodySpeaksAsTheIncarnationOfAnother) {
  Meeting meeting(kUri);
  Joiner& host = meeting.add(0, 3);
  Joiner& guest = meeting.add(1, 3);
  meeting.scheduler.run_for(20 * kMillisecond);
  Stranger stranger(meeting);
  for (const Joiner* taken : {&host, &guest}) {
    const wire::Roster answer = stranger.join({2, "stranger", "sim://x", taken->request().self.incarnation, 0, 0});
    EXPECT_TRUE(answer.refused);
    EXPECT_EQ(answer.error.status(), Status::kInvalidState);
    EXPECT_NE(answer.error.message().find("\"stranger\""), std::string::npos) << answer.error.message();
  }
  stranger.drop();
  meeting.scheduler.run_for(kMillisecond);
  ASSERT_TRUE(stranger.join({1, "stranger", "sim://x", 77, 0, 0}).refused) << "rank 1 is that of w1";
  EXPECT_TRUE(meeting.add(2, 3).succeeds());
  EXPECT_TRUE(guest.succeeds());
  EXPECT_EQ(names(host.outcome()), "w0 w1 w2");
}

TEST(RendezvousTcp, ARosterThatIsNoGroupWithItsReaderIsRefused) {
  const auto member = [](int32_t rank, const std::string& name, Incarnation incarnation) {
    return wire::Member{rank, name, "sim://" + name, incarnation, 1, 0};
  };
  constexpr Incarnation kOwn = 1001;
  const std::vector<std::vector<wire::Member>> rosters = {
      {member(0, "w0", 1), member(1, "w1", 7)},       {member(0, "w0", 1), member(0, "w1", kOwn)},
      {member(1, "w0", 1), member(1, "w1", kOwn)},    {member(0, "w1", 1), member(1, "w1", kOwn)},
      {member(0, "w0", kOwn), member(1, "w1", kOwn)}, {member(2, "w0", 1), member(1, "w1", kOwn)},
      {member(0, "w0", 1), member(1, "other", kOwn)}, {member(1, "w1", kOwn)},
  };
  for (const std::vector<wire::Member>& roster : rosters) {
    Meeting meeting(kUri);
    Stranger stranger(meeting);
    stranger.serve(roster);
    Joiner& guest = meeting.add(1, 2);
    ASSERT_EQ(guest.request().self.incarnation, kOwn);
    EXPECT_EQ(guest.error().status(), Status::kProtocol) << &roster - rosters.data();
  }
}

TEST(RendezvousTcp, RefusesAddressesThatCannotBeMet) {
  sim::SimScheduler scheduler(1);
  sim::SimNetwork network(scheduler);
  sim::SimLoop loop(scheduler, "loop");
  sim::SimTransport transport(network, loop, "host");
  Log log;
  for (const char* uri : {"tcp://127.0.0.1:0", "udp://127.0.0.1:1", "inproc://", "tcp", ""}) {
    try {
      make_rendezvous(uri, {loop, transport, log});
      FAIL() << uri;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument) << uri;
    }
  }
}

}  // namespace
}  // namespace distag
