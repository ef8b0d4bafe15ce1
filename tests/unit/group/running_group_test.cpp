// The workers that come to a group that runs already: any worker in an open world, and those that come back in a
// static one. The same at each kind of rendezvous.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/random.h"
#include "joiners.h"

namespace distag {
namespace {

namespace fs = std::filesystem;
using testing::Joiner;
using testing::Meeting;
using testing::names;

class RunningGroupTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / fmt::format("distag_running_{:x}", SystemRandom().next());
    const std::string scheme = GetParam();
    if (scheme == "file") uri_ = "file://" + directory_.string();
    if (scheme == "tcp") uri_ = "tcp://127.0.0.1:29500";
    if (scheme == "etcd") uri_ = "etcd://etcd1:2379,etcd2:2379,etcd3:2379/running";
    if (scheme == "inproc") uri_ = "inproc://running";
    meeting_.emplace(uri_);
  }
  void TearDown() override {
    meeting_.reset();
    fs::remove_all(directory_);
  }

  Meeting& meeting() { return *meeting_; }
  JoinRequest request(int32_t rank, const std::string& name, int32_t world_size) {
    JoinRequest request = meeting().request(rank, world_size);
    request.self.name = name;
    request.self.endpoint = "sim://" + name;
    return request;
  }
  Joiner& join(int32_t rank, const std::string& name, int32_t world_size = -1) {
    return meeting().add(request(rank, name, world_size));
  }
  // Some time, in which connections that dropped are seen to have.
  void pass() { meeting().scheduler.run_for(kSecond); }

  // "0 a, 3 b": ranks and names.
  static std::string members(const Joiner& joiner) {
    std::string text;
    for (const Peer& peer : joiner.outcome().members) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", peer.rank, peer.name);
    }
    return text;
  }
  static Peer self(const Joiner& joiner) {
    for (const Peer& peer : joiner.outcome().members) {
      if (peer.incarnation == joiner.request().self.incarnation) return peer;
    }
    ADD_FAILURE() << "not in its own roster";
    return {};
  }

  fs::path directory_;
  std::string uri_;
  std::optional<Meeting> meeting_;
};

TEST_P(RunningGroupTest, AnOpenWorldTakesEveryoneAtOnceAndGivesRanksAndNames) {
  Joiner& first = join(0, "first");
  ASSERT_TRUE(first.succeeds());
  EXPECT_EQ(members(first), "0 first");
  Joiner& second = join(-1, "second");
  ASSERT_TRUE(second.succeeds());
  EXPECT_EQ(members(second), "0 first, 1 second");
  Joiner& far = join(7, "far");
  ASSERT_TRUE(far.succeeds());
  Joiner& nameless = join(-1, "");
  ASSERT_TRUE(nameless.succeeds());
  EXPECT_EQ(members(nameless), "0 first, 1 second, 2 worker2, 7 far");
  EXPECT_EQ(self(nameless).generation, 1u);
}

TEST_P(RunningGroupTest, WhoLeavesAnOpenWorldIsInNoLaterRosterAndItsRankWaitsForItsName) {
  ASSERT_TRUE(join(0, "first").succeeds());
  Joiner& second = join(-1, "second");
  ASSERT_TRUE(second.succeeds());
  second.leave();
  meeting().joiners[0]->on_gone(second.request().self.incarnation);
  pass();
  Joiner& third = join(-1, "third");
  ASSERT_TRUE(third.succeeds());
  EXPECT_EQ(members(third), "0 first, 2 third");
  EXPECT_NE(join(1, "other").error().message().find("rank 1 is that of worker \"second\""), std::string::npos);
  EXPECT_NE(join(5, "second").error().message().find("had rank 1"), std::string::npos);
  Joiner& again = join(-1, "second");
  ASSERT_TRUE(again.succeeds());
  EXPECT_EQ(members(again), "0 first, 1 second, 2 third");
  EXPECT_EQ(self(again).generation, 2u);
}

TEST_P(RunningGroupTest, ATakenNameOrRankOfAnOpenWorldIsRefused) {
  ASSERT_TRUE(join(0, "first").succeeds());
  ASSERT_TRUE(join(-1, "second").succeeds());
  Joiner& name = join(-1, "second");
  EXPECT_EQ(name.error().status(), Status::kInvalidState);
  EXPECT_NE(name.error().message().find("the name \"second\" is in use by rank 1"), std::string::npos);
  EXPECT_NE(join(1, "third").error().message().find("rank 1 is in use by worker \"second\""), std::string::npos);
  EXPECT_TRUE(join(-1, "third").succeeds());
}

