// The meeting by PMIx, with a board that stands in for that of a launcher. The real one: tests/pmix.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "group/group_record.h"
#include "joiners.h"
#include "support/expect.h"

namespace distag {
namespace {

using testing::Joiner;
using testing::Meeting;
using testing::names;

// The processes of one job. Each reads the texts of all once all have put theirs.
class Job {
 public:
  explicit Job(size_t size) : texts(size) {}

  class Board final : public JobBoard {
   public:
    Board(Job& job, int32_t rank) : job_(job), rank_(rank) {}
    void exchange(const std::string& key, const std::string& text, Done done, OnMissing on_missing) override {
      job_.keys.push_back(key);
      done_ = std::move(done);
      on_missing_ = std::move(on_missing);
      put(text);
    }
    void withdraw() override { done_ = {}, on_missing_ = {}; }

    void put(const std::string& text) {
      job_.texts[static_cast<size_t>(rank_)] = text;
      job_.count_present();
    }
    void tell(const std::vector<int32_t>& missing) {
      if (on_missing_) on_missing_(missing);
    }
    bool is_waiting() const { return static_cast<bool>(done_); }
    void finish(Outcome outcome) {
      if (done_) std::exchange(done_, {})(std::move(outcome));
    }
    int32_t told_rank() const { return rank_; }

   private:
    Job& job_;
    const int32_t rank_;
    Done done_;
    OnMissing on_missing_;
  };

  void count_present() { ++present; }
  std::vector<int32_t> missing() const {
    std::vector<int32_t> ranks;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].empty()) ranks.push_back(static_cast<int32_t>(i));
    }
    return ranks;
  }

  std::vector<std::string> texts;
  std::vector<std::string> keys;
  size_t present = 0;
};

class RendezvousPmixTest : public ::testing::Test {
 protected:
  void make(size_t size) {
    job.emplace(size);
    for (size_t rank = 0; rank < size; ++rank) boards.emplace_back(*job, static_cast<int32_t>(rank));
  }
  Joiner& add(JoinRequest request, size_t board) {
    joiners.push_back(std::make_unique<Joiner>(meeting.scheduler, meeting.network, meeting.etcd, meeting.environment,
                                               "pmix://", std::move(request), "", &boards[board]));
    joiners.back()->join();
    return *joiners.back();
  }
  Joiner& add(int32_t rank) {
    return add(meeting.request(rank, static_cast<int32_t>(boards.size())), static_cast<size_t>(rank));
  }
  void finish() {
    for (size_t i = 0; i < joiners.size(); ++i) {
      joiners[i]->loop().run([&] { boards[i].finish({boards[i].told_rank(), job->texts, std::nullopt}); });
    }
  }
  // The record of the member of this rank, with one thing changed.
  std::string text_of(int32_t rank, const std::function<void(GroupRecord&)>& change = {}) {
    JoinRequest request = meeting.request(rank, static_cast<int32_t>(boards.size()));
    GroupRecord record{request.job, wire::kProtocolVersion, request.world_size, {}};
    record.book.seats[rank].peer = request.self;
    record.book.seats[rank].peer.generation = 1;
    record.book.generations[request.self.name] = 1;
    if (change) change(record);
    return write_group_record(record);
  }

  Meeting meeting{"pmix://"};
  std::optional<Job> job;
  std::deque<Job::Board> boards;
  std::vector<std::unique_ptr<Joiner>> joiners;
};

TEST_F(RendezvousPmixTest, AllGetTheSameMembersByRank) {
  make(4);
  for (int32_t rank = 0; rank < 4; ++rank) add(rank);
  EXPECT_EQ(job->keys, std::vector<std::string>(4, "distag.job"));
  finish();
  for (const auto& joiner : joiners) {
    ASSERT_TRUE(joiner->succeeds());
    EXPECT_EQ(names(joiner->outcome()), "w0 w1 w2 w3");
    const Incarnation known = joiner->outcome().members[2].incarnation;
    EXPECT_EQ(joiner->look_up(known)->peer->name, "w2");
    EXPECT_FALSE(joiner->look_up(known + 100)->peer.has_value());
  }
}

TEST_F(RendezvousPmixTest, ListsWhoIsMissingAtTheDeadline) {
  make(3);
  Joiner& first = add(0);
  Joiner& second = add(1);
  boards[0].tell(job->missing());
  EXPECT_EQ(first.error().status(), Status::kDeadline);
  EXPECT_EQ(first.error().message(), "rendezvous \"pmix://\": rank 2 of a world of 3 did not come in time");
  EXPECT_EQ(second.error().message(),
            "rendezvous \"pmix://\": the 3 processes of the job did not all come in time");  // its board told nothing
  EXPECT_FALSE(boards[0].is_waiting());
  finish();  // too late: told once
}

