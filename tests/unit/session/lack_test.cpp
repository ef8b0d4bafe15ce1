#include "session/lack.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "session_harness.h"

namespace distag {
namespace {

constexpr Nanos kLackLease = 5 * kSecond;

// ---- one lack ----

TEST(OneLackTest, LastsFromTheFirstAttemptThatFailsToTheFirstThatDoesNot) {
  Lack lack;
  EXPECT_FALSE(lack.is_there(0));
  EXPECT_FALSE(lack.was_there_since(0));
  lack.note(Error(Status::kOutOfMemory, "first"), 10 * kSecond);
  lack.note(Error(Status::kOutOfMemory, "second"), 12 * kSecond);
  EXPECT_EQ(lack.since(), 10 * kSecond);
  EXPECT_EQ(lack.last(), 12 * kSecond);
  EXPECT_EQ(lack.error().message(), "second");
  EXPECT_TRUE(lack.is_there(1000 * kSecond));
  lack.end();
  EXPECT_FALSE(lack.is_there(12 * kSecond));
  EXPECT_TRUE(lack.was_there_since(11 * kSecond));
  EXPECT_FALSE(lack.was_there_since(12 * kSecond));
  lack.note(Error(Status::kOutOfMemory, "another"), 13 * kSecond);
  EXPECT_EQ(lack.since(), 13 * kSecond);
}

TEST(OneLackTest, IsOverWhereNoAttemptFailsForItsPatience) {
  Lack lack(kSecond);
  lack.note(Error(Status::kOutOfMemory, "first"), 10 * kSecond);
  EXPECT_TRUE(lack.is_there(10 * kSecond + kSecond / 2));
  EXPECT_FALSE(lack.is_there(11 * kSecond));
  lack.note(Error(Status::kOutOfMemory, "another"), 11 * kSecond);
  EXPECT_EQ(lack.since(), 11 * kSecond);
}

TEST(OneLackTest, TheTimeOfAnAttemptIsOneOfTheLackOnceItHasFailed) {
  Lack lack;
  lack.try_again(kSecond);
  EXPECT_EQ(lack.take_time(2 * kSecond), 0);
  lack.note(Error(Status::kOutOfMemory, "no ports"), 10 * kSecond);
  lack.try_again(11 * kSecond);
  EXPECT_EQ(lack.take_time(15 * kSecond), kSecond);
  lack.note(Error(Status::kOutOfMemory, "no ports"), 16 * kSecond);
  EXPECT_EQ(lack.take_time(16 * kSecond), 5 * kSecond);
  lack.try_again(17 * kSecond);
  lack.end_attempt();
  EXPECT_FALSE(lack.is_unmet());
  EXPECT_EQ(lack.take_time(30 * kSecond), kSecond);
}

TEST(OneLackTest, IsNotOverByAnAttemptThatHasFailed) {
  Lack lack;
  lack.note(Error(Status::kOutOfMemory, "no memory"), 10 * kSecond);
  lack.end_attempt();
  EXPECT_TRUE(lack.is_there(11 * kSecond));
  lack.try_again(11 * kSecond);
  lack.note(Error(Status::kOutOfMemory, "no memory"), 11 * kSecond);
  lack.end_attempt();
  EXPECT_TRUE(lack.is_there(12 * kSecond));
}

TEST(OneLackTest, TellsTheTimeThatItTookOnce) {
  Lack lack;
  EXPECT_EQ(lack.take_time(10 * kSecond), 0);
  lack.note(Error(Status::kOutOfMemory, "no descriptors"), 20 * kSecond);
  EXPECT_EQ(lack.take_time(21 * kSecond), kSecond);
  EXPECT_EQ(lack.take_time(21 * kSecond), 0);
  lack.note(Error(Status::kOutOfMemory, "no descriptors"), 22 * kSecond);
  EXPECT_EQ(lack.take_time(24 * kSecond), 3 * kSecond);
  lack.end();
  EXPECT_EQ(lack.take_time(30 * kSecond), 0);
  lack.note(Error(Status::kOutOfMemory, "no descriptors"), 40 * kSecond);
  EXPECT_EQ(lack.take_time(41 * kSecond), kSecond);
}

// ---- of two workers ----

class LackTest : public PairOfSessions {
 protected:
  bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
  void expect_told(const char* cure) {
    ASSERT_FALSE(a.lacks.empty());
    EXPECT_EQ(a.lacks.front().peer, b.id());
    EXPECT_FALSE(a.lacks.front().is_long);
    EXPECT_TRUE(a.lacks.back().is_long);
    EXPECT_EQ(a.lacks.back().lack.status(), Status::kOutOfMemory);
    EXPECT_TRUE(has(a.lacks.back().lack.message(), cure)) << a.lacks.back().lack.message();
  }
};

TEST_F(LackTest, WithoutDescriptorsForAFirstDialNobodyIsLostHoweverLongItLasts) {
  network.set_short("a", true);
  a.say(b, 1);
  scheduler.run_for(20 * kLackLease);
  EXPECT_TRUE(a.lost.empty()) << a.lost[0].second.message();
  expect_told("ulimit -n");
  network.set_short("a", false);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1 && a.is_drained(); }, kSecond));
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  EXPECT_EQ(a.lack_text(b), "");
  const size_t told = a.lacks.size();
  scheduler.run_for(4 * kLackLease);
  EXPECT_EQ(a.lacks.size(), told);
}

