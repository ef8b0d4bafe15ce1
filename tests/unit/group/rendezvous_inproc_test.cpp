#include <gtest/gtest.h>

#include <thread>

#include "base/fd_loop.h"
#include "joiners.h"

namespace distag {
namespace {

using testing::Joiner;
using testing::Meeting;
using testing::names;

TEST(RendezvousInproc, AllGetTheSameMembersByRank) {
  Meeting meeting("inproc://all");
  for (int32_t rank : {2, 0, 3, 1}) meeting.add(rank, 4);
  for (auto& joiner : meeting.joiners) {
    ASSERT_TRUE(joiner->succeeds());
    EXPECT_EQ(names(joiner->outcome()), "w0 w1 w2 w3");
  }
}

TEST(RendezvousInproc, GroupsOfOneNameFollowEachOther) {
  Meeting meeting("inproc://again");
  for (int round = 0; round < 3; ++round) {
    Joiner& first = meeting.add(0, 2);
    Joiner& second = meeting.add(1, 2);
    ASSERT_TRUE(first.succeeds());
    ASSERT_TRUE(second.succeeds());
    first.leave();
    second.leave();
  }
}

TEST(RendezvousInproc, ListsWhoIsMissingAtTheDeadline) {
  Meeting meeting("inproc://missing");
  Joiner& joiner = meeting.add(1, 4, kSecond);
  meeting.add(3, 4, 2 * kSecond);
  EXPECT_EQ(joiner.error().status(), Status::kDeadline);
  EXPECT_EQ(joiner.error().message(),
            "rendezvous \"inproc://missing\": rank 0, 2 of a world of 4 did not come in time");
  EXPECT_LT(joiner.told_at(), 2001 * kMillisecond);  // the clock starts at one second
  // The joiner that gave up is missing for the other.
  EXPECT_EQ(
      meeting.joiners[1]->error().message(),
      "rendezvous \"inproc://missing\": rank 0, 2 of a world of 4 did not come in time; rank 1 came and went before");
}

TEST(RendezvousInproc, RefusesANameOrRankInUseAndGoesOn) {
  Meeting meeting("inproc://rivals");
  meeting.add(0, 2);
  Joiner& same_rank = meeting.add(0, 2);
  EXPECT_EQ(same_rank.error().status(), Status::kInvalidState);
  EXPECT_EQ(same_rank.error().message(), "rendezvous \"inproc://rivals\": the name \"w0\" is in use by rank 0");
  JoinRequest other = meeting.request(0, 2);
  other.self.name = "other";
  EXPECT_EQ(meeting.add(other).error().message(), "rendezvous \"inproc://rivals\": rank 0 is in use by worker \"w0\"");
  meeting.add(1, 2);
  EXPECT_TRUE(meeting.joiners.front()->succeeds());
}

TEST(RendezvousInproc, ATakenPlaceIsFreeOnceItsHolderIsGone) {
  Meeting meeting("inproc://free");
  meeting.add(0, 2).leave();
  Joiner& again = meeting.add(0, 2);
  Joiner& other = meeting.add(1, 2);
  EXPECT_TRUE(again.succeeds());
  EXPECT_TRUE(other.succeeds());
}

TEST(RendezvousInproc, AnotherSizeOfTheWorldIsRefusedAndTheGroupGoesOn) {
  Meeting meeting("inproc://sizes");
  Joiner& first = meeting.add(0, 2);
  Joiner& other = meeting.add(1, 3);
  EXPECT_EQ(other.error().status(), Status::kInvalidArgument);
  EXPECT_EQ(
      other.error().message(),
      "rendezvous \"inproc://sizes\": worker \"w1\" expects a world of 3, the others a world of 2; give all the same "
      "size");
  EXPECT_TRUE(meeting.add(1, 2).succeeds());
  EXPECT_TRUE(first.succeeds());
}

TEST(RendezvousInproc, AnotherJobIsDenied) {
  Meeting meeting("inproc://jobs");
  meeting.add(0, 2);
  JoinRequest other = meeting.request(1, 2);
  other.job = "another";
  EXPECT_EQ(meeting.add(other).error().status(), Status::kDenied);
  EXPECT_TRUE(meeting.add(1, 2).succeeds());
}

TEST(RendezvousInproc, RefusesRequestsThatAreUnsound) {
  Meeting meeting("inproc://unsound");
  JoinRequest request = meeting.request(0, 2);
  request.self.name = "with space";
  EXPECT_EQ(meeting.add(request).error().status(), Status::kInvalidArgument);
  request.self.name = "";
  EXPECT_EQ(meeting.add(request).error().status(), Status::kInvalidArgument);
  request = meeting.request(0, 2);
  request.job = "";
  EXPECT_EQ(meeting.add(request).error().status(), Status::kInvalidArgument);
  EXPECT_EQ(meeting.add(2, 2).error().status(), Status::kInvalidArgument);
  EXPECT_EQ(meeting.add(0, 0).error().status(), Status::kInvalidArgument);
}

// Members on loop threads of their own join and go at the same time, again and again.
TEST(RendezvousInproc, JoinsAcrossThreads) {
  constexpr int kRounds = 200;
  constexpr int32_t kSize = 3;
  std::vector<std::unique_ptr<FdLoop>> loops;
  for (int32_t rank = 0; rank < kSize; ++rank) {
    loops.push_back(std::make_unique<FdLoop>("loop", ThreadHooks{}));
    loops.back()->start();
  }
  Log log;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::shared_ptr<Future<Unit>>> done;
    for (int32_t rank = 0; rank < kSize; ++rank) {
      auto future = Future<Unit>::make();
      done.push_back(future);
      FdLoop& loop = *loops[static_cast<size_t>(rank)];
      loop.post_or_drop([&loop, &log, rank, round, future] {
        struct Unused final : Transport {
          std::unique_ptr<Acceptor> listen(const std::string&, AcceptorEvents) override { return nullptr; }
          std::unique_ptr<Connection> dial(const std::string&, ConnectionEvents) override { return nullptr; }
          std::unique_ptr<Connection> dial_worker(const std::string&, const std::string&, ConnectionEvents) override {
            return nullptr;
          }
          std::string explain_denial() const override { return ""; }
          void check_endpoint(const std::string&) const override {}
          std::string private_address() override { return ""; }
          void let_last_words_go() override {}
          bool is_exact() const override { return true; }
          bool reports_every_loss() const override { return true; }
          LaneReport lane_report() const override { return {}; }
          SocketReport socket_report() const override { return {}; }
          void check_descriptors(size_t) const override {}
        } transport;
        std::shared_ptr<Rendezvous> rendezvous = make_rendezvous("inproc://threads", {loop, transport, log});
        JoinRequest request;
        request.job = "job";
        request.world_size = kSize;
        request.self.rank = rank;
        request.self.name = "w" + std::to_string(rank);
        request.self.incarnation = static_cast<Incarnation>(round * kSize + rank + 1);
        rendezvous->join(request, [&loop, rendezvous, future](Rendezvous::Outcome outcome) mutable {
          EXPECT_TRUE(outcome.ok) << outcome.error.message();
          loop.post_or_drop([kept = std::move(rendezvous), future]() mutable {
            kept.reset();
            future->complete(Unit{});
          });
        });
      });
    }
    for (const auto& future : done) ASSERT_TRUE(wait(*future, 120 * kSecond));
  }
  for (auto& loop : loops) loop->stop();
}

}  // namespace
}  // namespace distag