TEST_F(RendezvousPmixTest, ALongStartSaysWhoIsMissing) {
  make(2);
  Joiner& joiner = add(1);
  boards[1].tell({0});
  joiner.error();
  ASSERT_FALSE(joiner.logged.empty());
  EXPECT_NE(joiner.logged.front().find("rank 0 of a world of 2"), std::string::npos) << joiner.logged.front();
}

TEST_F(RendezvousPmixTest, FailuresOfTheLauncherAreTheOutcome) {
  make(1);
  Joiner& joiner = add(0);
  joiner.loop().run([&] { boards[0].finish({-1, {}, Error(Status::kDisconnected, "PMIx: gone")}); });
  EXPECT_EQ(joiner.error().status(), Status::kDisconnected);
  EXPECT_EQ(joiner.error().message(), "rendezvous \"pmix://\": PMIx: gone");
}

TEST_F(RendezvousPmixTest, AnotherPlaceThanTheLauncherSaysIsRefused) {
  make(2);
  Joiner& joiner = add(meeting.request(1, 2), 0);
  job->texts[1] = text_of(1);
  finish();
  EXPECT_EQ(joiner.error().status(), Status::kInvalidArgument);
  EXPECT_NE(joiner.error().message().find("rank 1 of 2 by its options or environment, and rank 0 of 2 by PMIx"),
            std::string::npos)
      << joiner.error().message();
  JoinRequest open = meeting.request(0, 2);
  open.world_size = -1;
  EXPECT_EQ(add(open, 1).error().status(), Status::kInvalidArgument);
}

TEST_F(RendezvousPmixTest, AWorldOfAnotherSizeIsRefused) {
  make(3);
  Joiner& joiner = add(meeting.request(0, 2), 0);
  finish();
  EXPECT_NE(joiner.error().message().find("rank 0 of 2 by its options or environment, and rank 0 of 3 by PMIx"),
            std::string::npos)
      << joiner.error().message();
}

// Any process of the job may put such a text, by mistake or on purpose.
TEST_F(RendezvousPmixTest, TextsOfOthersAreChecked) {
  const std::map<std::string, std::pair<std::string, Status>> texts = [this] {
    make(2);
    std::map<std::string, std::pair<std::string, Status>> made;
    made["nothing"] = {"", Status::kDisconnected};
    made["no record"] = {"{\"job\":", Status::kProtocol};
    made["another rank"] = {text_of(0), Status::kProtocol};
    made["two members"] = {text_of(1,
                                   [](GroupRecord& r) {
                                     r.book.seats[0].peer = r.book.seats[1].peer, r.book.seats[0].peer.rank = 0,
                                     r.book.seats[0].peer.name = "x", r.book.generations["x"] = 1,
                                     ++r.book.seats[0].peer.incarnation;
                                   }),
                           Status::kProtocol};
    made["another job"] = {text_of(1, [](GroupRecord& r) { r.job = "other"; }), Status::kDenied};
    made["another size"] = {text_of(1, [](GroupRecord& r) { r.world_size = 3; }), Status::kInvalidArgument};
    made["another version"] = {text_of(1, [](GroupRecord& r) { ++r.protocol; }), Status::kProtocol};
    made["the name of another"] = {text_of(1,
                                           [](GroupRecord& r) {
                                             r.book.seats[1].peer.name = "w0";
                                             r.book.generations = {{"w0", 1}};
                                           }),
                                   Status::kInvalidState};
    return made;
  }();
  for (const auto& [what, text] : texts) {
    joiners.clear();
    boards.clear();
    make(2);
    Joiner& joiner = add(0);
    job->texts[1] = text.first;
    finish();
    EXPECT_EQ(joiner.error().status(), text.second) << what << ": " << joiner.error().message();
    EXPECT_NE(joiner.error().message().find("rank 1"), std::string::npos) << what << ": " << joiner.error().message();
  }
}

TEST_F(RendezvousPmixTest, NothingRunsAfterItsEnd) {
  make(2);
  Joiner& joiner = add(0);
  joiner.leave();
  EXPECT_FALSE(boards[0].is_waiting());
  boards[0].tell({1});
  finish();
  meeting.scheduler.run_for(20 * kSecond);
  EXPECT_FALSE(joiner.is_done());
}

TEST_F(RendezvousPmixTest, NeedsABoard) {
  EXPECT_EQ(testing::failure_of([&] {
              Joiner(meeting.scheduler, meeting.network, meeting.etcd, {}, "pmix://", meeting.request(0, 1));
            }),
            "UNSUPPORTED: rendezvous \"pmix://\": PMIx is not spoken here");
}

}  // namespace
}  // namespace distag
