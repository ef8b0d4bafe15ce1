// A rendezvous over an etcd of the simulation, on bad days. Real ones are in tests/etcd.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/random.h"
#include "base/regular_file.h"
#include "joiners.h"

namespace distag {
namespace {

using testing::FakeEtcd;
using testing::Joiner;
using testing::Meeting;
using testing::names;

constexpr const char* kUri = "etcd://etcd1:2379,etcd2:2379,etcd3:2379/jobs/train";

class RendezvousEtcdTest : public ::testing::Test {
 protected:
  RendezvousEtcdTest() : meeting_(kUri) {}

  Meeting& meeting() { return meeting_; }
  FakeEtcd& etcd() { return meeting_.etcd; }
  Joiner& add(int32_t rank, int32_t world_size, Nanos timeout = 10 * kSecond) {
    return meeting_.add(rank, world_size, timeout);
  }
  void pass(Nanos time) { meeting_.scheduler.run_for(time); }
  Joiner& add_named(const std::string& name, int32_t rank, int32_t world_size, Nanos timeout = 20 * kSecond) {
    JoinRequest request = meeting_.request(rank, world_size, timeout);
    request.self.name = name;
    return meeting_.add(std::move(request));
  }
  // Both of a static world of two.
  void start_two() {
    add(0, 2);
    add(1, 2);
    for (auto& joiner : meeting_.joiners) ASSERT_TRUE(joiner->succeeds());
  }
  size_t asked(const std::string& server) const {
    return static_cast<size_t>(std::count_if(meeting_.etcd.asked.begin(), meeting_.etcd.asked.end(),
                                             [&](const std::string& one) { return one.starts_with(server); }));
  }
  static std::string text(const Error& error) {
    return fmt::format("{}: {}", status_name(error.status()), error.message());
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  Meeting meeting_;
};

TEST_F(RendezvousEtcdTest, AllGetTheSameMembersByRank) {
  for (int32_t rank : {2, 0, 1}) add(rank, 3);
  for (auto& joiner : meeting().joiners) {
    ASSERT_TRUE(joiner->succeeds());
    EXPECT_EQ(names(joiner->outcome()), "w0 w1 w2");
  }
  EXPECT_EQ(etcd().entries().size(), 4u);
  for (const auto& [key, entry] : etcd().entries()) EXPECT_TRUE(key.starts_with("/jobs/train/")) << key;
}

TEST_F(RendezvousEtcdTest, WhoWaitsLearnsByAWatchOfWhoCame) {
  Joiner& first = add(0, 2, 60 * kSecond);
  pass(20 * kSecond + 700 * kMillisecond);
  const Nanos now = meeting().scheduler.now();
  EXPECT_TRUE(add(1, 2).succeeds());
  EXPECT_TRUE(first.succeeds());
  EXPECT_LT(first.told_at() - now, 100 * kMillisecond);
}

TEST_F(RendezvousEtcdTest, NothingIsLeftAfterTheLastOneLeaves) {
  for (int round = 0; round < 3; ++round) {
    start_two();
    meeting().joiners[0]->leave();
    pass(100 * kMillisecond);
    EXPECT_EQ(etcd().entries().size(), 2u);
    meeting().joiners[1]->leave();
    pass(100 * kMillisecond);
    meeting().joiners.clear();
    EXPECT_EQ(etcd().entries().size(), 0u);
    EXPECT_EQ(etcd().lease_count(), 0u);
  }
}

TEST_F(RendezvousEtcdTest, ListsWhoIsMissingAndCleansUp) {
  Joiner& joiner = add(1, 3, kSecond);
  EXPECT_EQ(text(joiner.error()),
            fmt::format("DEADLINE: rendezvous \"{}\": rank 0, 2 of a world of 3 did not come in time", kUri));
  pass(100 * kMillisecond);
  EXPECT_EQ(etcd().entries().size(), 0u);
}

TEST_F(RendezvousEtcdTest, WhoGaveUpIsToldApartFromWhoNeverCame) {
  Joiner& first = add(0, 3, kSecond);
  Joiner& second = add(1, 3, 3 * kSecond);
  EXPECT_EQ(first.error().status(), Status::kDeadline);
  EXPECT_EQ(
      second.error().message(),
      fmt::format("rendezvous \"{}\": rank 2 of a world of 3 did not come in time; rank 0 came and went before", kUri));
}

TEST_F(RendezvousEtcdTest, AnotherSizeIsRefusedAndTheOthersLearnOfItIfTheyWaitInVain) {
  Joiner& waiting = add(0, 2, 5 * kSecond);
  pass(100 * kMillisecond);
  Joiner& other = add(1, 3);
  EXPECT_EQ(other.error().status(), Status::kInvalidArgument);
  EXPECT_TRUE(has(waiting.error().message(), "worker \"w1\" expects a world of 3, and was refused"))
      << waiting.error().message();
}

TEST_F(RendezvousEtcdTest, TheOthersLearnWhoWasRefusedIfTheyWaitInVain) {
  Joiner& waiting = add(0, 2, 20 * kSecond);
  pass(100 * kMillisecond);
  JoinRequest same_name = meeting().request(1, 2);
  same_name.self.name = "w0";
  same_name.host = "host7";
  same_name.process = 77;
  EXPECT_EQ(meeting().add(same_name).error().status(), Status::kInvalidState);
  const std::string message = waiting.error().message();
  EXPECT_TRUE(has(message,
                  "rank 1 of a world of 2 did not come in time; refused meanwhile: the name \"w0\" is in use "
                  "by rank 0"))
      << message;
  EXPECT_TRUE(has(message, "(process 77 of host host7)")) << message;
}

TEST_F(RendezvousEtcdTest, AnotherJobUnderThePrefixIsDenied) {
  add(0, 2);
  pass(100 * kMillisecond);
  JoinRequest other = meeting().request(1, 2);
  other.job = "another";
  EXPECT_EQ(meeting().add(other).error().status(), Status::kDenied);
  EXPECT_TRUE(add(1, 2).succeeds());
}

// ---- places ----

TEST_F(RendezvousEtcdTest, ANameInUseIsRefusedOnceItsLeaseWasRenewedForSoLong) {
  start_two();
  const Nanos now = meeting().scheduler.now();
  Joiner& rival = add(1, 2, 20 * kSecond);
  EXPECT_EQ(text(rival.error()),
            fmt::format("INVALID_STATE: rendezvous \"{}\": the name \"w1\" is in use by rank 1", kUri));
  EXPECT_GE(rival.told_at() - now, 5 * kSecond);
  EXPECT_LT(rival.told_at() - now, 7 * kSecond);
  EXPECT_EQ(add(1, 2, kSecond).error().status(), Status::kInvalidState) << "also when time is up before";
}

TEST_F(RendezvousEtcdTest, WhoWasKilledComesBackAsSoonAsAnotherMemberHasLostIt) {
  start_two();
  meeting().joiners[1]->kill();
  const Nanos now = meeting().scheduler.now();
  Joiner& again = add(1, 2);
  pass(100 * kMillisecond);
  EXPECT_FALSE(again.is_done());
  meeting().joiners[0]->on_gone(meeting().joiners[1]->request().self.incarnation);
  ASSERT_TRUE(again.succeeds());
  EXPECT_LT(again.told_at() - now, 500 * kMillisecond);
  EXPECT_EQ(again.outcome().members[1].generation, 2u);
}

TEST_F(RendezvousEtcdTest, WhoWasKilledComesBackOnceItsLeaseHasRunOut) {
  Joiner& first = add(0, 2, 60 * kSecond);
  pass(100 * kMillisecond);
  first.kill();
  Joiner& again = add(0, 2, 20 * kSecond);
  pass(6 * kSecond);
  Joiner& other = add(1, 2, 20 * kSecond);
  ASSERT_TRUE(again.succeeds());
  ASSERT_TRUE(other.succeeds());
  EXPECT_EQ(other.outcome().members[0].incarnation, again.request().self.incarnation);
}

TEST_F(RendezvousEtcdTest, AMemberThatWasStoppedMakesItsEntryAgain) {
  start_two();
  Joiner& stopped = *meeting().joiners[1];
  stopped.loop().freeze();
  pass(20 * kSecond);
  EXPECT_EQ(etcd().entries().size(), 2u);
  stopped.loop().thaw();
  pass(kSecond);
  EXPECT_EQ(etcd().entries().size(), 3u);
  EXPECT_EQ(add(1, 2, 20 * kSecond).error().status(), Status::kInvalidState);
  EXPECT_TRUE(stopped.logged.empty());
}

TEST_F(RendezvousEtcdTest, AMemberThatOthersLostWronglyMakesItsEntryAgainAtOnce) {
  start_two();
  meeting().joiners[0]->on_gone(meeting().joiners[1]->request().self.incarnation);
  pass(200 * kMillisecond);
  EXPECT_EQ(etcd().entries().size(), 3u);
}

// A member that was stopped, and that the other one has lost, loses the other one as well and leaves at once: what is
// of the other one stays, whether the loss is known before the member has come back or after.
TEST_F(RendezvousEtcdTest, AMemberThatOthersHaveLostTakesNobodyAway) {
  start_two();
  Joiner& other = *meeting().joiners[0];
  Joiner& stopped = *meeting().joiners[1];
  for (const Nanos later : {Nanos{0}, 20 * kMillisecond}) {
    stopped.loop().freeze();
    other.on_gone(stopped.request().self.incarnation);
    pass(kSecond);
    EXPECT_EQ(etcd().entries().size(), 2u);
    other.loop().freeze();  // it has no time to come back
    stopped.loop().thaw();
    pass(later);
    EXPECT_EQ(etcd().entries().size(), later == 0 ? 2u : 3u);
    stopped.on_gone(other.request().self.incarnation);
    pass(100 * kMillisecond);
    EXPECT_EQ(etcd().entries().size(), 3u);
    other.loop().thaw();
    pass(kSecond);
  }
  stopped.leave();
  pass(kSecond);
  EXPECT_EQ(etcd().entries().size(), 2u);
  EXPECT_TRUE(add(1, 2).succeeds());
  EXPECT_TRUE(other.logged.empty());
}

TEST_F(RendezvousEtcdTest, AMemberThatWasStoppedLearnsThatItsPlaceWasTaken) {
  start_two();
  Joiner& stopped = *meeting().joiners[1];
  stopped.loop().freeze();
  pass(10 * kSecond);
  Joiner& next = add(1, 2);
  ASSERT_TRUE(next.succeeds());
  EXPECT_EQ(next.outcome().members[1].generation, 2u);
  stopped.loop().thaw();
  pass(10 * kSecond);
  ASSERT_EQ(stopped.logged.size(), 1u);
  EXPECT_TRUE(has(stopped.logged[0], "another one has taken it")) << stopped.logged[0];
  EXPECT_EQ(etcd().entries().size(), 3u);
  stopped.leave();
  pass(kSecond);
  EXPECT_EQ(etcd().entries().size(), 3u) << "nothing of the others goes with it";
}

// The entry of the holder comes back between the look of the rival and its transaction.
TEST_F(RendezvousEtcdTest, APlaceWhoseHolderCameBackAtTheLastMomentIsNotTaken) {
  start_two();
  Joiner& stopped = *meeting().joiners[1];
  stopped.loop().freeze();
  pass(10 * kSecond);
  const std::string key = fmt::format("/jobs/train/member/{:016x}", stopped.request().self.incarnation);
  etcd().before = [this, key](const std::string& body) {
    if (body.find("request_put") == std::string::npos) return;
    etcd().before = nullptr;
    etcd().put(key, "");
  };
  Joiner& rival = add(1, 2, 20 * kSecond);
  EXPECT_EQ(rival.error().status(), Status::kInvalidState);
  EXPECT_FALSE(etcd().before);
  stopped.loop().thaw();
  pass(kSecond);
  EXPECT_TRUE(stopped.logged.empty());
}

// All leases have run out at once: the members are still those of the record.
TEST_F(RendezvousEtcdTest, AGroupThatWasStoppedAsAWholeGoesOn) {
  start_two();
  for (auto& joiner : meeting().joiners) joiner->loop().freeze();
  pass(20 * kSecond);
  EXPECT_EQ(etcd().entries().size(), 1u);
  for (auto& joiner : meeting().joiners) joiner->loop().thaw();
  pass(kSecond);
  EXPECT_EQ(etcd().entries().size(), 3u);
}

// Snapshots of no group; of a group that gathers; of the group before a member came back anew; of an earlier job.
class RestoredEtcdTest : public RendezvousEtcdTest {
 protected:
  // All that lives is there again, known to one that comes back, and no member was told otherwise.
  void expect_put_back(size_t living, uint64_t generation) {
    pass(10 * kSecond);
    EXPECT_EQ(etcd().entries().size(), living + 1);
    Joiner& last = *meeting().joiners.back();
    last.kill();
    pass(8 * kSecond);
    Joiner& again = add_named(last.request().self.name, last.request().self.rank, last.request().world_size);
    ASSERT_TRUE(again.succeeds());
    EXPECT_EQ(names(again.outcome()), expected_);
    EXPECT_EQ(again.outcome().members.back().generation, generation);
    for (auto& joiner : meeting().joiners) {
      for (const std::string& line : joiner->logged) EXPECT_FALSE(has(line, "another one has taken it")) << line;
    }
  }
  std::string expected_ = "w0 w1 w2";
};

TEST_F(RestoredEtcdTest, AMemberPutsBackTheGroupThatASnapshotHasNot) {
  etcd().save_snapshot();
  for (int32_t rank = 0; rank < 3; ++rank) add(rank, 3);
  for (auto& joiner : meeting().joiners) ASSERT_TRUE(joiner->succeeds());
  etcd().restore_snapshot();
  expect_put_back(3, 2);
}

TEST_F(RestoredEtcdTest, AMemberPutsBackThoseThatASnapshotDoesNotHaveSoFar) {
  add(0, 3);
  pass(kSecond);
  etcd().save_snapshot();
  add(1, 3);
  add(2, 3);
  for (auto& joiner : meeting().joiners) ASSERT_TRUE(joiner->succeeds());
  etcd().restore_snapshot();
  expect_put_back(3, 2);
}

// The lease of the incarnation before it is there again, and runs out.
TEST_F(RestoredEtcdTest, AMemberPutsItselfBackInThePlaceOfTheOneBeforeIt) {
  for (int32_t rank = 0; rank < 3; ++rank) add(rank, 3);
  for (auto& joiner : meeting().joiners) ASSERT_TRUE(joiner->succeeds());
  etcd().save_snapshot();
  meeting().joiners.back()->kill();
  pass(8 * kSecond);
  ASSERT_TRUE(add(2, 3).succeeds());
  pass(kSecond);
  etcd().restore_snapshot();
  pass(5 * kSecond);
  expect_put_back(3, 3);
}

TEST_F(RestoredEtcdTest, AMemberThatASnapshotShowsAnEarlierJobPutsItsGroupBack) {
  for (int32_t rank = 0; rank < 3; ++rank) add(rank, 3);
  for (auto& joiner : meeting().joiners) ASSERT_TRUE(joiner->succeeds());
  etcd().save_snapshot();
  for (auto& joiner : meeting().joiners) joiner->kill();
  pass(8 * kSecond);
  for (int32_t rank = 0; rank < 3; ++rank) add(rank, 3);
  for (size_t i = 3; i < 6; ++i) ASSERT_TRUE(meeting().joiners[i]->succeeds());
  etcd().restore_snapshot();
  pass(5 * kSecond);
  expect_put_back(3, 2);
}

TEST_F(RestoredEtcdTest, AnOpenGroupIsPutBackAsItWas) {
  add(-1, -1);
  add_named("b", -1, -1);
  pass(kSecond);
  etcd().save_snapshot();
  add_named("c", -1, -1);
  for (auto& joiner : meeting().joiners) ASSERT_TRUE(joiner->succeeds());
  meeting().joiners[1]->kill();
  pass(8 * kSecond);
  etcd().restore_snapshot();
  pass(10 * kSecond);
  EXPECT_EQ(etcd().entries().size(), 3u);
  Joiner& next = add_named("d", -1, -1);
  ASSERT_TRUE(next.succeeds());
  ASSERT_EQ(next.outcome().members.size(), 3u);
  EXPECT_EQ(next.outcome().members[1].name, "c");
  EXPECT_EQ(next.outcome().members[1].rank, 2);
  EXPECT_EQ(next.outcome().members[2].rank, 3);
}

// Not a snapshot: all members were stopped for so long that a new group met. It keeps its place.
TEST_F(RestoredEtcdTest, AGroupThatWasFollowedByAnotherLeavesItAlone) {
  start_two();
  for (auto& joiner : meeting().joiners) joiner->loop().freeze();
  pass(20 * kSecond);
  add(0, 2);
  add(1, 2);
  for (size_t i = 2; i < 4; ++i) ASSERT_TRUE(meeting().joiners[i]->succeeds());
  const std::string record = etcd().entries().at("/jobs/train/group").value;
  for (size_t i = 0; i < 2; ++i) meeting().joiners[i]->loop().thaw();
  pass(20 * kSecond);
  EXPECT_EQ(etcd().entries().size(), 3u);
  EXPECT_EQ(etcd().entries().at("/jobs/train/group").value, record);
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(meeting().joiners[i]->logged.size(), 1u);
    EXPECT_TRUE(has(meeting().joiners[i]->logged[0], "another one has taken it")) << meeting().joiners[i]->logged[0];
  }
}

TEST_F(RendezvousEtcdTest, TheRecordOfAKilledJobIsFollowedByTheNext) {
  start_two();
  for (auto& joiner : meeting().joiners) joiner->kill();
  pass(6 * kSecond);
  EXPECT_EQ(etcd().entries().size(), 1u);
  Joiner& first = add(0, 3);
  pass(kSecond);
  EXPECT_FALSE(first.is_done());
  add(1, 3);
  Joiner& last = add(2, 3);
  ASSERT_TRUE(last.succeeds());
  EXPECT_EQ(names(last.outcome()), "w0 w1 w2");
  EXPECT_EQ(last.outcome().members[0].generation, 1u);
}

TEST_F(RendezvousEtcdTest, AnyMemberMayDieAndTheOthersTakeWhoComes) {
  Joiner& first = add(0, -1);
  ASSERT_TRUE(first.succeeds());
  ASSERT_TRUE(add_named("second", -1, -1).succeeds());
  first.kill();
  meeting().joiners[1]->on_gone(first.request().self.incarnation);
  pass(100 * kMillisecond);
  Joiner& third = add_named("third", -1, -1);
  ASSERT_TRUE(third.succeeds());
  ASSERT_EQ(third.outcome().members.size(), 2u);
  EXPECT_EQ(third.outcome().members[0].name, "second");
  EXPECT_EQ(third.outcome().members[1].rank, 2);
}

// ---- answers that do not come ----

TEST_F(RendezvousEtcdTest, AServerThatIsDownIsPassedOver) {
  etcd().down = {"etcd1:2379"};
  etcd().mute = {"etcd2:2379"};
  start_two();
}

TEST_F(RendezvousEtcdTest, WithoutAnyServerTimeIsUpAndEachIsNamedWithItsFailure) {
  etcd().down = {"etcd1:2379", "etcd3:2379"};
  etcd().mute = {"etcd2:2379"};
  Joiner& joiner = add(0, 2);
  EXPECT_EQ(text(joiner.error()),
            fmt::format("DEADLINE: rendezvous \"{}\": time was up before etcd had answered, of whose servers the most "
                        "have to run: http://etcd1:2379: Couldn't connect to server; http://etcd2:2379: no answer in "
                        "time; http://etcd3:2379: Couldn't connect to server",
                        kUri));
  EXPECT_LT(joiner.told_at(), 11001 * kMillisecond);
  EXPECT_LT(etcd().asked.size(), 60u) << "it pauses between two rounds";
}

TEST_F(RendezvousEtcdTest, MembersGoOnWithoutEtcdAndTakeWhoComesAfterwards) {
  start_two();
  etcd().mute = {"etcd1:2379", "etcd2:2379", "etcd3:2379"};
  pass(60 * kSecond);
  EXPECT_EQ(add_named("late", 1, 2, 3 * kSecond).error().status(), Status::kDeadline);
  for (int rank : {0, 1}) {
    const auto& logged = meeting().joiners[static_cast<size_t>(rank)]->logged;
    ASSERT_EQ(logged.size(), 1u);
    EXPECT_TRUE(has(logged[0], "the group goes on, but no worker can join it meanwhile")) << logged[0];
  }
  etcd().mute.clear();
  pass(5 * kSecond);
  EXPECT_EQ(etcd().entries().size(), 3u);
  EXPECT_TRUE(has(meeting().joiners[0]->logged.back(), "etcd answers again"));
  EXPECT_EQ(add(1, 2, 20 * kSecond).error().status(), Status::kInvalidState);
}

// The connection broke after the transaction was made, or the lease granted.
TEST_F(RendezvousEtcdTest, AnAnswerThatIsLostIsNoSecondEntry) {
  int lost = 0;
  etcd().loses_answer = [&lost](const std::string& path) { return path != "/v3/kv/txn" ? false : ++lost % 2 == 0; };
  start_two();
  etcd().loses_answer = nullptr;
  for (auto& joiner : meeting().joiners) {
    for (const Peer& peer : joiner->outcome().members) EXPECT_EQ(peer.generation, 1u);
  }
  EXPECT_EQ(etcd().entries().size(), 3u);
}

TEST_F(RendezvousEtcdTest, ALeaseThatRunsOutWhileTheGroupGathersIsTakenAnew) {
  Joiner& first = add(0, 2, 60 * kSecond);
  pass(kSecond);
  etcd().end_leases();
  pass(10 * kSecond);
  Joiner& second = add(1, 2);
  ASSERT_TRUE(second.succeeds());
  ASSERT_TRUE(first.succeeds());
  EXPECT_EQ(names(first.outcome()), "w0 w1");
}

TEST_F(RendezvousEtcdTest, AWatchOfACompactedRevisionIsBegunAnewNowAndThen) {
  Joiner& first = add(0, 2, 60 * kSecond);
  pass(kSecond);
  const int before = etcd().watches_begun;
  etcd().compact();
  pass(10 * kSecond);
  EXPECT_LE(etcd().watches_begun - before, 3);
  EXPECT_TRUE(add(1, 2).succeeds());
  EXPECT_TRUE(first.succeeds());
  etcd().compact();
  pass(60 * kSecond);
  EXPECT_LE(etcd().watches_begun - before, 12);
}

TEST_F(RendezvousEtcdTest, AShortageOfMemoryFailsAStartAtOnceAndNoMember) {
  etcd().is_memory_short = true;
  Joiner& early = add(0, 2);
  pass(kSecond);
  ASSERT_TRUE(early.is_done());
  EXPECT_EQ(early.error().status(), Status::kOutOfMemory) << text(early.error());
  etcd().is_memory_short = false;
  Joiner& first = add(0, 2);
  Joiner& second = add(1, 2);
  ASSERT_TRUE(first.succeeds());
  ASSERT_TRUE(second.succeeds());
  etcd().is_memory_short = true;
  pass(4 * kSecond);
  etcd().is_memory_short = false;
  pass(10 * kSecond);
  EXPECT_EQ(etcd().entries().size(), 3u);
}

TEST_F(RendezvousEtcdTest, MembersAskLittle) {
  start_two();
  etcd().asked.clear();
  pass(60 * kSecond);
  EXPECT_LE(etcd().asked.size(), 2u * 60 * 2) << "two short questions in each third of a lease";
  EXPECT_GT(asked("etcd1") + asked("etcd2") + asked("etcd3"), 0u);
}

TEST_F(RendezvousEtcdTest, ItsEndInTheMiddleOfAnyStepLeavesNothing) {
  for (Nanos after = 0; after < 40 * kMillisecond; after += kMillisecond / 2) {
    Joiner& joiner = add(0, 1);
    pass(after);
    joiner.leave();
    pass(8 * kSecond);
    for (const auto& [key, entry] : etcd().entries()) EXPECT_TRUE(key.ends_with("/group")) << key;
    meeting().joiners.clear();
  }
}

// Members are killed, stopped and lost, servers are mute, answers get lost: a generation of a name is given once, and
// in the end each rank has one holder.
TEST(RendezvousEtcd, MembersAndServersComeAndGoAtAnyMoment) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Meeting meeting(kUri, seed);
    sim::SimScheduler& scheduler = meeting.scheduler;
    std::vector<Joiner*> now;
    for (int32_t rank = 0; rank < 3; ++rank) now.push_back(&meeting.add(rank, 3, 60 * kSecond));
    for (Joiner* joiner : now) ASSERT_TRUE(joiner->succeeds());
    meeting.etcd.loses_answer = [&scheduler](const std::string&) { return scheduler.chance(0.1); };
    const char* const servers[] = {"etcd1:2379", "etcd2:2379", "etcd3:2379"};
    for (int event = 0; event < 12; ++event) {
      Joiner*& one = now[1 + scheduler.below(2)];  // the first one lives, so that the group does
      const auto rank = one->request().self.rank;
      switch (scheduler.below(4)) {
        case 0:
          one->kill();
          if (scheduler.chance(0.5)) now[0]->on_gone(one->request().self.incarnation);
          one = &meeting.add(rank, 3, 60 * kSecond);
          break;
        case 1:
          one->loop().freeze();
          scheduler.run_for(scheduler.between(kSecond, 12 * kSecond));
          one->loop().thaw();
          break;
        case 2:
          now[0]->on_gone(one->request().self.incarnation);
          break;
        default:
          meeting.etcd.mute = {servers[scheduler.below(3)], servers[scheduler.below(3)]};
      }
      scheduler.run_for(scheduler.between(0, 4 * kSecond));
    }
    meeting.etcd.mute.clear();
    meeting.etcd.loses_answer = nullptr;
    scheduler.run_for(20 * kSecond);
    std::map<std::pair<std::string, uint64_t>, Incarnation> given;
    for (const auto& joiner : meeting.joiners) {
      if (!joiner->is_done() || !joiner->outcome().ok) continue;
      for (const Peer& peer : joiner->outcome().members) {
        const auto place = given.try_emplace({peer.name, peer.generation}, peer.incarnation).first;
        EXPECT_EQ(place->second, peer.incarnation) << peer.name << " " << peer.generation;
      }
    }
    for (Joiner* joiner : now) EXPECT_TRUE(joiner->succeeds());
    EXPECT_EQ(meeting.etcd.entries().size(), 4u);
    EXPECT_EQ(meeting.add(1, 3, 20 * kSecond).error().status(), Status::kInvalidState);
  }
}