TEST_P(RunningGroupTest, AnotherJobOrKindOfWorldIsRefusedAlone) {
  ASSERT_TRUE(join(0, "first").succeeds());
  JoinRequest other = request(-1, "other", -1);
  other.job = "another";
  EXPECT_EQ(meeting().add(other).error().status(), Status::kDenied);
  Joiner& fixed = join(1, "fixed", 2);
  EXPECT_EQ(fixed.error().status(), Status::kInvalidArgument);
  EXPECT_NE(fixed.error().message().find("expects a world of 2, the others an open world"), std::string::npos);
  EXPECT_TRUE(join(-1, "second").succeeds());
}

TEST_P(RunningGroupTest, AnOpenWorldAndAStaticOneDoNotMix) {
  Joiner& first = join(0, "first", 2);
  meeting().scheduler.run_for(100 * kMillisecond);
  Joiner& open = join(-1, "open");
  EXPECT_EQ(open.error().status(), Status::kInvalidArgument);
  EXPECT_NE(open.error().message().find("expects an open world, the others a world of 2"), std::string::npos);
  EXPECT_TRUE(join(1, "second", 2).succeeds());
  EXPECT_TRUE(first.succeeds());
}

TEST_P(RunningGroupTest, AKilledMemberOfAStaticWorldComesBackUnderItsNameAndRank) {
  for (int32_t rank = 0; rank < 3; ++rank) meeting().add(rank, 3);
  for (auto& joiner : meeting().joiners) ASSERT_TRUE(joiner->succeeds());
  meeting().joiners[1]->kill();
  pass();
  EXPECT_EQ(join(1, "other", 3).error().status(), Status::kInvalidState);
  Joiner& again = join(1, "w1", 3);
  ASSERT_TRUE(again.succeeds());
  EXPECT_EQ(names(again.outcome()), "w0 w1 w2");
  EXPECT_EQ(self(again).generation, 2u);
  EXPECT_EQ(again.outcome().members[2].incarnation, meeting().joiners[2]->request().self.incarnation);
  EXPECT_EQ(join(1, "w1", 3).error().status(), Status::kInvalidState) << "it lives again";
}

TEST_P(RunningGroupTest, EveryoneMayComeAtOnce) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    meeting_.reset();
    meeting_.emplace(uri_, seed);
    Joiner& first = join(0, "w0");
    // There the first one to ask need not be the first one to come.
    if (std::string(GetParam()) == "etcd") {
      ASSERT_TRUE(first.succeeds());
    }
    for (int32_t rank = 1; rank < 8; ++rank) join(-1, "");
    std::set<int32_t> ranks;
    for (auto& joiner : meeting().joiners) {
      ASSERT_TRUE(joiner->succeeds());
      ranks.insert(self(*joiner).rank);
    }
    EXPECT_EQ(ranks.size(), 8u);
    // In each pair, at least the later joiner knows of the other.
    for (auto& one : meeting().joiners) {
      for (auto& other : meeting().joiners) {
        EXPECT_TRUE(members(*one).find(self(*other).name) != std::string::npos ||
                    members(*other).find(self(*one).name) != std::string::npos);
      }
    }
  }
}

TEST_P(RunningGroupTest, AStartThatTakesLongLogsWhatItWaitsFor) {
  JoinRequest patient = request(0, "first", 3);
  patient.deadline = meeting().scheduler.now() + 60 * kSecond;
  Joiner& first = meeting().add(std::move(patient));
  const auto lines = [&first] {
    return std::count_if(first.logged.begin(), first.logged.end(), [](const std::string& line) {
      return line.starts_with("the start has waited for ") &&
             line.find("rank 1, 2 of a world of 3") != std::string::npos;
    });
  };
  meeting().scheduler.run_for(4 * kSecond);
  EXPECT_EQ(lines(), 0);
  meeting().scheduler.run_for(2 * kSecond);
  EXPECT_EQ(lines(), 1);
  meeting().scheduler.run_for(5 * kSecond);
  EXPECT_EQ(lines(), 2);
  join(1, "second", 3);
  join(2, "third", 3);
  ASSERT_TRUE(first.succeeds());
  meeting().scheduler.run_for(20 * kSecond);
  EXPECT_EQ(lines(), 2);
}

