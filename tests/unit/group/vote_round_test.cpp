#include "group/vote_round.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace distag {
namespace {

constexpr Incarnation kSelf = 1, kOther = 2;

wire::ShutdownAnswer answer(std::vector<wire::PeerCount> counts, std::vector<Incarnation> lost = {}) {
  wire::ShutdownAnswer given;
  given.stopping = given.idle = true;
  given.counts = std::move(counts);
  given.lost = std::move(lost);
  return given;
}

// A round in which both are ready: this worker has sent `sent` requests to the other, which has got `received`.
bool hold(VoteRound& round, uint64_t sent, uint64_t received, std::vector<Incarnation> lost = {}) {
  round.begin(kSelf, answer({{kOther, sent, 0}}, std::move(lost)));
  round.mark_asked();
  wire::ShutdownAnswer other = answer({{kSelf, 0, received}});
  other.round = round.number();
  EXPECT_TRUE(round.take(kOther, other));
  EXPECT_TRUE(round.is_complete(2));
  return round.is_quiet();
}

TEST(VoteRoundTest, TwoRoundsWithEqualCountsAreQuiet) {
  VoteRound round;
  EXPECT_FALSE(hold(round, 3, 3));
  EXPECT_TRUE(round.keep());
  EXPECT_TRUE(hold(round, 3, 3));
}

TEST(VoteRoundTest, CountsThatGrewBetweenTheRoundsAreNotQuiet) {
  VoteRound round;
  hold(round, 3, 3);
  EXPECT_TRUE(round.keep());
  EXPECT_FALSE(hold(round, 4, 4));
  EXPECT_FALSE(round.keep());
  EXPECT_TRUE(hold(round, 4, 4));
}

TEST(VoteRoundTest, WhatIsOnItsWayIsNotQuietUnlessThePairHasLostEachOther) {
  VoteRound round;
  hold(round, 4, 3);
  round.keep();
  EXPECT_FALSE(hold(round, 4, 3));
  EXPECT_TRUE(hold(round, 4, 3, {kOther}));
}

TEST(VoteRoundTest, ARoundWaitsForAllThatLiveAndEndsAsMembersChange) {
  VoteRound round;
  hold(round, 0, 0);
  EXPECT_FALSE(round.is_complete(3));
  round.mark_stale();
  EXPECT_FALSE(round.is_complete(2));
}

TEST(VoteRoundTest, AnAnswerOfAnotherRoundOrOfNoneIsNotTaken) {
  VoteRound round;
  wire::ShutdownAnswer late = answer({});
  EXPECT_FALSE(round.take(kOther, late));
  hold(round, 0, 0);
  late.round = round.number() + 1;
  EXPECT_FALSE(round.take(kOther, late));
}

TEST(VoteRoundTest, AMemberThatIsBusyAgainIsNotReady) {
  VoteRound round;
  hold(round, 0, 0);
  wire::ShutdownAnswer busy = answer({});
  busy.round = round.number();
  busy.idle = false;
  EXPECT_TRUE(round.take(kOther, busy));
  EXPECT_FALSE(round.is_complete(2));
  EXPECT_TRUE(round.wants_to_stop(kOther));
}

}  // namespace
}  // namespace distag