// ---- answers that are none ----

TEST_F(RendezvousEtcdTest, AServerThatIsNoEtcdIsPassedOver) {
  etcd().garbage = {{"etcd1:2379", "<html>hello</html>"}, {"etcd2:2379", "{\"header\":{\"revision\":\"x\"}}"}};
  start_two();
}

TEST_F(RendezvousEtcdTest, WithoutAServerThatIsEtcdItFailsAtOnce) {
  for (const std::string body :
       {"", "null", "[]", "{}", "\xff", "{\"ID\":\"-3\",\"TTL\":\"5\"}", "{\"ID\":[],\"TTL\":5}",
        "{\"ID\":\"9223372036854775808\",\"TTL\":\"5\"}", "{\"ID\":\"7\",\"TTL\":\"99999\"}"}) {
    for (const char* server : {"etcd1:2379", "etcd2:2379", "etcd3:2379"}) etcd().garbage[server] = body;
    Joiner& joiner = add(0, 2);
    EXPECT_EQ(joiner.error().status(), Status::kProtocol) << body;
    EXPECT_TRUE(has(joiner.error().message(), "its answer is not one of etcd v3")) << joiner.error().message();
  }
}

TEST_F(RendezvousEtcdTest, ARecordThatIsNoneIsNamed) {
  for (const std::string value :
       {"", "not json", "{}", "{\"job\":\"job\",\"protocol\":1,\"world_size\":2,\"book\":7}"}) {
    etcd().put("/jobs/train/group", value);
    Joiner& joiner = add(0, 2);
    EXPECT_EQ(joiner.error().status(), Status::kProtocol) << value;
  }
  etcd().erase("/jobs/train/group");
  for (const std::string key : {"x", "000000000000000g", "0000000000000000", "00000000000000AB", "1"}) {
    etcd().put("/jobs/train/member/" + key, "");
    Joiner& joiner = add(0, 2);
    EXPECT_EQ(joiner.error().status(), Status::kProtocol) << key;
    EXPECT_TRUE(has(joiner.error().message(), "keys of something else")) << joiner.error().message();
    etcd().erase("/jobs/train/member/" + key);
  }
  meeting().joiners.clear();
  start_two();
}

