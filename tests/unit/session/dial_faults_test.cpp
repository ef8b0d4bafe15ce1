// Outcomes of a first dial that does not end well: whether it waits in the line again, how long the peer has then, and
// what changes when the peer or this worker leaves.
#include <gtest/gtest.h>

#include "first_dials_harness.h"

namespace distag {
namespace {

class DialFaultsTest : public FirstDialsTest {
 protected:
  DialFaultsTest() {
    make();
    begin = scheduler->now();
  }

  static constexpr size_t kLast = kOthers - 1;
  static Nanos leases(double number) { return static_cast<Nanos>(number * kDialLease); }
  // Since the first message of a, with which its ticks begin, a quarter of a lease apart.
  void run_to(double moment) { scheduler->run_for(begin + leases(moment) - scheduler->now()); }
  bool is_heard_by(size_t i) const { return !others[i]->heard.empty(); }
  uint64_t dials() const { return network->traffic().dials; }
  bool has_lost(size_t i) const {
    return std::any_of(a->lost.begin(), a->lost.end(),
                       [id = others[i]->id()](const auto& loss) { return loss.first == id; });
  }
  void hang_up(size_t i) { network->hang_up("a", name_of(i)); }
  void fence(size_t i) {
    a->loop.run([&] { a->session->fence(others[i]->id(), Error(Status::kDisconnected, "no more")); });
  }
  // The last one has its turn at 1.75 leases, for the second time: it was silent for three quarters of one, and waited.
  void let_last_wait() {
    network->let_drip(name_of(kLast), 0);
    a->say(*others[kLast], 1);
    run_to(0.7);
    fill_line(leases(0.1));
    run_to(1.74);
    ASSERT_FALSE(has_lost(kLast));
    ASSERT_EQ(dials(), DialLine::kAtOnce + 1);
  }