TEST_F(LackTest, WithoutLocalPortsNobodyIsLostHoweverLongItLasts) {
  network.set_without_ports("a", true);
  a.say(b, 1);
  scheduler.run_for(20 * kLackLease);
  EXPECT_TRUE(a.lost.empty()) << a.lost[0].second.message();
  expect_told("ip_local_port_range");
  network.set_without_ports("a", false);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 1 && a.is_drained(); }, kSecond));
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

TEST_F(LackTest, IsToldSoonAndNamedForADeadlineAtOnce) {
  EXPECT_EQ(a.lack_text(b), "");
  network.set_short("a", true);
  a.say(b, 1);
  scheduler.run_for(kLackLease / 100);
  EXPECT_TRUE(has(a.lack_text(b), "worker \"b\" (rank 1)")) << a.lack_text(b);
  EXPECT_TRUE(has(a.lack_text(b), "ulimit -n")) << a.lack_text(b);
  scheduler.run_for(kLackLease * 6 / 10);
  ASSERT_FALSE(a.lacks.empty());
  EXPECT_FALSE(a.lacks.back().is_long);
}

// The other side hears nothing and gives up by its own lease, rightly.
TEST_F(LackTest, WhoComesBackAfterTheOtherGaveItUpLosesItAndNamesTheLack) {
  meet();
  network.set_short("a", true);
  network.cut_all();
  scheduler.run_for(6 * kLackLease);
  EXPECT_TRUE(a.lost.empty()) << a.lost[0].second.message();
  ASSERT_EQ(b.lost.size(), 1u);
  EXPECT_EQ(b.lost[0].second.status(), Status::kDisconnected);
  network.set_short("a", false);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kLackLease));
  const std::string why = a.lost[0].second.message();
  EXPECT_EQ(a.lost[0].second.status(), Status::kDisconnected);
  EXPECT_TRUE(has(why, "it refused this worker")) << why;
  EXPECT_TRUE(has(why, "this worker could not reach it for")) << why;
  EXPECT_TRUE(has(why, "ulimit -n")) << why;
}

// The time of the lack is no part of the lease, and what was before and comes after it is.
TEST_F(LackTest, APeerThatIsGoneOnceThereIsRoomIsLostByItsLease) {
  network.set_short("a", true);
  a.say(b, 1);
  scheduler.run_for(6 * kLackLease);
  network.part("a", "b");
  network.set_short("a", false);
  EXPECT_FALSE(run_until([&] { return !a.lost.empty(); }, kLackLease * 9 / 10));
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kLackLease / 2));
}

// The peer owes for 0.7 leases when the lack begins; then each tick is late by a fifth of a lease.
TEST_F(LackTest, InALoopThatIsLateIsExcusedOnce) {
  meet();
  network.part("a", "b");
  a.say(b, 2);
  scheduler.run_for(kLackLease * 7 / 10);
  network.cut_all();
  network.set_short("a", true);
  for (int i = 0; i < 6; ++i) {
    scheduler.run_for(kLackLease * 24 / 100);
    a.loop.freeze();
    scheduler.run_for(kLackLease * 21 / 100);
    a.loop.thaw();
  }
  EXPECT_TRUE(a.lost.empty());
  network.set_short("a", false);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, kLackLease * 8 / 10));
}