INSTANTIATE_TEST_SUITE_P(AtEach, RunningGroupTest, ::testing::Values("inproc", "file", "tcp", "etcd"),
                         [](const auto& kind) { return std::string(kind.param); });

// Any member can ask who somebody is: who has come, also after it; not who has gone, nor somebody else.
TEST_P(RunningGroupTest, AMemberLearnsWhoSomebodyIs) {
  Joiner& first = join(0, "a");
  ASSERT_TRUE(first.succeeds());
  Joiner& second = join(-1, "b");
  ASSERT_TRUE(second.succeeds());
  Joiner& third = join(-1, "c");
  ASSERT_TRUE(third.succeeds());
  for (Joiner* asking : {&first, &second}) {
    const auto found = asking->look_up(third.request().self.incarnation);
    const auto nobody = asking->look_up(4711);
    ASSERT_TRUE(meeting().scheduler.run_until([&] { return found->is_answered && nobody->is_answered; }, 5 * kSecond));
    ASSERT_TRUE(found->peer.has_value());
    EXPECT_EQ(found->peer->name, "c");
    EXPECT_EQ(found->peer->rank, 2);
    EXPECT_EQ(found->peer->generation, 1u);
    EXPECT_EQ(found->peer->endpoint, "sim://c");
    EXPECT_FALSE(nobody->peer.has_value());
  }
  third.leave();
  first.on_gone(third.request().self.incarnation);
  pass();
  const auto gone = second.look_up(third.request().self.incarnation);
  ASSERT_TRUE(meeting().scheduler.run_until([&] { return gone->is_answered; }, 5 * kSecond));
  EXPECT_FALSE(gone->peer.has_value());
}

TEST(RendezvousTcp, AQuestionOutlivesADropOfItsConnection) {
  Meeting meeting("tcp://127.0.0.1:29500");
  ASSERT_TRUE(meeting.add(0, -1).succeeds());
  Joiner& second = meeting.add(1, -1);
  ASSERT_TRUE(second.succeeds());
  const auto found = second.look_up(meeting.joiners[0]->request().self.incarnation);
  meeting.network.cut_all();
  ASSERT_TRUE(meeting.scheduler.run_until([&] { return found->is_answered; }, 5 * kSecond));
  EXPECT_EQ(found->peer->name, "w0");
}

// The connection of a member to rank 0 is gone, and somebody wants its place: rank 0 asks for a sign of life.
class RivalTest : public ::testing::Test {
 protected:
  RivalTest() : meeting("tcp://127.0.0.1:29500") {
    JoinRequest host = meeting.request(0, -1);
    host.probe = [this](Incarnation member, Task on_alive) {
      EXPECT_EQ(member, meeting.joiners[1]->request().self.incarnation);
      probes.push_back(std::move(on_alive));
    };
    EXPECT_TRUE(meeting.add(std::move(host)).succeeds());
    EXPECT_TRUE(meeting.add(1, -1).succeeds());
    meeting.network.part("w0", "w1");
    meeting.network.cut_all();
    meeting.scheduler.run_for(kSecond);
  }
  Joiner& claim() {
    JoinRequest request = meeting.request(1, -1);
    request.self.endpoint = "sim://claimant";
    Joiner& claimant = meeting.add_at("claimant", std::move(request));
    EXPECT_TRUE(meeting.scheduler.run_until([this] { return !probes.empty(); }, 5 * kSecond));
    meeting.scheduler.run_for(2 * kSecond);
    EXPECT_FALSE(claimant.is_done());
    return claimant;
  }

  Meeting meeting;
  std::vector<Task> probes;
};

