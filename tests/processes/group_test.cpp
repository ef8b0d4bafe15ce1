// Coming together, calling deep into one another, and parting, over real processes.
#include <gtest/gtest.h>

#include <cstdlib>

#include "processes/processes.h"

namespace distag::testing {
namespace {

int64_t descend(distag_worker* worker, int64_t depth, const char* to, const char* back, distag_error* err) {
  Value count, other, answer;
  int64_t reached = -1;
  distag_value_create_int64(depth, count.out(), err);
  distag_value_create_text(back, other.out(), err);
  distag_value* args[] = {count.get(), other.get()};
  distag_call(worker, nullptr, to, "descend", args, 2, nullptr, answer.out(), err);
  distag_value_get_int64(answer.get(), &reached, err);
  return reached;
}

TEST(NestingTest, TwoHundredDeepWithOnePoolThread) {
  GroupOptions options;
  options.thread_count = 1;
  Group group(options);
  distag_error err = DISTAG_ERROR_INIT;
  EXPECT_EQ(descend(group.worker(), 200, "B", "A", &err), 200);
  EXPECT_EQ(err.code, DISTAG_OK) << err.message;
  group.expect_clean_shutdown();
}

TEST(NestingTest, AFunctionThatCallsItsOwnWorkerTwoHundredDeep) {
  GroupOptions options;
  options.size = 1;
  options.thread_count = 1;
  Group group(options);
  distag_error err = DISTAG_ERROR_INIT;
  EXPECT_EQ(descend(group.worker(), 200, "A", "A", &err), 200);
  EXPECT_EQ(err.code, DISTAG_OK) << err.message;
  group.expect_clean_shutdown();
}

// Starts three processes that meet at `rendezvous`, has them call around, and shuts down.
void expect_a_group_meets(const ParticipantOptions& options, const std::map<std::string, std::string>& shared = {}) {
  std::vector<std::unique_ptr<Process>> others;
  for (int rank = 1; rank < 3; ++rank) {
    ParticipantOptions other = options;
    other.rank = rank;
    auto environment = shared;
    if (!shared.empty()) environment["RANK"] = std::to_string(rank);
    others.push_back(std::make_unique<Process>(other, environment));
  }
  Participant self(options);
  distag_error err = DISTAG_ERROR_INIT;
  ASSERT_EQ(self.start(120 * DISTAG_SECOND, &err), DISTAG_OK) << text_of(err);
  EXPECT_EQ(distag_worker_get_world_size(self.worker()), 3);
  EXPECT_EQ(descend(self.worker(), 3, "B", "C", &err), 3) << err.message;
  Value report;
  EXPECT_EQ(self.shutdown(120 * DISTAG_SECOND, report.out(), &err), DISTAG_OK) << text_of(err);
  for (auto& other : others) EXPECT_EQ(other->wait(120000), 0);
}

TEST(RendezvousTest, File) {
  const TemporaryDirectory directory;
  ParticipantOptions options;
  options.world_size = 3;
  options.rendezvous = "file://" + directory.path();
  expect_a_group_meets(options);
}

TEST(RendezvousTest, Tcp) {
  const ReservedPort port;
  ParticipantOptions options;
  options.world_size = 3;
  options.rendezvous = "tcp://127.0.0.1:" + port.number();
  expect_a_group_meets(options);
}

TEST(RendezvousTest, Environment) {
  const ReservedPort port;
  const std::map<std::string, std::string> variables = {
      {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port.number()}};
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  setenv("RANK", "0", 1);
  expect_a_group_meets(ParticipantOptions(), variables);
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  unsetenv("RANK");
}

// Over tcp the key of the user tells processes of one user from those of another one, on one machine too.
TEST(RendezvousTest, AnotherUserOfTheMachineIsDenied) {
  const TemporaryDirectory home;
  const ReservedPort port;
  ParticipantOptions options;
  options.world_size = 2;
  options.rendezvous = "tcp://127.0.0.1:" + port.number();
  const Process other(options, {{"XDG_STATE_HOME", home.path()}});
  options.rank = 1;
  Participant self(options);
  distag_error err = DISTAG_ERROR_INIT;
  EXPECT_EQ(self.start(120 * DISTAG_SECOND, &err), DISTAG_E_DENIED) << text_of(err);
}

TEST(RendezvousTest, TellsWhoIsMissing) {
  const TemporaryDirectory directory;
  ParticipantOptions options;
  options.world_size = 3;
  options.rendezvous = "file://" + directory.path();
  options.rank = 1;
  const Process other(options);
  options.rank = 0;
  Participant self(options);
  distag_error err = DISTAG_ERROR_INIT;
  EXPECT_EQ(self.start(2 * DISTAG_SECOND, &err), DISTAG_E_DEADLINE) << text_of(err);
  EXPECT_NE(std::string(err.message).find('2'), std::string::npos) << err.message;
}

TEST(RendezvousTest, NobodyServes) {
  const ReservedPort port;
  ParticipantOptions options;
  options.world_size = 2;
  options.rank = 1;
  options.rendezvous = "tcp://127.0.0.1:" + port.number();
  Participant self(options);
  distag_error err = DISTAG_ERROR_INIT;
  const distag_status status = self.start(DISTAG_SECOND / 2, &err);
  EXPECT_TRUE(status == DISTAG_E_DISCONNECTED || status == DISTAG_E_DEADLINE) << text_of(err);
  EXPECT_NE(std::string(err.message).find("127.0.0.1"), std::string::npos) << err.message;
}

TEST(ShutdownTest, IsCleanAndReportsNothing) {
  Group group(GroupOptions{});
  distag_error err = DISTAG_ERROR_INIT;
  descend(group.worker(), 4, "B", "A", &err);
  Value report;
  EXPECT_EQ(group.self().shutdown(120 * DISTAG_SECOND, report.out(), &err), DISTAG_OK) << text_of(err);
  int32_t clean = 0;
  int64_t open_calls = -1;
  distag_value_get_bool(distag_value_get_entry(report.get(), "clean"), &clean, &err);
  distag_value_get_int64(distag_value_get_entry(report.get(), "open_calls"), &open_calls, &err);
  EXPECT_EQ(err.code, DISTAG_OK) << err.message;
  EXPECT_EQ(clean, 1);
  EXPECT_EQ(open_calls, 0);
  EXPECT_EQ(distag_value_get_count(distag_value_get_entry(report.get(), "missing")), 0u);
  EXPECT_EQ(distag_value_get_count(distag_value_get_entry(report.get(), "leaked_rrefs")), 0u);
  EXPECT_EQ(group.process(1).wait(120000), 0);
}

TEST(ShutdownTest, ACallThatIsNeverAnsweredIsReportedAtTheTimeout) {
  Group group(GroupOptions{});
  distag_error err = DISTAG_ERROR_INIT;
  Future open;
  distag_call_async(group.worker(), nullptr, "B", "silence", nullptr, 0, nullptr, open.out(), &err);
  Value report;
  EXPECT_EQ(group.self().shutdown(DISTAG_SECOND / 2, report.out(), &err), DISTAG_OK) << text_of(err);
  int32_t clean = 1;
  int64_t open_calls = 0;
  distag_value_get_bool(distag_value_get_entry(report.get(), "clean"), &clean, &err);
  distag_value_get_int64(distag_value_get_entry(report.get(), "open_calls"), &open_calls, &err);
  EXPECT_EQ(err.code, DISTAG_OK) << err.message;
  EXPECT_EQ(clean, 0);
  EXPECT_EQ(open_calls, 1);
  distag_error cancelled = DISTAG_ERROR_INIT;
  EXPECT_EQ(distag_future_wait(open.get(), 0, &cancelled), DISTAG_E_CANCELLED) << text_of(cancelled);
}

TEST(ShutdownTest, LeavingWithoutWaitingIsSeenByTheOthers) {
  GroupOptions options;
  options.size = 3;
  Group group(options);
  distag_error err = DISTAG_ERROR_INIT;
  descend(group.worker(), 4, "B", "A", &err);
  EXPECT_EQ(group.self().shutdown(0, nullptr, &err), DISTAG_OK) << text_of(err);
  for (int rank = 1; rank < 3; ++rank) EXPECT_EQ(group.process(rank).wait(120000), 0) << "rank " << rank;
}

}  // namespace
}  // namespace distag::testing