TEST_F(LackTest, LacksThatComeAndGoDoNotKeepAPeerThatIsGone) {
  meet();
  network.part("a", "b");
  a.say(b, 2);
  const Nanos begin = scheduler.now();
  for (int i = 0; i < 40 && a.lost.empty(); ++i) {
    scheduler.run_for(kLackLease / 5);
    network.cut_all();
    network.set_short("a", true);
    scheduler.run_for(kLackLease / 20);
    network.set_short("a", false);
  }
  EXPECT_EQ(a.lost.size(), 1u);
  EXPECT_GE(scheduler.now() - begin, kLackLease);
  EXPECT_LT(scheduler.now() - begin, 3 * kLackLease);
}

TEST_F(LackTest, ShortLacksAreNoLongOne) {
  meet();
  for (int i = 0; i < 20; ++i) {
    network.set_short("a", true);
    network.hang_up("a", "b");
    a.say(b, 2);
    scheduler.run_for(kLackLease / 5);
    network.set_short("a", false);
    ASSERT_TRUE(run_until([&] { return a.is_drained(); }, kLackLease / 5)) << i;
  }
  EXPECT_TRUE(a.lost.empty());
  EXPECT_TRUE(a.lacks.empty());
}

// Two workers with leases of their own.
class TwoLeasesTest : public testing::Test {
 protected:
  void make(Nanos lease, Nanos lease_of_other) {
    SessionConfig config;
    config.lease = lease;
    a.emplace(scheduler, network, "a", 0, config);
    config.lease = lease_of_other;
    b.emplace(scheduler, network, "b", 1, config);
    a->know(*b);
    b->know(*a);
  }

  SimScheduler scheduler{1};
  SimNetwork network{scheduler};
  std::optional<Node> a, b;
};

// A shortage of memory is over, and nothing has shown that: a peer that takes no more is not excused by it.
TEST_F(LackTest, OfMemoryDoesNotKeepAPeerThatTakesNoMore) {
  meet();
  network.set_without_memory("a", true);
  a.say(b, 2);
  network.part("a", "b");
  network.set_without_memory("a", false);
  network.faults.capacity = 0;
  a.say(b, 3);
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, 3 * kLackLease));
}

TEST_F(LackTest, OfMemoryIsOverOnceASendGoesWell) {
  meet();
  network.set_without_memory("a", true);
  a.say(b, 2);
  scheduler.run_for(10 * kLackLease);
  EXPECT_TRUE(a.lost.empty()) << a.lost[0].second.message();
  network.set_without_memory("a", false);
  ASSERT_TRUE(run_until([&] { return b.heard.size() == 2 && a.is_drained(); }, kLackLease));
  EXPECT_EQ(a.lack_text(b), "");
}

// ---- of the other one, which hears this one and cannot dial it ----

class LackOfOtherTest : public TwoLeasesTest {
 protected:
  void begin(Nanos lease, Nanos lease_of_other) {
    make(lease, lease_of_other);
    network.set_mute("b", true);
    a->say(*b, 1);
  }
  void expect_told() {
    ASSERT_TRUE(scheduler.run_until([this] { return !a->lacks.empty(); }, 2 * kLackLease));
    EXPECT_TRUE(a->lacks[0].is_long);
    EXPECT_EQ(a->lacks[0].peer, b->id());
    EXPECT_EQ(a->lacks[0].lack.status(), Status::kOutOfMemory);
    const std::string text = a->lacks[0].lack.message();
    EXPECT_NE(text.find("worker \"b\" (rank 1) cannot answer, as it says: no descriptors"), std::string::npos) << text;
    EXPECT_NE(text.find("ulimit -n"), std::string::npos) << text;
  }
  void expect_room() {
    b->say(*a, 7);
    network.set_mute("b", false);
    ASSERT_TRUE(scheduler.run_until([this] { return !a->heard.empty() && b->is_drained(); }, kSecond));
    EXPECT_EQ(a->lack_text(*b), "");
    a->lacks.clear();
    scheduler.run_for(4 * kLackLease);
    EXPECT_TRUE(a->lacks.empty());
    EXPECT_EQ(a->heard, std::vector<uint64_t>{7});
    EXPECT_TRUE(a->lost.empty() && b->lost.empty());
  }
};