TEST_F(RivalTest, OneThatGivesASignOfLifeKeepsItsPlace) {
  Joiner& claimant = claim();
  ASSERT_EQ(probes.size(), 1u) << "it is asked once, however often the claimant comes";
  meeting.joiners[0]->loop().run([this] { probes[0](); });
  EXPECT_EQ(claimant.error().status(), Status::kInvalidState);
  EXPECT_NE(claimant.error().message().find("the name \"w1\" is in use"), std::string::npos);
  meeting.network.join("w0", "w1");
  meeting.scheduler.run_for(10 * kSecond);
  const auto found = meeting.joiners[1]->look_up(meeting.joiners[1]->request().self.incarnation);
  ASSERT_TRUE(meeting.scheduler.run_until([&] { return found->is_answered; }, 5 * kSecond));
  EXPECT_TRUE(found->peer.has_value()) << "it is a member as before";
}

// The connection of the holder is there again before it answers; later the holder dies.
TEST_F(RivalTest, ASignOfLifeCountsForTheClaimantThatAskedForIt) {
  Joiner& claimant = claim();
  ASSERT_EQ(probes.size(), 1u) << "it is asked once, however often the claimant comes";
  meeting.network.join("w0", "w1");
  EXPECT_EQ(claimant.error().status(), Status::kInvalidState);
  meeting.joiners[0]->loop().run([this] { probes[0](); });
  meeting.network.kill("w1");
  meeting.scheduler.run_for(kSecond);
  JoinRequest request = meeting.request(1, -1);
  request.self.endpoint = "sim://next";
  Joiner& next = meeting.add_at("next", std::move(request));
  ASSERT_TRUE(meeting.scheduler.run_until([this] { return probes.size() == 2; }, 5 * kSecond)) << "it is asked anew";
  meeting.joiners[0]->on_gone(meeting.joiners[1]->request().self.incarnation);
  EXPECT_TRUE(next.succeeds());
}

TEST_F(RivalTest, OneThatIsLostMakesRoomAtOnce) {
  Joiner& claimant = claim();
  ASSERT_EQ(probes.size(), 1u) << "it is asked once, however often the claimant comes";
  meeting.joiners[0]->on_gone(meeting.joiners[1]->request().self.incarnation);
  ASSERT_TRUE(meeting.scheduler.run_until([&] { return claimant.is_done(); }, 100 * kMillisecond));
  EXPECT_TRUE(claimant.outcome().ok) << claimant.outcome().error.message();
  meeting.joiners[0]->loop().run([this] { probes[0](); });  // a late sign of life
  EXPECT_EQ(claimant.outcome().members.size(), 2u);
}

TEST(RendezvousTcp, AMemberKeepsItsPlaceWhenItsConnectionDrops) {
  Meeting meeting("tcp://127.0.0.1:29500");
  meeting.add(0, -1);
  meeting.add(1, -1);
  for (auto& joiner : meeting.joiners) ASSERT_TRUE(joiner->succeeds());
  meeting.network.cut_all();
  meeting.scheduler.run_for(kSecond);
  EXPECT_EQ(meeting.add(1, -1).error().status(), Status::kInvalidState);
}

TEST(RendezvousTcp, NobodyCanJoinOnceRankZeroIsGone) {
  Meeting meeting("tcp://127.0.0.1:29500");
  meeting.add(0, -1);
  meeting.add(1, -1);
  for (auto& joiner : meeting.joiners) ASSERT_TRUE(joiner->succeeds());
  meeting.joiners[0]->kill();
  JoinRequest late = meeting.request(-1, -1, kSecond);
  late.self.name = "late";
  const Error error = meeting.add(late).error();
  EXPECT_EQ(error.status(), Status::kDisconnected);
  EXPECT_NE(error.message().find("tcp://127.0.0.1:29500"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("once rank 0 has ended, no worker can join"), std::string::npos) << error.message();
}

TEST(RendezvousTcp, AMemberOfAGroupThatLostRankZeroIsNotTakenIntoTheNext) {
  Meeting meeting("tcp://127.0.0.1:29500");
  meeting.add(0, -1);
  meeting.add(1, -1);
  for (auto& joiner : meeting.joiners) ASSERT_TRUE(joiner->succeeds());
  meeting.joiners[0]->kill();
  Joiner& next = meeting.add(0, -1);
  ASSERT_TRUE(next.succeeds());
  meeting.scheduler.run_for(30 * kSecond);
  Joiner& other = meeting.add(1, -1);
  ASSERT_TRUE(other.succeeds());
  EXPECT_EQ(names(other.outcome()), "w0 w1");
}

}  // namespace
}  // namespace distag
