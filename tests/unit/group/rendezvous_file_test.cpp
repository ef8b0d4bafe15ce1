#include <gtest/gtest.h>
#include <sys/stat.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/random.h"
#include "joiners.h"

namespace distag {
namespace {

namespace fs = std::filesystem;
using testing::Joiner;
using testing::Meeting;
using testing::names;

class RendezvousFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ =
        fs::temp_directory_path() / fmt::format("distag_rendezvous_{}_{:x}", info->name(), SystemRandom().next());
    fs::remove_all(directory_);
    meeting_.emplace(uri());
  }
  void TearDown() override {
    meeting_.reset();
    fs::remove_all(directory_);
  }

  std::string uri() const { return "file://" + directory_.string(); }
  Meeting& meeting() { return *meeting_; }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  fs::path directory_;
  std::optional<Meeting> meeting_;
};

TEST_F(RendezvousFileTest, AllGetTheSameMembersByRank) {
  for (int32_t rank : {2, 0, 1}) meeting().add(rank, 3);
  for (auto& joiner : meeting().joiners) {
    ASSERT_TRUE(joiner->succeeds());
    EXPECT_EQ(names(joiner->outcome()), "w0 w1 w2");
    EXPECT_EQ(joiner->outcome().members[1].incarnation, meeting().joiners[2]->request().self.incarnation);
  }
}

TEST_F(RendezvousFileTest, WhoComesLateMeetsThoseWhoWait) {
  meeting().add(0, 2, 60 * kSecond);
  meeting().scheduler.run_for(20 * kSecond);
  EXPECT_TRUE(meeting().add(1, 2).succeeds());
  EXPECT_TRUE(meeting().joiners[0]->succeeds());
}

TEST_F(RendezvousFileTest, TheDirectoryIsEmptyAfterTheLastOneLeaves) {
  for (int round = 0; round < 2; ++round) {
    Joiner& first = meeting().add(0, 2);
    Joiner& second = meeting().add(1, 2);
    ASSERT_TRUE(first.succeeds());
    ASSERT_TRUE(second.succeeds());
    first.leave();
    EXPECT_GT(files(), 0u);
    second.leave();
    EXPECT_EQ(files(), 0u);
  }
}

// Each sees the other one still there, and leaves the files to it.
TEST_F(RendezvousFileTest, TheDirectoryIsEmptyAfterTwoLeaveAtOnce) {
  Meeting other(uri());
  for (int round = 0; round < 500; ++round) {
    Joiner& first = meeting().add(0, 2);
    JoinRequest request = other.request(1, 2);
    request.self.incarnation += 1'000'000;
    Joiner& second = other.add(std::move(request));
    ASSERT_TRUE(second.succeeds());
    ASSERT_TRUE(first.succeeds());
    std::barrier both(2);
    std::thread leaves([&] {
      both.arrive_and_wait();
      second.leave();
    });
    both.arrive_and_wait();
    first.leave();
    leaves.join();
    ASSERT_EQ(files(), 0u) << "in round " << round;
  }
}

// The first one is there, has the roster and leaves, all before the second one looks again.
TEST_F(RendezvousFileTest, WhoLeavesEarlyIsInTheRosterOfTheOthers) {
  Joiner& slow = meeting().add(1, 2);
  slow.loop().freeze();
  Joiner& fast = meeting().add(0, 2);
  ASSERT_TRUE(fast.succeeds());
  fast.leave();
  slow.loop().thaw();
  ASSERT_TRUE(slow.succeeds());
  EXPECT_EQ(names(slow.outcome()), "w0 w1");
}

TEST_F(RendezvousFileTest, ListsWhoIsMissingAndCleansUp) {
  Joiner& joiner = meeting().add(1, 3, kSecond);
  EXPECT_EQ(joiner.error().status(), Status::kDeadline);
  EXPECT_EQ(joiner.error().message(),
            fmt::format("rendezvous \"{}\": rank 0, 2 of a world of 3 did not come in time", uri()));
  EXPECT_EQ(files(), 0u);
}