TEST_F(LackOfOtherTest, IsToldByItAndGivesUpNobodyHoweverLongItLasts) {
  begin(kLackLease, kLackLease);
  scheduler.run_for(kSecond);
  EXPECT_EQ(b->heard, std::vector<uint64_t>{1});
  EXPECT_TRUE(a->is_drained());
  EXPECT_NE(a->lack_text(*b).find("cannot answer, as it says"), std::string::npos) << a->lack_text(*b);
  expect_told();
  scheduler.run_for(20 * kLackLease);
  EXPECT_TRUE(a->lost.empty()) << a->lost[0].second.message();
  EXPECT_TRUE(b->lost.empty()) << b->lost[0].second.message();
  expect_room();
}

TEST_F(LackOfOtherTest, IsToldByTheOwnLeaseWhateverThatOfTheOtherIs) {
  begin(kLackLease, 1000 * kLackLease);
  expect_told();
  expect_room();
}

// Worker "b" has no descriptor to accept "a" again either: nothing makes "a" dial again.
TEST_F(LackOfOtherTest, WhatIsSentIsAcknowledgedAllTheSame) {
  begin(kLackLease, kLackLease);
  scheduler.run_for(kSecond);
  network.set_short("b", true);
  const uint64_t dials = a->session->stats().messages_replayed + network.traffic().dials;
  for (uint64_t i = 2; i < 42; ++i) {
    a->say(*b, i);
    scheduler.run_for(kLackLease / 2);
    EXPECT_TRUE(a->is_drained());
  }
  EXPECT_EQ(b->heard, count_to(41));
  EXPECT_TRUE(a->lost.empty()) << a->lost[0].second.message();
  EXPECT_EQ(a->session->stats().messages_replayed + network.traffic().dials, dials);
  network.set_short("b", false);
  expect_room();
}

// A message arrives right before "b" can no longer be dialled: "b" acknowledged it on the connection that then dropped,
// or was about to. Nothing else is sent by "b".
TEST_F(LackOfOtherTest, WhatCameRightBeforeIsAcknowledgedAllTheSame) {
  for (Nanos before = 0; before < 20 * kMillisecond; before += kMillisecond) {
    SimScheduler clock(1 + static_cast<uint64_t>(before));
    SimNetwork links(clock);
    SessionConfig config;
    config.lease = kLackLease;
    Node caller(clock, links, "a", 0, config);
    Node callee(clock, links, "b", 1, config);
    caller.know(callee);
    callee.know(caller);
    caller.say(callee, 1);
    callee.say(caller, 1);
    ASSERT_TRUE(clock.run_until([&] { return caller.is_drained() && callee.is_drained(); }, kSecond));
    links.set_mute("b", true);
    links.hang_up("b", "a");
    caller.say(callee, 2);
    clock.run_for(before);
    links.set_short("b", true);
    clock.run_for(20 * kLackLease);
    EXPECT_EQ(callee.heard, (std::vector<uint64_t>{1, 2})) << before;
    EXPECT_TRUE(caller.lost.empty()) << before << ": " << caller.lost[0].second.message();
    EXPECT_TRUE(callee.lost.empty()) << before << ": " << callee.lost[0].second.message();
  }
}

TEST_F(LackOfOtherTest, ThatIsGoneMeanwhileIsLostByTheLease) {
  begin(kLackLease, kLackLease);
  scheduler.run_for(3 * kLackLease);
  network.part("a", "b");
  ASSERT_TRUE(scheduler.run_until([this] { return !a->lost.empty(); }, 2 * kLackLease));
  const std::string why = a->lost[0].second.message();
  EXPECT_NE(why.find("it has acknowledged nothing for"), std::string::npos) << why;
}

TEST_F(LackOfOtherTest, ThatDiesMeanwhileIsLostAtOnce) {
  begin(kLackLease, kLackLease);
  scheduler.run_for(3 * kLackLease);
  network.kill("b");
  ASSERT_TRUE(scheduler.run_until([this] { return !a->lost.empty(); }, kLackLease / 2));
  const std::string why = a->lost[0].second.message();
  EXPECT_NE(why.find("two redials were refused; it could not answer, as it said,"), std::string::npos) << why;
}

TEST_F(LackOfOtherTest, KeepsNoLeaveWaiting) {
  begin(kLackLease, kLackLease);
  scheduler.run_for(kSecond);
  bool has_left = false;
  a->loop.run([&] { a->session->leave(scheduler.now() + 10 * kLackLease, [&has_left] { has_left = true; }); });
  EXPECT_TRUE(scheduler.run_until([&has_left] { return has_left; }, kSecond));
  ASSERT_TRUE(scheduler.run_until([this] { return !b->left.empty(); }, kSecond));
}