TEST_F(RendezvousEtcdTest, AMemberThatNobodyCanDialIsRefused) {
  JoinRequest request = meeting().request(0, 1);
  request.self.endpoint = "nowhere";
  EXPECT_FALSE(meeting().add(std::move(request)).error().message().empty());
  EXPECT_TRUE(etcd().entries().empty());
  Joiner& first = add(0, 2, 60 * kSecond);
  pass(100 * kMillisecond);
  std::string record = etcd().entries().at("/jobs/train/group").value;
  record.replace(record.find("sim://w0"), 8, "nowhere!");
  etcd().put("/jobs/train/group", record);
  Joiner& second = add(1, 2);
  EXPECT_EQ(second.error().status(), Status::kProtocol);
  EXPECT_TRUE(has(second.error().message(), "the endpoint of worker \"w0\" is invalid")) << second.error().message();
  first.leave();
}

TEST_F(RendezvousEtcdTest, ARecordWithThisWorkerUnderAnotherNameIsNotBelieved) {
  Joiner& first = add(0, 2, 60 * kSecond);
  pass(100 * kMillisecond);
  std::string record = etcd().entries().at("/jobs/train/group").value;
  for (size_t at = 0; (at = record.find("\"w0\"")) != std::string::npos;) record.replace(at, 4, "\"w9\"");
  etcd().put("/jobs/train/group", record);
  EXPECT_TRUE(add(1, 2).succeeds());
  EXPECT_EQ(first.error().status(), Status::kProtocol);
  EXPECT_TRUE(has(first.error().message(), "is not that of our group")) << first.error().message();
}