// Each says the same of those who never came, whoever gives up first.
TEST_F(RendezvousFileTest, WhoGaveUpIsToldApartFromWhoNeverCame) {
  Joiner& first = meeting().add(0, 4, kSecond);
  Joiner& second = meeting().add(3, 4, 2 * kSecond);
  Joiner& third = meeting().add(1, 4, 3 * kSecond);
  const std::string never = fmt::format("rendezvous \"{}\": rank 2 of a world of 4 did not come in time", uri());
  EXPECT_EQ(first.error().message(), never);
  EXPECT_EQ(second.error().message(), never + "; rank 0 came and went before");
  EXPECT_EQ(third.error().message(), never + "; rank 0, 3 came and went before");
  EXPECT_EQ(files(), 0u);
}

TEST_F(RendezvousFileTest, SaysThatAllCameButNotTogether) {
  Meeting apart(uri());
  apart.add(0, 3, kSecond);
  Joiner& patient = apart.add(1, 3, 5 * kSecond);
  apart.scheduler.run_for(2 * kSecond);
  Joiner& late = apart.add(2, 3, 5 * kSecond);
  const std::string text = fmt::format(
      "rendezvous \"{}\": rank 0 of a world of 3 came and went before all were there; start all within the timeout of "
      "each",
      uri());
  EXPECT_EQ(patient.error().message(), text);
  EXPECT_EQ(late.error().message(),
            fmt::format("rendezvous \"{}\": rank 0, 1 of a world of 3 came and went before all were there; start all "
                        "within the timeout of each",
                        uri()));
}

// Another one takes the place of who gave up, after it was seen.
TEST_F(RendezvousFileTest, WhoGaveUpIsNotInTheRoster) {
  Joiner& patient = meeting().add(0, 3, 60 * kSecond);
  meeting().add(1, 3, kSecond);
  meeting().scheduler.run_for(2 * kSecond);
  Joiner& again = meeting().add(1, 3, 60 * kSecond);
  meeting().scheduler.run_for(2 * kSecond);
  Joiner& last = meeting().add(2, 3, 60 * kSecond);
  for (Joiner* joiner : {&patient, &again, &last}) {
    ASSERT_TRUE(joiner->succeeds());
    EXPECT_EQ(joiner->outcome().members[1].incarnation, again.request().self.incarnation);
  }
}

TEST_F(RendezvousFileTest, RefusesANameOrRankInUseAndGoesOn) {
  meeting().add(0, 2);
  JoinRequest same_rank = meeting().request(0, 2);
  same_rank.self.name = "other";
  EXPECT_EQ(meeting().add(same_rank).error().status(), Status::kInvalidState);
  EXPECT_NE(meeting().joiners.back()->error().message().find("rank 0 is in use"), std::string::npos);
  JoinRequest same_name = meeting().request(1, 2);
  same_name.self.name = "w0";
  EXPECT_NE(meeting().add(same_name).error().message().find("the name \"w0\" is in use"), std::string::npos);
  EXPECT_TRUE(meeting().add(1, 2).succeeds());
}

TEST_F(RendezvousFileTest, AnotherSizeIsRefusedAndTheOthersLearnOfItIfTheyWaitInVain) {
  JoinRequest request = meeting().request(0, 2);
  request.deadline = meeting().scheduler.now() + 5 * kSecond;
  Joiner& waiting = meeting().add(request);
  Joiner& other = meeting().add(1, 3);
  EXPECT_EQ(other.error().status(), Status::kInvalidArgument);
  EXPECT_NE(other.error().message().find("expects a world of 3, the others a world of 2"), std::string::npos);
  EXPECT_EQ(waiting.error().message(),
            fmt::format("rendezvous \"{}\": rank 1 of a world of 2 did not come in time; worker \"w1\" expects a world "
                        "of 3, and was refused",
                        uri()));
  meeting().joiners.clear();
  EXPECT_EQ(files(), 0u);
}

