#include "session/own_lack.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "session_harness.h"

namespace distag {
namespace {

constexpr Nanos kLackLease = 5 * kSecond;

// ---- one lack ----

TEST(OwnLackTest, IsThereFromTheFirstAttemptThatFailsToTheLastAndAWhileLonger) {
  OwnLack lack(kSecond);
  EXPECT_FALSE(lack.is_there(0));
  lack.note(Error(Status::kOutOfMemory, "first"), 10 * kSecond);
  lack.note(Error(Status::kOutOfMemory, "second"), 10 * kSecond + kSecond / 2);
  EXPECT_EQ(lack.since(), 10 * kSecond);
  EXPECT_EQ(lack.last(), 10 * kSecond + kSecond / 2);
  EXPECT_EQ(lack.error().message(), "second");
  EXPECT_TRUE(lack.is_there(11 * kSecond));
  EXPECT_FALSE(lack.is_there(12 * kSecond));
  lack.note(Error(Status::kOutOfMemory, "another"), 20 * kSecond);
  EXPECT_EQ(lack.since(), 20 * kSecond);
}

TEST(OwnLackTest, IsOverOnceAnAttemptSucceedsAndKeepsItsWords) {
  OwnLack lack(kNever);
  lack.note(Error(Status::kOutOfMemory, "no descriptors"), kSecond);
  EXPECT_TRUE(lack.is_there(1000 * kSecond));
  lack.end();
  EXPECT_FALSE(lack.is_there(kSecond));
  EXPECT_EQ(lack.error().message(), "no descriptors");
}

// ---- of two workers ----

class LackTest : public PairOfSessions {
 protected:
  void meet() {
    a.say(b, 1);
    b.say(a, 1);
    ASSERT_TRUE(
        run_until([&] { return a.heard.size() == 1 && b.heard.size() == 1 && a.is_drained() && b.is_drained(); }));
  }
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

// The other side hears nothing, which its own lease bounds: that is no fault of its.
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

TEST_F(LackTest, APeerThatIsGoneOnceThereIsRoomIsLostByItsLease) {
  network.set_short("a", true);
  a.say(b, 1);
  scheduler.run_for(6 * kLackLease);
  network.part("a", "b");
  network.set_short("a", false);
  EXPECT_FALSE(run_until([&] { return !a.lost.empty(); }, kLackLease * 9 / 10));
  ASSERT_TRUE(run_until([&] { return !a.lost.empty(); }, 2 * kLackLease));
}

class DeafnessTest : public testing::Test {
 protected:
  // Two that have met; then `a` can dial, and cannot accept who dials it.
  void begin(Nanos lease, Nanos lease_of_other) {
    SessionConfig config;
    config.lease = lease;
    a.emplace(scheduler, network, "a", 0, config);
    config.lease = lease_of_other;
    b.emplace(scheduler, network, "b", 1, config);
    a->know(*b);
    b->know(*a);
    a->say(*b, 1);
    b->say(*a, 1);
    ASSERT_TRUE(scheduler.run_until([this] { return a->heard.size() == 1 && b->heard.size() == 1; }, kSecond));
    network.set_deaf("a", true);
    network.cut_all();
    a->say(*b, 2);
  }

  SimScheduler scheduler{1};
  SimNetwork network{scheduler};
  std::optional<Node> a, b;
};

TEST_F(DeafnessTest, WhoCannotAcceptTheOtherDoesNotGiveItUp) {
  begin(kSecond, 600 * kSecond);
  scheduler.run_for(20 * kSecond);
  EXPECT_EQ(b->heard.size(), 2u);
  EXPECT_TRUE(a->lost.empty()) << a->lost[0].second.message();
  EXPECT_NE(a->lack_text(*b).find("may not hear worker \"b\" (rank 1)"), std::string::npos) << a->lack_text(*b);
  EXPECT_NE(a->lack_text(*b).find("ulimit -n"), std::string::npos) << a->lack_text(*b);
  network.set_deaf("a", false);
  ASSERT_TRUE(scheduler.run_until([this] { return a->is_drained(); }, 5 * kSecond));
  EXPECT_TRUE(a->lost.empty() && b->lost.empty());
  scheduler.run_for(2 * kSecond);
  EXPECT_EQ(a->lack_text(*b), "");
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
