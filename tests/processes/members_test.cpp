// Members that are killed and come back, worlds that are open, and many workers on one machine, over real processes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "processes/processes.h"

namespace distag::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSize = 16;  // processes; more do not keep their leases when each access is checked
#else
constexpr int kSize = 64;
#endif

class MembersTest : public ::testing::TestWithParam<const char*> {
 protected:
  ParticipantOptions options(int world_size) const {
    ParticipantOptions made;
    made.world_size = world_size;
    const bool is_file = std::string(GetParam()) == "file";
    made.rendezvous = is_file ? "file://" + directory_.path() : "tcp://127.0.0.1:" + port_.number();
    return made;
  }

  // Processes of the ranks from 1 on, and this one, which is started.
  void begin(const ParticipantOptions& given, int size) {
    for (int rank = 1; rank < size; ++rank) others_.push_back(std::make_unique<Process>(of_rank(given, rank)));
    self_ = std::make_unique<Participant>(given);
    ASSERT_EQ(self_->start(240 * DISTAG_SECOND, &err_), DISTAG_OK) << text_of(err_);
  }
  static ParticipantOptions of_rank(ParticipantOptions given, int rank) {
    given.rank = rank;
    return given;
  }
  void replace(int rank, const ParticipantOptions& given) {
    auto& place = others_.at(static_cast<size_t>(rank - 1));
    place->kill();
    place->wait(-1);
    place = std::make_unique<Process>(of_rank(given, rank));
  }
  int64_t call_all(const std::string& worker) {
    return call_for_numbers(self_->worker(), worker.c_str(), "call_all").at(0);
  }
  void expect_that_each_calls_each();
  void expect_clean_end() {
    Value report;
    EXPECT_EQ(self_->shutdown(120 * DISTAG_SECOND, report.out(), &err_), DISTAG_OK) << text_of(err_);
    int32_t clean = 0;
    distag_value_get_bool(distag_value_get_entry(report.get(), "clean"), &clean, &err_);
    EXPECT_EQ(clean, 1);
    for (size_t i = 0; i < others_.size(); ++i) EXPECT_EQ(others_[i]->wait(120000), 0) << "rank " << i + 1;
  }

  const TemporaryDirectory directory_;
  const ReservedPort port_;
  std::vector<std::unique_ptr<Process>> others_;
  std::unique_ptr<Participant> self_;
  distag_error err_ = DISTAG_ERROR_INIT;
};

TEST_P(MembersTest, AKilledWorkerOfAStaticWorldIsStartedAgain) {
  const ParticipantOptions given = options(3);
  ASSERT_NO_FATAL_FAILURE(begin(given, 3));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(call_all("B"), 3);
    EXPECT_EQ(call_all("C"), 3);
    replace(1, given);
    ASSERT_TRUE(self_->wait_until_seen("B", round + 2));
  }
  EXPECT_EQ(call_all("B"), 3);
  EXPECT_EQ(call_all("A"), 3);
  distag_member member = DISTAG_MEMBER_INIT;
  EXPECT_EQ(distag_worker_get_member_by_name(self_->worker(), "B", &member, &err_), DISTAG_OK);
  EXPECT_EQ(member.rank, 1);
  EXPECT_EQ(member.state, DISTAG_MEMBER_ALIVE);
  expect_clean_end();
}

TEST_P(MembersTest, AnOpenCallToAWorkerThatIsKilledAndComesBackFails) {
  const ParticipantOptions given = options(2);
  ASSERT_NO_FATAL_FAILURE(begin(given, 2));
  Future open;
  distag_call_async(self_->worker(), nullptr, "B", "silence", nullptr, 0, nullptr, open.out(), &err_);
  EXPECT_EQ(call_all("B"), 2);  // by now the other call is there
  replace(1, given);
  distag_error failed = DISTAG_ERROR_INIT;
  const distag_status status = distag_future_wait(open.get(), 120 * DISTAG_SECOND, &failed);
  EXPECT_TRUE(status == DISTAG_E_DISCONNECTED || status == DISTAG_E_PEER_RESTARTED) << text_of(failed);
  EXPECT_NE(failed.flags & DISTAG_ERROR_MAY_HAVE_RUN, 0u);
  ASSERT_TRUE(self_->wait_until_seen("B", 2));
  EXPECT_EQ(call_all("B"), 2);
  expect_clean_end();
}