// ---- users ----

class EtcdUserTest : public RendezvousEtcdTest {
 protected:
  EtcdUserTest() {
    etcd().user = "distag";
    etcd().password = "a secret";
    path_ = ::testing::TempDir() + fmt::format("distag_etcd_password_{:x}", SystemRandom().next());
    EXPECT_TRUE(create_private_file(path_, "a secret\n"));
  }
  ~EtcdUserTest() override { std::remove(path_.c_str()); }
  void log_in(const std::string& user) {
    meeting_near_.environment = {{"DISTAG_ETCD_USER", user}, {"DISTAG_ETCD_PASSWORD_FILE", path_}};
    meeting_near_.etcd.user = etcd().user;
    meeting_near_.etcd.password = etcd().password;
  }

  std::string path_;
  Meeting meeting_near_{"etcd://127.0.0.1:2379/jobs/train"};
};

TEST_F(EtcdUserTest, WithItsPasswordItComesInAlsoOnceItsTokenIsForgotten) {
  log_in("distag");
  Joiner& first = meeting_near_.add(0, 2, 60 * kSecond);
  meeting_near_.scheduler.run_for(kSecond);
  meeting_near_.etcd.tokens.clear();
  EXPECT_TRUE(meeting_near_.add(1, 2).succeeds());
  EXPECT_TRUE(first.succeeds());
  meeting_near_.etcd.tokens.clear();
  meeting_near_.scheduler.run_for(20 * kSecond);
  EXPECT_EQ(meeting_near_.etcd.entries().size(), 3u);
}

TEST_F(EtcdUserTest, AWrongPasswordIsDeniedAtOnceAndNotRepeated) {
  log_in("distag");
  meeting_near_.etcd.password = "another one";
  Joiner& joiner = meeting_near_.add(0, 2);
  EXPECT_EQ(text(joiner.error()),
            "DENIED: rendezvous \"etcd://127.0.0.1:2379/jobs/train\": http://127.0.0.1:2379: etcdserver: "
            "authentication failed, invalid user ID or password");
}

TEST_F(EtcdUserTest, WithoutAUserItIsToldHowToNameOne) {
  Joiner& joiner = add(0, 2);
  EXPECT_EQ(joiner.error().status(), Status::kDenied);
  EXPECT_TRUE(has(joiner.error().message(), "set DISTAG_ETCD_USER and DISTAG_ETCD_PASSWORD_FILE"));
}

}  // namespace
}  // namespace distag