  Nanos begin = 0;
};

// ---- time after the line ----

TEST_F(DialFaultsTest, APeerThatHadToWaitHasTimeAnewForItsHandshake) {
  let_last_wait();
  network->stop_drip(name_of(kLast));
  network->set_deaf(name_of(kLast), true);
  run_to(2.05);
  network->set_deaf(name_of(kLast), false);
  ASSERT_TRUE(run_until([&] { return is_heard_by(kLast); }, leases(0.1)));
  EXPECT_FALSE(has_lost(kLast));
}

TEST_F(DialFaultsTest, APeerThatHadToWaitHasTimeAnewForItsWelcome) {
  let_last_wait();
  network->stop_drip(name_of(kLast));
  others[kLast]->loop.freeze();
  run_to(2.05);
  others[kLast]->loop.thaw();
  ASSERT_TRUE(run_until([&] { return is_heard_by(kLast); }, leases(0.1)));
  EXPECT_FALSE(has_lost(kLast));
}

TEST_F(DialFaultsTest, ThatTimeIsLessThanHalfALease) {
  let_last_wait();
  run_to(2.1);
  EXPECT_FALSE(has_lost(kLast));
  run_to(2.3);
  EXPECT_TRUE(has_lost(kLast));
}

TEST_F(DialFaultsTest, APeerThatDidNotHaveToWaitHasNoTimeAnew) {
  a->say(*others[0], 1);
  run_to(0.125);
  network->let_drip(name_of(kLast), 0);
  a->say(*others[kLast], 1);
  run_to(0.9);
  const uint64_t before = dials();
  run_to(1.2);
  EXPECT_EQ(dials(), before + 1) << "it is dialled a second time after a lease";
  EXPECT_FALSE(has_lost(kLast));
  run_to(1.3);
  EXPECT_TRUE(has_lost(kLast));
}

// ---- back into the line, or past it ----

TEST_F(DialFaultsTest, AHandshakeThatDropsLateGoesBackIntoTheLine) {
  fill_line(leases(0.1));
  network->let_drip(name_of(8), leases(0.1));
  a->say(*others[8], 1);
  run_to(0.4);
  network->stop_drip(name_of(0));
  hang_up(0);
  for (size_t i = 1; i < DialLine::kAtOnce; ++i) fence(i);
  run_to(0.5);
  EXPECT_EQ(dials(), DialLine::kAtOnce + 1) << "the ninth has its turn, and while handshakes are slow it alone";
  EXPECT_FALSE(is_heard_by(0));
  fence(8);
  ASSERT_TRUE(run_until([&] { return is_heard_by(0); }, leases(0.1)));
}

TEST_F(DialFaultsTest, AHandshakeThatDropsSoonIsDialledPastTheLine) {
  fill_line(leases(0.1));
  for (const size_t waiting : {8u, 9u}) {
    network->let_drip(name_of(waiting), leases(0.1));
    a->say(*others[waiting], 1);
  }
  run_to(0.1);
  network->stop_drip(name_of(0));
  hang_up(0);
  ASSERT_TRUE(run_until([&] { return is_heard_by(0); }, leases(0.1)));
  EXPECT_EQ(dials(), DialLine::kAtOnce + 3) << "one of those that wait has its turn, and it has dialled itself";
}

TEST_F(DialFaultsTest, AHandshakeThatStallsGoesBackIntoTheLineHoweverItWasDialled) {
  a->say(*others[kLast - 1], 1);
  run_to(0.2);
  network->let_drip(name_of(kLast), 0);
  a->say(*others[kLast], 1);
  run_to(0.22);
  hang_up(kLast);
  run_to(0.9);
  fill_line(leases(0.1));
  network->stop_drip(name_of(kLast));
  const uint64_t before = dials();
  run_to(1.5);
  EXPECT_EQ(dials(), before);
  EXPECT_FALSE(is_heard_by(kLast));
  ASSERT_TRUE(run_until([&] { return is_heard_by(kLast); }, leases(0.6)));
}

TEST_F(DialFaultsTest, AConnectionThatWasOpenIsDialledPastTheLine) {
  a->say(*others[kLast], 1);
  run_to(0.01);
  ASSERT_TRUE(is_heard_by(kLast));
  fill_line(leases(0.1));
  hang_up(kLast);
  a->say(*others[kLast], 2);
  run_to(0.1);
  EXPECT_EQ(others[kLast]->heard, count_to(2));
}

// The bytes of each handshake come and end between two ticks.
TEST_F(DialFaultsTest, WhatCameOfAHandshakeBeforeItDroppedCounts) {
  network->let_drip(name_of(0), leases(0.1));
  a->say(*others[0], 1);
  for (double tick = 0; tick < 6 && a->lost.empty(); tick += 0.25) {
    run_to(tick + 0.18);
    hang_up(0);
    run_to(tick + 0.25);
  }
  ASSERT_TRUE(has_lost(0));
  EXPECT_GE(scheduler->now() - begin, leases(4));
}

// The peer has had its turn; after that, all ticks are late.
TEST_F(DialFaultsTest, BytesOfAHandshakePastItsTurnAreSeenInTicksThatAreLate) {
  network->let_drip(name_of(0), leases(0.1));
  a->say(*others[0], 1);
  run_to(1.25);
  scheduler->run_for(kMillisecond);
  for (int i = 0; i < 8; ++i) {
    scheduler->run_for(leases(0.25) - 2 * kMillisecond);
    a->loop.freeze();
    scheduler->run_for(leases(0.1));
    a->loop.thaw();
    scheduler->run_for(kMillisecond);
  }
  EXPECT_EQ(dials(), 1u);
  EXPECT_FALSE(has_lost(0));
}

// ---- one that leaves ----

TEST_F(DialFaultsTest, APeerThatWasToldIsNotDialledForItsLeave) {
  fill_line(leases(0.1));
  others[kLast]->say(*a, 1);
  bool done = false;
  others[kLast]->loop.run([&] { others[kLast]->session->leave(kNever, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }, leases(0.1)));
  run_to(1.5);
  EXPECT_EQ(dials(), DialLine::kAtOnce + 1) << "and its own";
}

// No answer to LEAVE finds room on the connections of those that say it.
TEST_F(DialFaultsTest, PeersThatLeaveUntoldGiveTheirTurnsBack) {
  fill_line(leases(0.1));
  for (size_t i = 0; i < DialLine::kAtOnce; ++i) others[i]->say(*a, 1);
  ASSERT_TRUE(run_until(
      [&] {
        return std::all_of(others.begin(), others.begin() + 8, [](const auto& one) { return one->is_drained(); });
      },
      leases(0.1)));
  for (size_t i = 0; i < DialLine::kAtOnce; ++i) {
    others[i]->loop.run([&, i] { others[i]->session->leave(kNever, [] {}); });
  }
  network->faults.capacity = 0;
  ASSERT_TRUE(run_until([&] { return a->left.size() == DialLine::kAtOnce; }, leases(0.1)));
  network->faults.capacity = 1000;
  a->say(*others[kLast], 1);
  ASSERT_TRUE(run_until([&] { return is_heard_by(kLast); }, leases(0.02)));
}

TEST_F(DialFaultsTest, APeerInTheLineThatLeavesUntoldIsDialledToBeTold) {
  fill_line(leases(0.1));
  others[kLast]->say(*a, 1);
  ASSERT_TRUE(run_until([&] { return others[kLast]->is_drained(); }, leases(0.1)));
  bool done = false;
  others[kLast]->loop.run([&] { others[kLast]->session->leave(kNever, [&done] { done = true; }); });
  network->faults.capacity = 0;
  ASSERT_TRUE(run_until([&] { return a->left.size() == 1; }, leases(0.1)));
  network->faults.capacity = 1000;
  ASSERT_TRUE(run_until([&] { return done; }, leases(0.1)));
}

// Peers for which messages wait have had their turn.
TEST_F(DialFaultsTest, AnEndHurriesPeersThatWaitInTheLine) {
  for (size_t i = 0; i < 2 * DialLine::kAtOnce; ++i) {
    network->let_drip(name_of(i), leases(0.1));
    if (i < DialLine::kAtOnce) a->say(*others[i], 1);
  }
  scheduler->run_for(kMillisecond);
  for (size_t i = 8; i < 2 * DialLine::kAtOnce; ++i) a->say(*others[i], 1);
  run_to(0.3);
  others[kLast]->say(*a, 1);
  run_to(0.4);
  for (size_t i = 0; i < DialLine::kAtOnce; ++i) hang_up(i);
  run_to(0.5);
  a->loop.run([&] { a->session->leave(kNever, [] {}); });
  for (size_t i = 8; i < 2 * DialLine::kAtOnce; ++i) fence(i);
  ASSERT_TRUE(run_until([&] { return !others[kLast]->left.empty(); }, leases(0.1)));
}

// The first ones are gone, and some of the others would have their turn.
TEST_F(DialFaultsTest, AnEndInTurnsDialsNobodyMeanwhile) {
  for (size_t i = kOthers; i < 4 * kOthers; ++i) {
    others.push_back(std::make_unique<Node>(*scheduler, *network, name_of(i), static_cast<int32_t>(i) + 1));
    a->know(*others[i]);
  }
  for (size_t i = 0; i < others.size(); ++i) {
    network->let_drip(name_of(i), leases(0.1));
    a->say(*others[i], 1);
  }
  run_to(0.01);
  ASSERT_EQ(dials(), DialLine::kAtOnce);
  int turns = 0;
  for (bool is_more = true; is_more; ++turns) {
    a->loop.run([&] { is_more = a->session->close_some(); });
    scheduler->run_for(kMillisecond);
  }
  EXPECT_GT(turns, 2);
  EXPECT_EQ(dials(), DialLine::kAtOnce);
}

// ---- a lack that is over, and ticks that are late ----

using PairOfDialsTest = PairOfSessions;

// Worker "b" has room to dial again, and has not finished dialling.
TEST_F(PairOfDialsTest, AWelcomeWithoutALackEndsTheOneThatWasNamed) {
  network.set_mute("b", true);
  a.say(b, 1);
  ASSERT_TRUE(run_until([this] { return !a.lack_text(b).empty(); }, kSecond));
  network.let_drip("a", kDialLease / 10);
  network.set_mute("b", false);
  scheduler.run_for(kSecond);
  EXPECT_NE(a.lack_text(b), "") << "nothing has come of its dial";
  network.hang_up("b", "a");
  scheduler.run_for(kSecond);
  a.say(b, 2);
  ASSERT_TRUE(run_until([this] { return a.is_drained(); }, kDialLease / 10));
  EXPECT_EQ(a.lack_text(b), "");
}

TEST_F(PairOfDialsTest, OfTicksThatAreLateTheFifthJudges) {
  const Nanos begin = scheduler.now();
  const Nanos late = kDialLease / 10;
  const auto tick = [&](int number) { return begin + number * (kDialLease / 4) + (number - 1) * late; };
  meet();
  network.part("a", "b");
  a.say(b, 2);
  for (int i = 1; i <= 20; ++i) {
    scheduler.at(tick(i) - kMillisecond, [this] { a.loop.freeze(); });
    scheduler.at(tick(i) + late, [this] { a.loop.thaw(); });
  }
  ASSERT_TRUE(run_until([this] { return !a.lost.empty(); }, 10 * kDialLease));
  EXPECT_GE(scheduler.now(), tick(5) + late);
  EXPECT_LT(scheduler.now(), tick(6));
}

}  // namespace
}  // namespace distag
