// The messages that a peer must not send, and those that it may send too often.
#include "rref/sharing.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "sharing_group.h"

namespace distag::testing {
namespace {

using Ref = std::shared_ptr<Rref>;

// Worker 100 alone; the test speaks for the others: 101, 102 and 103.
class SharingTest : public ::testing::Test, private Sharing::Streams {
 protected:
  SharingTest() {
    for (Incarnation worker = 100; worker < 104; ++worker) {
      Peer peer;
      peer.name = "w" + std::to_string(worker - 100);
      peer.rank = static_cast<int32_t>(worker - 100);
      peer.incarnation = worker;
      peers_[worker] = std::make_shared<const Peer>(peer);
    }
    home_->sharing = &sharing_;
    sharing_.begin(*peers_.at(100));
  }
  ~SharingTest() override {
    home_->gate.close();
    sharing_.stop();
  }

  void send(const Peer& to, wire::Body body, Task) override { sent_.emplace_back(to.incarnation, std::move(body)); }
  std::shared_ptr<const Peer> find(Incarnation worker) const override {
    return peers_.contains(worker) ? peers_.at(worker) : nullptr;
  }
  bool is_gone(Incarnation worker) const override { return !peers_.contains(worker); }
  std::string name_of_rank(int32_t rank) const override { return "w" + std::to_string(rank); }

  static ReferenceBounds bounds() {
    ReferenceBounds few;
    few.forks = few.holds = 3;
    few.counted_forks = 6;
    few.sought = 2;
    return few;
  }
  bool has_room(Incarnation to, const Ref& reference) {
    try {
      sharing_.check_room(peer(to), *reference);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kOverloaded);
      return false;
    }
    return true;
  }
  const Peer& peer(Incarnation worker) { return *peers_.at(worker); }
  void handle(Incarnation from, wire::Body body) { static_cast<void>(sharing_.handle(peer(from), body)); }
  void expect_refused(Incarnation from, wire::Body body) {
    try {
      sharing_.handle(peer(from), body);
      ADD_FAILURE() << wire::body_name(body) << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kProtocol) << error.message();
      EXPECT_NE(error.message().find(peer(from).name), std::string::npos) << error.message();
    }
  }
  template <typename Body>
  size_t count_sent(Incarnation to) const {
    size_t count = 0;
    for (const auto& [receiver, body] : sent_) count += receiver == to && std::holds_alternative<Body>(body);
    return count;
  }
  Ref share(uint64_t counter) {
    const auto owned = home_->make_value({1, counter});
    owned->outcome().complete(Value(int64_t{7}));
    return std::make_shared<Rref>(home_, owned);
  }
  Id send_to(Incarnation worker, const Ref& reference) {
    return std::static_pointer_cast<wire::Reference>(sharing_.on_send(peer(worker), reference))->fork;
  }

  OneLoop loop_;
  Log log_;
  std::map<Incarnation, std::shared_ptr<const Peer>> peers_;
  std::vector<std::pair<Incarnation, wire::Body>> sent_;
  std::shared_ptr<RrefHome> home_ = std::make_shared<RrefHome>(loop_, log_);
  Sharing sharing_{home_, *this, 1, bounds()};
};

TEST_F(SharingTest, AHolderIsGivenSoManyReferences) {
  const Ref value = share(1);
  std::vector<Id> forks;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(has_room(101, value));
    forks.push_back(send_to(101, value));
  }
  EXPECT_FALSE(has_room(101, value));
  EXPECT_TRUE(has_room(102, value));
  EXPECT_TRUE(has_room(100, value));
  handle(101, wire::Drop{forks[0]});
  EXPECT_TRUE(has_room(101, value));
  sharing_.on_gone(peer(101));
  EXPECT_TRUE(has_room(101, value));
}

TEST_F(SharingTest, ForksThatDoNotTravelAreNotCounted) {
  const Ref value = share(1);
  for (int i = 0; i < 5; ++i) {
    const uint64_t mark = sharing_.mark();
    send_to(101, value);
    sharing_.take_back(mark);
  }
  EXPECT_TRUE(has_room(101, value));
}

