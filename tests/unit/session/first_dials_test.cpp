// The first dials of a worker to many: they wait in a line, and what a handshake that takes long is waited for.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "first_dials_harness.h"

namespace distag {
namespace {

TEST_F(FirstDialsTest, GoEightAtATime) {
  make();
  network->faults.handshake_work = 10 * kMillisecond;
  say_to_all();
  uint64_t dials = 0;
  size_t most = 0;
  scheduler->set_observer([&] {
    size_t connected = 0;
    for (size_t i = 0; i < kOthers; ++i) connected += is_connected(i);
    dials = std::max(dials, network->traffic().dials);
    if (connected == 0) most = std::max(most, static_cast<size_t>(dials));
  });
  scheduler->run_for(20 * kMillisecond);
  scheduler->set_observer(nullptr);
  EXPECT_EQ(most, DialLine::kAtOnce);
  network->faults.handshake_work = kMillisecond;
  ASSERT_TRUE(run_until([&] { return count_heard() == kOthers && a->is_drained(); }));
}

TEST_F(FirstDialsTest, TheFirstOnesAreChosenByChance) {
  std::set<std::set<std::string>> firsts;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    make(seed);
    std::set<std::string> first;
    network->set_tap([&first](const std::string& from, const std::string& to, const Frames&) {
      if (from == "a" && first.size() < DialLine::kAtOnce) first.insert(to);
    });
    say_to_all();
    ASSERT_TRUE(run_until([&] { return count_heard() == kOthers; }));
    firsts.insert(first);
  }
  EXPECT_EQ(firsts.size(), 3u);
}

// The others have dialled this worker, which has nothing to say to them.
TEST_F(FirstDialsTest, APeerForWhichAMessageWaitsGoesAheadOfIdleOnes) {
  make();
  network->faults.handshake_work = 2 * kMillisecond;
  for (size_t i = 0; i + 1 < kOthers; ++i) others[i]->say(*a, 1);
  ASSERT_TRUE(run_until([&] { return a->heard.size() >= DialLine::kAtOnce + 4; }));
  size_t connected = 0;
  a->say(*others[kOthers - 1], 1);
  ASSERT_TRUE(run_until([&] { return !others[kOthers - 1]->heard.empty(); }));
  for (size_t i = 0; i + 1 < kOthers; ++i) connected += is_connected(i);
  EXPECT_LE(connected, DialLine::kAtOnce + 1);
  ASSERT_TRUE(run_until([&] { return a->heard.size() == kOthers - 1; }));
}

// Eight hosts of which nothing is heard: the ninth peer waits for no lease.
TEST_F(FirstDialsTest, ADialThatStallsGivesUpItsTurnAfterAQuarterOfALease) {
  make();
  fill_line(0);
  a->say(*others[kOthers - 1], 1);
  scheduler->run_for(kDialLease / 5);
  EXPECT_TRUE(others[kOthers - 1]->heard.empty());
  ASSERT_TRUE(run_until([&] { return !others[kOthers - 1]->heard.empty(); }, kDialLease / 2));
  EXPECT_TRUE(a->lost.empty());
}

// Bytes keep a turn for a lease, and no longer.
TEST_F(FirstDialsTest, ATurnIsKeptByProgressForALeaseAtMost) {
  make();
  fill_line(kDialLease / 10);
  a->say(*others[kOthers - 1], 1);
  scheduler->run_for(kDialLease * 9 / 10);
  EXPECT_TRUE(others[kOthers - 1]->heard.empty());
  ASSERT_TRUE(run_until([&] { return !others[kOthers - 1]->heard.empty(); }, kDialLease / 2));
}

TEST_F(FirstDialsTest, ARedialNeverWaitsInTheLine) {
  make();
  Node& met = *others[kOthers - 1];
  a->say(met, 1);
  ASSERT_TRUE(run_until([&] { return met.heard.size() == 1 && a->is_drained(); }));
  fill_line(kDialLease / 10);
  network->cut_all();
  a->say(met, 2);
  ASSERT_TRUE(run_until([&] { return met.heard.size() == 2; }, kDialLease / 10));
}

// The dead peer listens no more: two redials say so, whoever else is being dialled.
TEST_F(FirstDialsTest, ADialThatIsRefusedWaitsInTheLineOnce) {
  make();
  Node& dead = *others[kOthers - 1];
  const Incarnation id = dead.id();
  network->kill(name_of(kOthers - 1));
  a->send(id, wire::ShutdownVerdict{1});
  scheduler->run_for(kMillisecond);
  fill_line(kDialLease / 10);
  ASSERT_TRUE(run_until([&] { return !a->lost.empty(); }, kDialLease / 10));
  EXPECT_EQ(a->lost[0].first, id);
}

TEST_F(FirstDialsTest, APeerIsNotLostForTheTimeInTheLine) {
  make();
  fill_line(kDialLease / 10);
  for (size_t i = DialLine::kAtOnce; i < 2 * DialLine::kAtOnce; ++i) {
    network->let_drip(name_of(i), kDialLease / 10);
    a->say(*others[i], 1);
  }
  a->loop.run([this] { a->session->fence(others[0]->id(), Error(Status::kDisconnected, "no more")); });
  ASSERT_TRUE(run_until([&] { return a->lost.size() == 2 * DialLine::kAtOnce; }, 20 * kDialLease));
  EXPECT_GE(scheduler->now(), 4 * kDialLease + kDialLease * 3 / 4) << "the second eight had their turn a lease later";
}

TEST_F(FirstDialsTest, APeerThatIsGivenUpInTheLineLeavesIt) {
  make();
  fill_line(kDialLease / 10);
  Node& fenced = *others[kOthers - 2];
  a->say(fenced, 1);
  a->say(*others[kOthers - 1], 1);
  a->loop.run([&] { a->session->fence(fenced.id(), Error(Status::kDisconnected, "no more")); });
  ASSERT_TRUE(run_until([&] { return a->lost.size() == 1; }, kSecond));
  ASSERT_TRUE(run_until([&] { return !others[kOthers - 1]->heard.empty(); }, 2 * kDialLease));
  EXPECT_TRUE(fenced.heard.empty());
}

TEST_F(FirstDialsTest, WhatWaitsInTheLineCanBeWithdrawn) {
  make();
  fill_line(kDialLease / 10);
  Node& late = *others[kOthers - 1];
  const Session::Ticket ticket = a->say(late, 1);
  a->say(late, 2);
  a->loop.run([&] { EXPECT_TRUE(a->session->withdraw(late.id(), ticket)); });
  ASSERT_TRUE(run_until([&] { return !late.heard.empty(); }, 2 * kDialLease));
  EXPECT_EQ(late.heard, std::vector<uint64_t>{2});
}

TEST_F(FirstDialsTest, AnEndWithPeersInTheLineEndsByItsDeadline) {
  make();
  fill_line(kDialLease / 10);
  for (size_t i = DialLine::kAtOnce; i < kOthers; ++i) a->say(*others[i], 1);
  bool done = false;
  const Nanos begin = scheduler->now();
  a->loop.run([&] { a->session->leave(begin + kSecond, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }, 2 * kSecond));
  EXPECT_GE(scheduler->now() - begin, kSecond);
  const uint64_t dials = network->traffic().dials;
  bool more = true;
  while (more) a->loop.run([&] { more = a->session->close_some(); });
  scheduler->run_for(2 * kDialLease);
  EXPECT_EQ(network->traffic().dials, dials) << "nobody is dialled meanwhile";
}

// ---- acknowledgements by WELCOME ----

// Nothing of it goes to the peer by a stream of its own for a while.
TEST_F(FirstDialsTest, MessagesOfAPeerInTheLineAreAcknowledged) {
  make();
  fill_line(kDialLease / 10);
  Node& b = *others[kOthers - 1];
  b.say(*a, 1);
  ASSERT_TRUE(run_until([&] { return a->heard.size() == 1 && b.is_drained(); }, kDialLease / 10));
  b.say(*a, 2);
  ASSERT_TRUE(run_until([&] { return a->heard.size() == 2 && b.is_drained(); }, kDialLease / 10));
  EXPECT_FALSE(is_connected(kOthers - 1));
}

TEST_F(FirstDialsTest, WelcomeAcknowledgesOnceIn50Milliseconds) {
  make();
  fill_line(kDialLease / 10);
  Node& b = *others[kOthers - 1];
  b.say(*a, 0);
  ASSERT_TRUE(run_until([&] { return b.is_drained(); }, kSecond));
  uint64_t welcomes = 0;
  network->set_tap([&](const std::string& from, const std::string& to, const Frames&) {
    welcomes += from == "a" && to == name_of(kOthers - 1);
  });
  for (int i = 0; i < 100; ++i) {
    b.say(*a, 1);
    scheduler->run_for(5 * kMillisecond);
  }
  EXPECT_GE(welcomes, 500u / 50 - 1);
  EXPECT_LE(welcomes, 500u / 50 + 1);
  ASSERT_TRUE(run_until([&] { return b.is_drained(); }, kAckAgain + 2 * kMillisecond));
  EXPECT_TRUE(b.lost.empty());
}

// Acknowledgements of other streams do not wait for that.
TEST_F(FirstDialsTest, WhatOthersAreOwedGoesInTime) {
  make();
  Node& met = *others[kOthers - 2];
  met.say(*a, 1);
  a->say(met, 1);
  ASSERT_TRUE(run_until([&] { return met.is_drained() && a->is_drained(); }));
  fill_line(kDialLease / 10);
  Node& b = *others[kOthers - 1];
  b.say(*a, 1);
  ASSERT_TRUE(run_until([&] { return b.is_drained(); }, kSecond));
  b.say(*a, 2);
  scheduler->run_for(8 * kMillisecond);
  ASSERT_FALSE(b.is_drained()) << "the next WELCOME is for later";
  met.say(*a, 2);
  ASSERT_TRUE(run_until([&] { return met.is_drained(); }, kAckDelay + 2 * kMillisecond));
}

TEST_F(FirstDialsTest, WhoLeavesIsToldAtOnceThatItWasHeard) {
  make();
  fill_line(kDialLease / 10);
  Node& b = *others[kOthers - 1];
  b.say(*a, 1);
  bool done = false;
  b.loop.run([&] { b.session->leave(kNever, [&done] { done = true; }); });
  ASSERT_TRUE(run_until([&] { return done; }, kAckAgain / 2));
  EXPECT_EQ(a->left, std::vector<Incarnation>{b.id()});
}

TEST_F(FirstDialsTest, APeerThatIsIdleLivesByWelcomesThatAnswerItsPings) {
  make();
  fill_line(kDialLease / 10);
  Node& b = *others[kOthers - 1];
  for (size_t i = DialLine::kAtOnce; i + 1 < kOthers; ++i) {
    network->let_drip(name_of(i), kDialLease / 10);
    a->say(*others[i], 1);
  }
  b.say(*a, 1);
  scheduler->run_for(kDialLease * 7 / 4);
  EXPECT_FALSE(is_connected(kOthers - 1));
  EXPECT_TRUE(b.lost.empty());
  ASSERT_TRUE(run_until([&] { return is_connected(kOthers - 1); }, 16 * kDialLease));
  EXPECT_TRUE(b.lost.empty());
}

// ---- handshakes that take long ----

TEST_F(FirstDialsTest, BytesOfAHandshakeKeepAPeerForFourLeasesAndNoLonger) {
  make();
  network->let_drip(name_of(0), kDialLease / 10);
  a->say(*others[0], 1);
  scheduler->run_for(4 * kDialLease - kDialLease / 10);
  EXPECT_TRUE(a->lost.empty());
  EXPECT_EQ(network->traffic().dials, 1u);
  ASSERT_TRUE(run_until([&] { return !a->lost.empty(); }, kDialLease / 2));
  EXPECT_EQ(a->lost[0].first, others[0]->id());
}

// However often it is dialled again.
TEST_F(FirstDialsTest, MoreBytesThanOfAHandshakeKeepNobody) {
  make();
  network->let_drip(name_of(0), kMillisecond / 10);
  a->say(*others[0], 1);
  ASSERT_TRUE(run_until([&] { return !a->lost.empty(); }, 2 * kDialLease));
  EXPECT_EQ(a->lost[0].first, others[0]->id());
}

// The process of the peer hangs, while its transport shakes hands with each redial.
TEST_F(FirstDialsTest, BytesOfHandshakesThatEndAtOnceKeepNoPeer) {
  make();
  network->faults.handshake_work = kMillisecond;
  a->say(*others[0], 1);
  ASSERT_TRUE(run_until([&] { return others[0]->heard.size() == 1 && a->is_drained(); }));
  for (Node* node : {a.get(), others[0].get()}) node->transport->exact = false;
  network->faults.vanish = 1;
  const uint64_t dials = network->traffic().dials;
  a->say(*others[0], 2);
  ASSERT_TRUE(run_until([&] { return !a->lost.empty(); }, kDialLease * 7 / 4));
  EXPECT_EQ(a->lost[0].first, others[0]->id());
  EXPECT_GT(network->traffic().dials, dials) << "it was dialled again";
}

// The peer's first handshake is cut when it owes for 0.9 leases; then it waits in the line for more than a lease, and
// the second one is silent for 0.6 of one.
TEST_F(FirstDialsTest, BytesOfBeforeTheLineAreAsOldAsWhenItBegan) {
  make();
  const std::string name = name_of(DialLine::kAtOnce);
  Node& peer = *others[DialLine::kAtOnce];
  network->let_drip(name, kDialLease / 10);
  a->say(peer, 1);
  scheduler->run_for(kDialLease * 8 / 10);
  // As many quick handshakes as its slow one has halved away.
  for (size_t i = 1; i <= DialLine::kAtOnce / 2; ++i) a->say(*others[kOthers - i], 1);
  scheduler->run_for(kDialLease / 10);
  fill_line(kDialLease / 10);
  network->cut("a", name);
  network->let_drip(name, 0);
  scheduler->run_for(kDialLease / 10);
  const uint64_t dials = network->traffic().dials;  // that of the last one of eight is among them
  ASSERT_TRUE(run_until([&] { return network->traffic().dials > dials; }, 2 * kDialLease));
  scheduler->run_for(kDialLease * 6 / 10);
  EXPECT_EQ(std::count_if(a->lost.begin(), a->lost.end(), [&](const auto& lost) { return lost.first == peer.id(); }),
            0);
  network->stop_drip(name);
  ASSERT_TRUE(run_until([&] { return !peer.heard.empty(); }, 4 * kDialLease));
}

// Bytes come for 0.3 leases, no tick finds its handshake slow, then it is cut. In the line the loop is away once, and
// behind it the peer is silent: it has a lease.
TEST_F(FirstDialsTest, ARestartInTheLineMakesBytesNoYoungerThanNow) {
  make();
  const std::string name = name_of(DialLine::kAtOnce);
  Node& peer = *others[DialLine::kAtOnce];
  a->say(*others[kOthers - 1], 1);
  scheduler->run_for(kDialLease / 10);
  network->let_drip(name, kDialLease / 10);
  a->say(peer, 1);
  scheduler->run_for(kDialLease * 3 / 10);
  fill_line(kDialLease / 10);
  network->cut("a", name);
  network->let_drip(name, 0);
  scheduler->run_for(kDialLease / 10);
  a->loop.freeze();
  scheduler->run_for(kDialLease * 6 / 10);
  a->loop.thaw();
  const uint64_t dials = network->traffic().dials;
  ASSERT_TRUE(run_until([&] { return network->traffic().dials > dials; }, 4 * kDialLease));
  const Nanos turn = scheduler->now();
  const auto is_lost = [&] {
    return std::any_of(a->lost.begin(), a->lost.end(), [&](const auto& lost) { return lost.first == peer.id(); });
  };
  ASSERT_TRUE(run_until(is_lost, 6 * kDialLease));
  EXPECT_LE(scheduler->now() - turn, kDialLease * 5 / 4);
}

TEST_F(FirstDialsTest, ATickThatIsLateLosesAPeerThatOwesForFourLeases) {
  make();
  network->let_drip(name_of(0), kDialLease / 10);
  const Nanos begin = scheduler->now();
  a->say(*others[0], 1);
  const Nanos tick = begin + 16 * (kDialLease / 4);
  scheduler->at(tick - kMillisecond, [this] { a->loop.freeze(); });
  scheduler->at(tick + kDialLease / 10, [this] { a->loop.thaw(); });
  scheduler->run_for(tick - kMillisecond - begin);
  EXPECT_TRUE(a->lost.empty());
  scheduler->run_for(kDialLease / 10 + 2 * kMillisecond);
  EXPECT_EQ(a->lost.size(), 1u);
}

TEST_F(FirstDialsTest, ASilentHandshakeIsBegunAnewAfterThreeQuartersOfALease) {
  make();
  network->let_drip(name_of(0), 0);
  a->say(*others[0], 1);
  scheduler->run_for(kDialLease * 7 / 10);
  EXPECT_EQ(network->traffic().dials, 1u);
  network->stop_drip(name_of(0));
  ASSERT_TRUE(run_until([&] { return !others[0]->heard.empty(); }, kDialLease / 2));
  EXPECT_TRUE(a->lost.empty());
  network->let_drip(name_of(1), 0);
  const Nanos begin = scheduler->now();
  a->say(*others[1], 1);
  ASSERT_TRUE(run_until([&] { return !a->lost.empty(); }, 3 * kDialLease)) << "it never says a word";
  EXPECT_GE(scheduler->now() - begin, kDialLease);
}

// ---- what follows a handshake that took long ----

// The other side gives each handshake up after a while, as transports do, in which bytes came.
TEST_F(FirstDialsTest, HandshakesThatTheTransportGivesUpKeepAPeerForFourLeasesAndNoLonger) {
  make();
  network->let_drip(name_of(0), kDialLease / 10);
  a->say(*others[0], 1);
  const Nanos begin = scheduler->now();
  while (a->lost.empty() && scheduler->now() - begin < 6 * kDialLease) {
    scheduler->run_for(kDialLease * 9 / 10);
    network->cut_all();
  }
  ASSERT_EQ(a->lost.size(), 1u);
  EXPECT_GE(scheduler->now() - begin, 4 * kDialLease);
}

// While its handshake goes on, ticks that are late do not make it stall.
TEST_F(FirstDialsTest, AHandshakeThatGoesOnIsNotBegunAnewByALoopThatIsLate) {
  make();
  network->let_drip(name_of(0), kDialLease / 10);
  a->say(*others[0], 1);
  for (int i = 0; i < 8; ++i) {
    scheduler->run_for(kDialLease / 8);
    a->loop.freeze();
    scheduler->run_for(kDialLease / 4);
    a->loop.thaw();
  }
  EXPECT_EQ(network->traffic().dials, 1u);
  EXPECT_TRUE(a->lost.empty());
}

TEST_F(FirstDialsTest, APeerThatLeavesGivesItsTurnBack) {
  make();
  fill_line(kDialLease / 10);
  for (size_t i = 0; i < DialLine::kAtOnce; ++i) {
    others[i]->say(*a, 1);
    others[i]->loop.run([&, i] { others[i]->session->leave(kNever, [] {}); });
  }
  a->say(*others[kOthers - 1], 1);
  ASSERT_TRUE(run_until([&] { return a->left.size() == DialLine::kAtOnce; }, kDialLease / 10));
  ASSERT_TRUE(run_until([&] { return !others[kOthers - 1]->heard.empty(); }, kDialLease / 10));
}

TEST_F(FirstDialsTest, ALoopThatIsAlwaysLateGivesTurnsBack) {
  make();
  fill_line(0);
  a->say(*others[kOthers - 1], 1);
  for (int i = 0; i < 8 && others[kOthers - 1]->heard.empty(); ++i) {
    scheduler->run_for(kDialLease / 20);
    a->loop.freeze();
    scheduler->run_for(kDialLease * 3 / 5);
    a->loop.thaw();
  }
  EXPECT_FALSE(others[kOthers - 1]->heard.empty());
}

// ---- a loop that is late ----

class LateTicksTest : public PairOfSessions {
 protected:
  // From here on, ticks of "a" are a quarter of a lease apart, unless they are late.
  const Nanos begin = scheduler.now();
  Nanos tick(int number) const { return begin + number * (kDialLease / 4); }
  void be_late_at(Nanos moment, Nanos late) {
    scheduler.at(moment - kMillisecond, [this] { a.loop.freeze(); });
    scheduler.at(moment + late, [this] { a.loop.thaw(); });
  }
  // In sixteen ticks at most.
  void expect_loss_with_ticks_late_by(Nanos late) {
    meet();
    network.part("a", "b");
    a.say(b, 2);
    for (int i = 1; i <= 40; ++i) be_late_at(tick(i) + (i - 1) * late, late);
    ASSERT_TRUE(run_until([this] { return !a.lost.empty(); }, 16 * (kDialLease / 4 + late)));
    EXPECT_GE(scheduler.now() - begin, kDialLease);
  }
};

// The peer is silent from right after the second tick on: it is lost at the seventh, unless that is late.
TEST_F(LateTicksTest, InATickThatIsLateNobodyIsLost) {
  meet();
  scheduler.at(tick(2) + kMillisecond, [this] {
    network.part("a", "b");
    a.say(b, 2);
  });
  be_late_at(tick(7), kDialLease / 10);
  ASSERT_TRUE(run_until([this] { return !a.lost.empty(); }, 3 * kDialLease));
  EXPECT_GE(scheduler.now(), tick(8) + kDialLease / 10);
  EXPECT_LT(scheduler.now(), tick(9));
}

TEST_F(LateTicksTest, OneThatIsHardlyLateLosesThePeer) {
  meet();
  scheduler.at(tick(2) + kMillisecond, [this] {
    network.part("a", "b");
    a.say(b, 2);
  });
  be_late_at(tick(7), kDialLease / 20);
  ASSERT_TRUE(run_until([this] { return !a.lost.empty(); }, 3 * kDialLease));
  EXPECT_LT(scheduler.now(), tick(8));
}

// Every fifth late tick judges, and finds that the peer owes three quarters of a lease.
TEST_F(LateTicksTest, TheTimeByWhichTicksAreLateIsNobodys) {
  meet();
  const Nanos late = kDialLease / 5;
  for (int i = 1; i <= 40; ++i) be_late_at(tick(i) + (i - 1) * late, late);
  scheduler.at(tick(2) + 2 * late + kMillisecond, [this] {
    network.part("a", "b");
    a.say(b, 2);
  });
  scheduler.run_for(tick(5) + 5 * late + kDialLease / 8 - scheduler.now());
  EXPECT_TRUE(a.lost.empty());
  ASSERT_TRUE(run_until([this] { return !a.lost.empty(); }, 3 * kDialLease));
}

TEST_F(LateTicksTest, OneThatIsAlwaysLateLosesWhoIsGoneAllTheSame) {
  meet();
  network.part("a", "b");
  a.say(b, 2);
  const Nanos late = kDialLease / 10;
  for (int i = 1; i <= 40; ++i) be_late_at(tick(i) + (i - 1) * late, late);
  ASSERT_TRUE(run_until([this] { return !a.lost.empty(); }, 6 * kDialLease));
  EXPECT_GE(scheduler.now() - begin, kDialLease);
}

// Each tick is late by more than a quarter of a lease.
TEST_F(LateTicksTest, OneThatIsAwayAgainAndAgainLosesWhoIsGoneAllTheSame) {
  expect_loss_with_ticks_late_by(kDialLease / 2);
}
TEST_F(LateTicksTest, OneThatIsAwayForALeaseEachTimeLosesWhoIsGone) { expect_loss_with_ticks_late_by(kDialLease); }
TEST_F(LateTicksTest, OneThatIsAwayForThreeLeasesEachTimeLosesWhoIsGone) {
  expect_loss_with_ticks_late_by(3 * kDialLease);
}

// Each second tick is late by more than a quarter of a lease, as where a host is paused again and again.
TEST_F(LateTicksTest, OneThatIsAwayEachSecondTimeLosesWhoIsGoneAllTheSame) {
  meet();
  network.part("a", "b");
  a.say(b, 2);
  const Nanos late = kDialLease * 3 / 10;
  Nanos moment = begin;
  for (int i = 0; i < 20; ++i) {
    moment += 2 * (kDialLease / 4);
    be_late_at(moment, late);
    moment += late;
  }
  ASSERT_TRUE(run_until([this] { return !a.lost.empty(); }, 6 * kDialLease));
  EXPECT_GE(scheduler.now() - begin, kDialLease);
}

}  // namespace
}  // namespace distag
