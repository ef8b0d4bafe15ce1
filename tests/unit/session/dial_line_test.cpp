#include "session/dial_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "support/sim_lanes.h"

namespace distag {
namespace {

using sim::SimLoop;
using sim::SimScheduler;

class DialLineTest : public testing::Test {
 protected:
  ~DialLineTest() override {
    loop.run([this] {
      places.clear();
      line.reset();
    });
  }

  // Places that note their turns.
  void make(size_t count, uint64_t seed = 1) {
    loop.run([&] {
      random = SeededRandom(seed);
      line = std::make_unique<DialLine>(loop, random);
      line->make_room(count);
      for (size_t i = 0; i < count; ++i) {
        places.push_back(std::make_unique<DialLine::Place>(*line, [this, i] {
          turns.push_back(i);
          if (ends_at_once) places[i]->leave();
        }));
      }
    });
  }
  void enter(size_t first, size_t last) {
    loop.run([&] {
      for (size_t i = first; i <= last; ++i) places[i]->enter();
    });
  }
  void leave(size_t place) {
    loop.run([&] { places[place]->leave(); });
    scheduler.run_for(kMillisecond);
  }

  SimScheduler scheduler{1};
  SimLoop loop{scheduler, "loop"};
  SeededRandom random{1};
  std::unique_ptr<DialLine> line;
  std::vector<std::unique_ptr<DialLine::Place>> places;
  std::vector<size_t> turns;  // of the places, in their order
  bool ends_at_once = false;
};

TEST_F(DialLineTest, EightHaveTheirTurnAtATime) {
  make(20);
  enter(0, 19);
  EXPECT_TRUE(turns.empty()) << "not within the task that enters";
  scheduler.run_for(kMillisecond);
  EXPECT_EQ(turns.size(), DialLine::kAtOnce);
  for (size_t i = 0; i < 12; ++i) {
    leave(turns[i]);
    EXPECT_EQ(turns.size(), DialLine::kAtOnce + i + 1);
  }
  leave(turns[12]);
  EXPECT_EQ(std::set<size_t>(turns.begin(), turns.end()).size(), 20u) << "each has one turn";
}

TEST_F(DialLineTest, HalfAsManyHaveTheirTurnAfterASlowHandshakeAndOneMoreAfterAQuickOne) {
  make(30);
  enter(0, 29);
  scheduler.run_for(kMillisecond);
  ASSERT_EQ(turns.size(), DialLine::kAtOnce);
  const auto note = [&](size_t place, bool is_quick) { loop.run([&] { places[place]->note_pace(is_quick); }); };
  // A slow handshake is noted at each tick: half of those that have their turn have to end before the next turn.
  for (int tick = 0; tick < 3; ++tick) note(turns[0], false);
  for (size_t i = 0; i < DialLine::kAtOnce / 2; ++i) leave(turns[i]);
  EXPECT_EQ(turns.size(), DialLine::kAtOnce);
  leave(turns[4]);
  EXPECT_EQ(turns.size(), DialLine::kAtOnce + 1);
  // All four are: one goes on at a time.
  for (size_t i = 5; i <= 8; ++i) note(turns[i], false);
  for (size_t i = 5; i <= 7; ++i) leave(turns[i]);
  EXPECT_EQ(turns.size(), DialLine::kAtOnce + 1);
  leave(turns[8]);
  EXPECT_EQ(turns.size(), DialLine::kAtOnce + 2);
  // A quick one makes room for itself and one more, up to eight.
  for (size_t i = 9; i < 19; ++i) {
    note(turns[i], true);
    note(turns[i], true);
    leave(turns[i]);
    EXPECT_EQ(turns.size() - i - 1, std::min<size_t>(i - 7, DialLine::kAtOnce));
  }
}

TEST_F(DialLineTest, WhatIsNoLongerInItsTurnIsNeitherQuickNorSlow) {
  make(20);
  enter(0, 19);
  scheduler.run_for(kMillisecond);
  leave(turns[0]);
  for (int i = 0; i < 3; ++i) loop.run([&] { places[turns[0]]->note_pace(false); });
  leave(turns[1]);
  EXPECT_EQ(turns.size(), DialLine::kAtOnce + 2);
}

TEST_F(DialLineTest, WhichComeFirstIsByChanceAndTheSameForTheSameSeed) {
  std::set<std::vector<size_t>> orders;
  for (const uint64_t seed : {1u, 2u, 3u, 1u, 2u, 3u}) {
    make(20, seed);
    enter(0, 19);
    scheduler.run_for(kMillisecond);
    EXPECT_EQ(turns.size(), DialLine::kAtOnce);
    orders.insert(std::exchange(turns, {}));
    loop.run([this] { places.clear(); });
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST_F(DialLineTest, OneForWhichSomebodyWaitsGoesAheadOfThoseForWhichNobodyDoes) {
  make(20);
  enter(0, 19);
  scheduler.run_for(kMillisecond);
  size_t last = 0;
  while (std::find(turns.begin(), turns.end(), last) != turns.end()) ++last;
  loop.run([&] { places[last]->hurry(); });
  leave(turns[0]);
  EXPECT_EQ(turns.back(), last);
}

TEST_F(DialLineTest, OneThatHadATurnWaitsForThoseThatHadNone) {
  make(10);
  enter(0, 9);
  scheduler.run_for(kMillisecond);
  const size_t stalled = turns[0];
  loop.run([&] {
    places[stalled]->leave();
    places[stalled]->enter();
  });
  scheduler.run_for(kMillisecond);
  leave(turns[1]);
  ASSERT_EQ(turns.size(), 10u);
  EXPECT_EQ(std::count(turns.begin(), turns.end(), stalled), 1);
  leave(turns[2]);
  EXPECT_EQ(turns.back(), stalled);
}

TEST_F(DialLineTest, OneThatLeavesTheLineGetsNoTurn) {
  make(9);
  enter(0, 8);
  scheduler.run_for(kMillisecond);
  size_t last = 0;
  while (std::find(turns.begin(), turns.end(), last) != turns.end()) ++last;
  leave(last);
  leave(turns[0]);
  EXPECT_EQ(turns.size(), 8u);
  loop.run([&] { places[last]->leave(); });
  enter(last, last);
  scheduler.run_for(kMillisecond);
  EXPECT_EQ(turns.back(), last);
}

TEST_F(DialLineTest, DialsThatEndAtOnceHoldUpNobodyAndGoInShortTasks) {
  ends_at_once = true;
  make(100);
  size_t most = 0, seen = 0;
  scheduler.set_observer([&] { most = std::max(most, turns.size() - std::exchange(seen, turns.size())); });
  enter(0, 99);
  scheduler.run_for(kMillisecond);
  scheduler.set_observer(nullptr);
  EXPECT_EQ(turns.size(), 100u);
  EXPECT_LE(most, DialLine::kAtOnce);
}

TEST_F(DialLineTest, NobodyGetsATurnOfALineThatIsClosed) {
  make(20);
  enter(0, 9);
  scheduler.run_for(kMillisecond);
  loop.run([&] { line->close(); });
  leave(turns[0]);
  enter(10, 19);
  scheduler.run_for(kMillisecond);
  EXPECT_EQ(turns.size(), 8u);
}

TEST_F(DialLineTest, NobodyGetsATurnOfALineThatIsGone) {
  make(3);
  loop.run([&] {
    for (const auto& place : places) place->enter();
    places.clear();
    line.reset();
  });
  scheduler.run_for(kMillisecond);
  EXPECT_TRUE(turns.empty());
}

}  // namespace
}  // namespace distag