TEST_F(RendezvousFileTest, TheOthersLearnWhoWasRefusedIfTheyWaitInVain) {
  JoinRequest request = meeting().request(0, 2);
  request.deadline = meeting().scheduler.now() + 5 * kSecond;
  Joiner& waiting = meeting().add(request);
  for (int i = 0; i < 2; ++i) {  // started twice
    JoinRequest same_name = meeting().request(1, 2);
    same_name.self.name = "w0";
    same_name.self.endpoint = "sim://other";
    same_name.host = "host7";
    same_name.process = 77;
    EXPECT_EQ(meeting().add(same_name).error().status(), Status::kInvalidState);
  }
  JoinRequest other_job = meeting().request(1, 2);
  other_job.job = "another";
  EXPECT_EQ(meeting().add(other_job).error().status(), Status::kDenied);
  const std::string message = waiting.error().message();
  EXPECT_TRUE(
      message.starts_with(fmt::format("rendezvous \"{}\": rank 1 of a world of 2 did not come in time; refused "
                                      "meanwhile: the name \"w0\" is in use by rank 0 (at sim://other) "
                                      "(process 77 of host host7); ",
                                      uri())))
      << message;
  EXPECT_NE(message.find("another"), std::string::npos) << message;
  EXPECT_EQ(message.find("host7"), message.rfind("host7")) << message;
}

TEST_F(RendezvousFileTest, AnotherJobIsDeniedAndTheGroupGoesOn) {
  meeting().add(0, 2);
  JoinRequest other = meeting().request(1, 2);
  other.job = "another";
  EXPECT_EQ(meeting().add(other).error().status(), Status::kDenied);
  EXPECT_TRUE(meeting().add(1, 2).succeeds());
}

// The members were killed: their files are still there, and say that the group is complete.
TEST_F(RendezvousFileTest, TakesADirectoryThatAKilledJobHasLeft) {
  const fs::path kept = directory_.string() + ".kept";
  {
    Meeting earlier(uri());
    earlier.add(0, 2);
    earlier.add(1, 2);
    ASSERT_TRUE(earlier.joiners[0]->succeeds());
    ASSERT_TRUE(earlier.joiners[1]->succeeds());
    fs::copy(directory_ / "group", kept);
  }
  fs::rename(kept, directory_ / "group");
  Joiner& first = meeting().add(0, 2);
  meeting().scheduler.run_for(kSecond);
  EXPECT_FALSE(first.is_done());
  Joiner& second = meeting().add(1, 2);
  ASSERT_TRUE(first.succeeds());
  ASSERT_TRUE(second.succeeds());
  EXPECT_EQ(first.outcome().members[1].incarnation, second.request().self.incarnation);
}

TEST_F(RendezvousFileTest, RefusesForeignFilesAndPaths) {
  fs::create_directory(directory_);
  std::ofstream(directory_ / "group") << "not json";
  EXPECT_EQ(meeting().add(0, 2).error().status(), Status::kProtocol);
  std::ofstream(directory_ / "group") << "[1, 2]";
  EXPECT_EQ(meeting().add(0, 2).error().status(), Status::kProtocol);
  Meeting nowhere("file://" + (directory_ / "not" / "there").string());
  EXPECT_EQ(nowhere.add(0, 1).error().status(), Status::kInvalidArgument);
  fs::remove(directory_ / "group");
  for (const std::string name : {"group", "draft", "lock"}) {
    SCOPED_TRACE(name);
    const fs::path path = directory_ / name;
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const Error fifo = meeting().add(0, 2).error();
    EXPECT_EQ(fifo.status(), Status::kInvalidState);
    EXPECT_EQ(fifo.message(),
              fmt::format("rendezvous \"{}\": \"{}\" is no regular file: remove it", uri(), path.string()));
    fs::remove(path);
    fs::create_directory(path);
    const Error directory = meeting().add(0, 2).error();
    EXPECT_EQ(directory.status(), Status::kInvalidState);
    EXPECT_NE(directory.message().find(path.string()), std::string::npos) << directory.message();
    EXPECT_EQ(directory.message().find("basic_filebuf"), std::string::npos) << directory.message();
    fs::remove(path);
  }
  Meeting relative("file://relative");
  EXPECT_THROW(relative.add(0, 1), Error);
}

}  // namespace
}  // namespace distag