// ---- of one that cannot be dialled ----

class DeafnessTest : public TwoLeasesTest {
 protected:
  // Two that have met; then `a` can dial, and cannot accept who dials it.
  void begin(Nanos lease, Nanos lease_of_other) {
    make(lease, lease_of_other);
    a->say(*b, 1);
    b->say(*a, 1);
    ASSERT_TRUE(scheduler.run_until([this] { return a->heard.size() == 1 && b->heard.size() == 1; }, kSecond));
    network.set_deaf("a", true);
    network.cut_all();
    a->say(*b, 2);
  }
};

TEST_F(DeafnessTest, WhoCannotAcceptTheOtherDoesNotGiveItUp) {
  begin(kSecond, 600 * kSecond);
  scheduler.run_for(20 * kSecond);
  EXPECT_EQ(b->heard.size(), 2u);
  EXPECT_TRUE(a->lost.empty()) << a->lost[0].second.message();
  EXPECT_NE(a->lack_text(*b).find("worker \"b\" (rank 1) may not be heard from here"), std::string::npos)
      << a->lack_text(*b);
  EXPECT_NE(a->lack_text(*b).find("ulimit -n"), std::string::npos) << a->lack_text(*b);
  network.set_deaf("a", false);
  ASSERT_TRUE(scheduler.run_until([this] { return a->is_drained(); }, 5 * kSecond));
  EXPECT_TRUE(a->lost.empty() && b->lost.empty());
  scheduler.run_for(2 * kSecond);
  EXPECT_EQ(a->lack_text(*b), "");
}

// Strangers keep it deaf for ever; the peer that it waits for is gone.
TEST_F(DeafnessTest, WhoIsGoneIsLostByItsLeaseAllTheSame) {
  begin(kLackLease, kLackLease);
  Node stranger(scheduler, network, "c", 2);
  stranger.know(*a);
  stranger.say(*a, 1);
  scheduler.run_for(kLackLease / 10);
  network.part("a", "b");
  const Nanos begin = scheduler.now();
  ASSERT_TRUE(scheduler.run_until([this] { return !a->lost.empty(); }, 2 * kLackLease));
  EXPECT_GE(scheduler.now() - begin, kLackLease / 2);
}

TEST_F(DeafnessTest, OfStrangersAloneIsNoLackOfAPeerThatIsHeard) {
  begin(kLackLease, kLackLease);
  network.set_deaf("a", false);
  scheduler.run_for(kLackLease);
  network.set_deaf("a", true);
  SessionConfig config;
  config.lease = 1000 * kLackLease;
  Node stranger(scheduler, network, "c", 2, config);
  stranger.know(*a);
  stranger.say(*a, 1);
  scheduler.run_for(20 * kLackLease);
  EXPECT_TRUE(a->lacks.empty()) << a->lacks[0].lack.message();
  EXPECT_TRUE(a->lost.empty() && b->lost.empty());
}

TEST_F(DeafnessTest, EndsTheCallsThatNoAnswerOfThePeerReaches) {
  begin(kLackLease, 1000 * kLackLease);
  ASSERT_TRUE(scheduler.run_until([this] { return !a->lacks.empty(); }, 3 * kLackLease));
  EXPECT_TRUE(a->lacks[0].is_long);
  const std::string text = a->lacks[0].lack.message();
  EXPECT_NE(text.find("worker \"b\" (rank 1) may not be heard from here"), std::string::npos) << text;
}

// As a peer that still says something, it has four leases.
TEST_F(DeafnessTest, TheOtherGivesItUpByItsLeaseAndTheLossNamesTheLack) {
  begin(kLackLease, kLackLease);
  ASSERT_TRUE(scheduler.run_until([this] { return !a->lost.empty(); }, 8 * kLackLease));
  const std::string why = a->lost[0].second.message();
  EXPECT_EQ(a->lost[0].second.status(), Status::kDisconnected);
  EXPECT_NE(why.find("it refused this worker"), std::string::npos) << why;
  EXPECT_NE(why.find("this worker could not hear others for"), std::string::npos) << why;
  EXPECT_NE(why.find("ulimit -n"), std::string::npos) << why;
}

}  // namespace
}  // namespace distag