TEST_F(SharingTest, SoManyReferencesMayBeUnknownToTheirOwners) {
  Ref used = std::make_shared<Rref>(home_, Id{50, 1}, peers_.at(101), Id{});
  Id last;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(has_room(102, used));
    last = send_to(102, used);
  }
  EXPECT_FALSE(has_room(103, used));
  EXPECT_TRUE(has_room(101, used));  // to the owner nothing is held
  handle(101, wire::Forked{last, 102});
  EXPECT_TRUE(has_room(103, used));
}

// The sharer lets go of it all the same, and the one that holds it hears that the value is gone.
TEST_F(SharingTest, FurtherForksOfAHolderAreNotCounted) {
  Ref value = share(1);
  for (uint64_t i = 1; i <= 6; ++i)
    EXPECT_EQ(sharing_.handle(peer(101), wire::Fork{{1, 1}, {102, i}}), Heard::kHandled);
  EXPECT_EQ(sharing_.handle(peer(101), wire::Fork{{1, 1}, {102, 7}}), Heard::kRefused);
  EXPECT_EQ(sharing_.forks().size(), 6u);
  EXPECT_EQ(count_sent<wire::Forked>(102), 7u);
  try {
    sharing_.on_creation(peer(101), {101, 1}, "a call");
    ADD_FAILURE() << "the value was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kOverloaded);
  }
  handle(101, wire::Drop{{102, 7}});
  handle(101, wire::Drop{{102, 1}});
  EXPECT_EQ(sharing_.handle(peer(101), wire::Fork{{1, 1}, {102, 8}}), Heard::kHandled);
}

TEST_F(SharingTest, SoManyValuesAreAwaited) {
  for (uint64_t i = 1; i <= 4; ++i) handle(101, wire::Fork{{103, 2 * i + 1}, {102, i}});
  EXPECT_EQ(count_sent<wire::Seek>(103), 2u);
  handle(101, wire::Fork{{103, 3}, {102, 9}});  // one that is awaited is no further one
  const auto value_of = [this](uint64_t counter) { return home_->table.find({103, counter}); };
  EXPECT_FALSE(value_of(5)->outcome().is_done());
  ASSERT_TRUE(value_of(7)->outcome().is_done());
  EXPECT_EQ(value_of(7)->outcome().error()->status(), Status::kNotFound);
}

TEST_F(SharingTest, AForkIsIntroducedByWhomAnotherUserGaveIt) {
  const Ref value = share(1);
  expect_refused(101, wire::Fork{{1, 1}, {101, 2}});
  expect_refused(101, wire::Fork{{1, 1}, {100, 2}});
  EXPECT_TRUE(sharing_.forks().empty());
  handle(101, wire::Fork{{1, 1}, {102, 2}});
  EXPECT_EQ(count_sent<wire::Forked>(102), 1u);
  EXPECT_EQ(sharing_.forks().size(), 1u);
}

// A sharer that sends one fork twice does no harm: its receiver holds it twice, and lets go of it twice.
TEST_F(SharingTest, AForkThatWasSharedTwiceIsHeldTwice) {
  Ref value = share(1);
  handle(101, wire::Fork{{1, 1}, {102, 2}});
  handle(101, wire::Fork{{1, 1}, {102, 2}});
  value.reset();
  handle(101, wire::Drop{{102, 2}});
  EXPECT_NE(home_->table.find({1, 1}), nullptr);
  handle(101, wire::Drop{{102, 2}});
  EXPECT_EQ(home_->table.find({1, 1}), nullptr);
}

// A worker that hears FORKED from the receiver of the fork answers, whatever it is the owner of.
TEST_F(SharingTest, TheAnswerToAFalseIntroductionIsNotTheFaultOfItsSender) {
  Ref used = std::make_shared<Rref>(home_, Id{50, 1}, peers_.at(101), Id{});
  const Id fork = send_to(102, used);
  EXPECT_EQ(sharing_.handle(peer(103), wire::Forked{fork, 102}), Heard::kStale);
  EXPECT_FALSE(sharing_.is_idle());
  EXPECT_EQ(sharing_.handle(peer(101), wire::Forked{fork, 102}), Heard::kHandled);
}

TEST_F(SharingTest, AForkIsDroppedByItsHolderOnly) {
  const Ref value = share(1);
  const Id fork = send_to(101, value);
  handle(102, wire::Drop{fork});
  EXPECT_EQ(sharing_.forks().size(), 1u);
  handle(101, wire::Drop{fork});
  EXPECT_TRUE(sharing_.forks().empty());
  handle(101, wire::Drop{fork});
  handle(102, wire::Drop{{103, 4}});
}