// By file:// the members are joined by lanes: one is killed while it dials, sends, receives or sleeps.
TEST_P(MembersTest, OneThatIsKilledAtAnyMomentOfItsCallsIsLostAndComesBack) {
  const ParticipantOptions given = options(2);
  ASSERT_NO_FATAL_FAILURE(begin(given, 2));
  for (int round = 0; round < 12; ++round) {
    std::vector<Future> open(50);
    for (Future& one : open) {
      distag_call_async(self_->worker(), nullptr, "B", "call_all", nullptr, 0, nullptr, one.out(), &err_);
    }
    ASSERT_EQ(err_.code, DISTAG_OK) << text_of(err_);
    for (int i = 0; i < round * 4; ++i) {
      EXPECT_EQ(distag_future_wait(open[static_cast<size_t>(i)].get(), 120 * DISTAG_SECOND, &err_), DISTAG_OK);
    }
    replace(1, given);
    for (Future& one : open) {
      distag_error failed = DISTAG_ERROR_INIT;
      const distag_status status = distag_future_wait(one.get(), 120 * DISTAG_SECOND, &failed);
      EXPECT_TRUE(status == DISTAG_OK || status == DISTAG_E_DISCONNECTED || status == DISTAG_E_PEER_RESTARTED)
          << text_of(failed);
    }
    ASSERT_TRUE(self_->wait_until_seen("B", round + 2));
    EXPECT_EQ(call_all("B"), 2);
  }
  expect_clean_end();
}

TEST_P(MembersTest, AnOpenWorldTakesProcessesThatComeGoAndDie) {
  const ParticipantOptions given = options(-1);
  self_ = std::make_unique<Participant>(given);
  ASSERT_EQ(self_->start(120 * DISTAG_SECOND, &err_), DISTAG_OK) << text_of(err_);
  EXPECT_EQ(distag_worker_get_world_size(self_->worker()), 1);
  {
    Process killed(of_rank(given, 1));
    ASSERT_TRUE(self_->wait_until_seen("B", 1));
  }
  Process again(of_rank(given, 1));
  ASSERT_TRUE(self_->wait_until_seen("B", 2));
  EXPECT_EQ(call_all("B"), 2);
  call_for_numbers(self_->worker(), "B", "leave");
  EXPECT_EQ(again.wait(120000), 0) << "it leaves alone";
  Process other(of_rank(given, 5));
  ASSERT_TRUE(self_->wait_until_seen("F", 1));
  EXPECT_EQ(call_all("F"), 2);
  call_for_numbers(self_->worker(), "F", "leave");
  EXPECT_EQ(other.wait(120000), 0);
  expect_clean_end();
}

// Start, each calls each, shut down: 1.4 to 1.9 s on two cores with an optimised build.
TEST_P(MembersTest, ManyWorkersOnOneMachine) {
  ParticipantOptions given = options(kSize);
  given.thread_count = 1;
  const auto begun = std::chrono::steady_clock::now();
  auto seconds = [&begun] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); };
  ASSERT_NO_FATAL_FAILURE(begin(given, kSize));
  expect_that_each_calls_each();
  expect_clean_end();
  std::printf("figure: processes.%d_workers_%s_s %.2f s\n", kSize, GetParam(), seconds());
}

// The same where everyone comes and goes when it likes.
TEST_P(MembersTest, ManyWorkersOfAnOpenWorld) {
  ParticipantOptions given = options(-1);
  given.thread_count = 1;
  ASSERT_NO_FATAL_FAILURE(begin(given, kSize));
  ASSERT_TRUE(self_->wait_until_started(kSize - 1));
  expect_that_each_calls_each();
  for (int rank = 1; rank < kSize; ++rank) {
    call_for_numbers(self_->worker(), Participant::name_of(rank).c_str(), "leave");
  }
  expect_clean_end();
}

void MembersTest::expect_that_each_calls_each() {
  std::vector<Future> answers(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    const std::string name = Participant::name_of(rank);
    distag_call_async(self_->worker(), nullptr, name.c_str(), "call_all", nullptr, 0, nullptr,
                      answers[static_cast<size_t>(rank)].out(), &err_);
  }
  for (Future& answer : answers) {
    distag_value* reached = nullptr;  // lent
    int64_t count = 0;
    distag_future_wait(answer.get(), DISTAG_FOREVER, &err_);
    distag_future_get_value(answer.get(), &reached, &err_);
    distag_value_get_int64(reached, &count, &err_);
    EXPECT_EQ(count, kSize);
  }
  EXPECT_EQ(err_.code, DISTAG_OK) << err_.message;
}

INSTANTIATE_TEST_SUITE_P(At, MembersTest, ::testing::Values("file", "tcp"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace distag::testing
