#include "dautograd/context_record.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/expect.h"

namespace distag {
namespace {

using testing::error_of;

constexpr Id kContext{7, 1};
constexpr Id kPass{9, 3};
constexpr Nanos kLong = 30 * kSecond;

autograd::GradientStore::Entries one_gradient(const Tensor& leaf, double value) {
  return {{leaf, Tensor::scalar(Dtype::kFloat64, value)}};
}

TEST(ContextRecordTest, AReaderWaitsForTheVerdictOfAPassThatHasRunHere) {
  ContextRecord record(kContext, 1);
  const Tensor leaf = Tensor::scalar(Dtype::kFloat64, 0);
  EXPECT_TRUE(record.read(kLong)->entries.empty());
  record.begin_prepared(kPass);
  std::thread verdict([&] { record.commit(kPass, one_gradient(leaf, 5)); });
  EXPECT_EQ(record.read(kLong)->find(leaf)->item(), 5);
  verdict.join();
  record.begin_prepared(kPass);
  std::thread abort([&] { record.forget(kPass); });
  EXPECT_EQ(record.read(kLong)->find(leaf)->item(), 5);
  abort.join();
}

TEST(ContextRecordTest, AReaderWaitsAtMostTheLeaseAndNamesThePass) {
  ContextRecord record(kContext, 1);
  record.begin_prepared(kPass);
  record.begin_prepared({9, 4});
  const Error error = error_of([&] { record.read(kMillisecond); });
  EXPECT_EQ(error.status(), Status::kDeadline);
  EXPECT_NE(error.message().find("pass 3"), std::string::npos) << error.message();
}

TEST(ContextRecordTest, AnUnknownVerdictStaysUntilTheContextEnds) {
  ContextRecord record(kContext, 1);
  record.begin_prepared(kPass);
  record.lose_verdict(kPass, Error(Status::kDisconnected, "lost"));
  EXPECT_EQ(error_of([&] { record.read(kLong); }).status(), Status::kDisconnected);
  record.commit({9, 4}, {});
  EXPECT_EQ(error_of([&] { record.read(kLong); }).status(), Status::kDisconnected);
  record.close(Error(Status::kInvalidState, "over"));
  EXPECT_EQ(error_of([&] { record.read(kLong); }).status(), Status::kInvalidState);
}

TEST(ContextRecordTest, TheEndOfTheContextEndsWaitsAndTheFirstReasonStands) {
  ContextRecord record(kContext, 1);
  record.begin_prepared(kPass);
  std::thread end([&] { record.close(Error(Status::kDisconnected, "creator lost")); });
  const Error error = error_of([&] { record.read(kLong); });
  end.join();
  EXPECT_EQ(error.status(), Status::kDisconnected);
  record.close(Error(Status::kInvalidState, "released"));
  EXPECT_EQ(error_of([&] { record.info(); }).message(), "creator lost");
  EXPECT_EQ(error_of([&] { record.begin_pass(); }).message(), "creator lost");
}

TEST(ContextRecordTest, SettledMeansThatAReaderWouldNotWait) {
  const auto record = std::make_shared<ContextRecord>(kContext, 1);
  EXPECT_TRUE(record->settle()->value().is_null());
  record->begin_prepared(kPass);
  record->begin_prepared({9, 4});
  const auto settled = record->settle();
  record->commit(kPass, {});
  EXPECT_FALSE(settled->is_done());
  record->begin_prepared({9, 5});  // of a later pass: not waited for
  record->forget({9, 4});
  ASSERT_TRUE(settled->is_done());
  EXPECT_EQ(settled->error(), nullptr);
  const auto next = record->settle();
  EXPECT_NE(record->late(kMillisecond).message().find("pass 5"), std::string::npos);
  record->lose_verdict({9, 5}, Error(Status::kDisconnected, "lost"));
  ASSERT_TRUE(next->is_done());
  EXPECT_EQ(next->error()->status(), Status::kDisconnected);
  record->close(Error(Status::kInvalidState, "over"));
  EXPECT_EQ(error_of([&] { record->settle(); }).status(), Status::kInvalidState);
}

TEST(ContextRecordTest, TheEndOfTheContextEndsWhatIsNotSettled) {
  const auto record = std::make_shared<ContextRecord>(kContext, 1);
  record->begin_prepared(kPass);
  const auto settled = record->settle();
  record->close(Error(Status::kInvalidState, "over"));
  ASSERT_TRUE(settled->is_done());
  EXPECT_EQ(settled->error()->status(), Status::kInvalidState);
}

TEST(ContextRecordTest, AWaitForVerdictsThatIsCancelledIsNamed) {
  const auto record = std::make_shared<ContextRecord>(kContext, 1);
  record->begin_prepared(kPass);
  const auto settled = record->settle();
  settled->cancel();
  ASSERT_TRUE(settled->is_done());
  EXPECT_EQ(settled->error()->message(), "context_settle: cancelled by the caller");
}

TEST(ContextRecordTest, SumsDoNotDependOnTheOrderInWhichPassesCommit) {
  const Tensor leaf = Tensor::scalar(Dtype::kFloat64, 0);
  const std::vector<double> values{1e16, 1, -1e16};
  std::vector<double> sums;
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    ContextRecord record(kContext, 1);
    for (size_t i : order) record.commit({9, i}, one_gradient(leaf, values[i]));
    sums.push_back(record.read(kLong)->find(leaf)->item());
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

}  // namespace
}  // namespace distag