TEST_F(SharingTest, AnotherCannotTakeTheNameOfAFork) {
  const Ref value = share(1);
  handle(103, wire::Fork{{1, 1}, {101, 2}});
  handle(102, wire::Fork{{1, 1}, {101, 2}});
  EXPECT_EQ(sharing_.forks().size(), 2u);
  handle(103, wire::Drop{{101, 2}});
  ASSERT_EQ(sharing_.forks().size(), 1u);
  EXPECT_EQ(sharing_.forks().front().holder, 102u);
  handle(102, wire::Drop{{101, 2}});
  EXPECT_TRUE(sharing_.forks().empty());
}

TEST_F(SharingTest, OnlyOwnerAndReceiverEndAHold) {
  Ref used = std::make_shared<Rref>(home_, Id{50, 1}, peers_.at(101), Id{});
  const Id fork = send_to(102, used);
  used.reset();
  handle(101, wire::Forked{fork, 103});  // another has introduced it in its place
  handle(103, wire::Forked{fork, 102});
  EXPECT_FALSE(sharing_.is_idle());
  handle(101, wire::Forked{fork, 102});
  EXPECT_TRUE(sharing_.is_idle());
  handle(103, wire::Forked{fork, 102});
}

TEST_F(SharingTest, OnlyItsMakerSpeaksForAValue) {
  expect_refused(101, wire::Seek{{102, 1}});
  expect_refused(101, wire::Sought{{102, 1}});
  handle(101, wire::Seek{{100, 1}});
  EXPECT_EQ(count_sent<wire::Sought>(101), 1u);
  handle(101, wire::Sought{{101, 1}});
  EXPECT_THROW(sharing_.on_creation(peer(101), {102, 1}, "call"), Error);
  const auto value = sharing_.on_creation(peer(101), {101, 1}, "call");
  EXPECT_THROW(sharing_.on_creation(peer(101), {101, 1}, "call"), Error);
}

TEST_F(SharingTest, AReferenceComesFromWhoMadeItsFork) {
  EXPECT_THROW(sharing_.on_receive(peer(101), {{50, 1}, 102, 2, {103, 2}}), Error);
  EXPECT_THROW(sharing_.on_receive(peer(101), {{50, 1}, 102, 2, {}}), Error);
  EXPECT_THROW(sharing_.on_receive(peer(101), {{1, 1}, 100, 0, {101, 2}}), Error);
  EXPECT_THROW(sharing_.on_receive(peer(100), {{1, 1}, 100, 0, {100, 2}}), Error);
  EXPECT_TRUE(sharing_.is_empty());
}

TEST_F(SharingTest, AValueSoughtAgainEndsWithTheFirstAnswer) {
  Ref first = sharing_.on_receive(peer(101), {{102, 1}, 100, 0, {}});
  first.reset();
  const Ref second = sharing_.on_receive(peer(103), {{102, 1}, 100, 0, {}});
  EXPECT_EQ(count_sent<wire::Seek>(102), 1u);
  EXPECT_FALSE(second->owned()->outcome().is_done());
  handle(102, wire::Sought{{102, 1}});
  ASSERT_TRUE(second->owned()->outcome().is_done());
  ASSERT_NE(second->owned()->outcome().error(), nullptr);
  EXPECT_EQ(second->owned()->outcome().error()->status(), Status::kNotFound);
  EXPECT_NE(second->owned()->outcome().error()->message().find("\"w3\""), std::string::npos);
  EXPECT_TRUE(sharing_.is_idle());
}

TEST_F(SharingTest, AnOwnerThatWasNeverKnownIsNamedByItsRank) {
  const Ref reference = sharing_.on_receive(peer(101), {{999, 1}, 999, 2, {101, 2}});
  EXPECT_EQ(reference->owner_peer()->name, "w2");
  EXPECT_EQ(reference->owner_peer()->rank, 2);
  EXPECT_EQ(count_sent<wire::Forked>(101), 1u);
}

TEST_F(SharingTest, AMakerThatIsNotKnownIsAskedNothing) {
  const Ref reference = sharing_.on_receive(peer(101), {{999, 1}, 100, 0, {}});
  EXPECT_TRUE(reference->owned()->outcome().is_done());
  EXPECT_TRUE(sent_.empty());
}

}  // namespace
}  // namespace distag::testing
