// all_gather over whole workers: order, subsets, members that do not come, members that are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/sim_group.h"
#include "tensor/deferred.h"

namespace distag::sim {
namespace {

using Gathered = std::shared_ptr<Future<Value>>;
using Ranks = std::vector<int32_t>;

SimGroupOptions options_for(int32_t size) {
  SimGroupOptions options;
  options.size = size;
  return options;
}

Gathered gather(SimWorkerGroup& group, int32_t rank, int64_t value, std::optional<Ranks> ranks = std::nullopt,
                Nanos timeout = 30 * kSecond) {
  return group.worker(rank).group().all_gather(Value(value), std::move(ranks), timeout);
}

std::vector<int64_t> values_of(const Gathered& gathered) {
  wait(*gathered, kForever);
  std::vector<int64_t> values;
  for (const Value& value : gathered->value().as_list()) values.push_back(value.as_int64());
  return values;
}

// The error of a gathering; fails the test if the gathering has no error.
Error failure_of(const Gathered& gathered) {
  wait(*gathered, kForever);
  if (gathered->error() != nullptr) return *gathered->error();
  ADD_FAILURE() << "it did not fail";
  return Error();
}

void expect_failure(const Error& error, Status status, const std::string& word) {
  EXPECT_EQ(error.status(), status) << error.message();
  EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
}

// Ranks or turns as they travel.
Value row(const std::vector<int64_t>& numbers) {
  Tensor tensor = Tensor::empty(Dtype::kInt64, {static_cast<int64_t>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_as<int64_t>());
  return Value(tensor);
}

TEST(AllGather, GivesEveryoneTheValuesOfAllInTheOrderOfRanks) {
  for_each_seed(20, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(1 + static_cast<int32_t>(seed % 5)));
    group.start();
    for (int64_t round = 0; round < 3; ++round) {
      std::vector<Gathered> all;
      std::vector<int64_t> expected;
      for (int32_t rank = 0; rank < group.size(); ++rank) {
        all.push_back(gather(group, rank, 100 * round + rank));
        expected.push_back(100 * round + rank);
      }
      for (const Gathered& one : all) EXPECT_EQ(values_of(one), expected);
    }
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

Value nested(int deep) {
  Value value(int64_t{1});
  for (int i = 0; i < deep; ++i) value = Value::list({value});
  return value;
}

// Each value travels to the first of the ranks, but all of them travel back to none: no member has the round.
TEST(AllGather, ValuesThatAreTooLargeTogetherFailOnAll) {
  SimGroupOptions options = options_for(3);
  options.max_message_bytes = size_t{1} << 20;
  SimWorkerGroup group(1, options);
  group.start();
  const Value large = Value(Tensor::empty(Dtype::kFloat64, {75'000}));
  std::vector<Gathered> all;
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    all.push_back(group.worker(rank).group().all_gather(large, std::nullopt, 30 * kSecond));
  }
  for (const Gathered& one : all) expect_failure(failure_of(one), Status::kInvalidArgument, "exceeds the limit");
  all.clear();
  for (int32_t rank = 0; rank < group.size(); ++rank) all.push_back(gather(group, rank, rank));
  for (const Gathered& one : all) EXPECT_EQ(values_of(one), (std::vector<int64_t>{0, 1, 2}));
}

// The value of one member cannot be sent. The calls after that one meet as before, though all are made at once.
TEST(AllGather, AValueThatCannotBeSentFailsOnAllWithTheSameError) {
  for (const int32_t victim : {0, 1, 2}) {
    for (const std::string fault : {"exceeds the limit", "nests 16 deep", "undefined tensor"}) {
      SimGroupOptions options = options_for(3);
      options.max_message_bytes = size_t{1} << 20;
      SimWorkerGroup group(1, options);
      group.start();
      const Value wrong = fault == "exceeds the limit" ? Value(Tensor::empty(Dtype::kFloat64, {150'000}))
                          : fault == "nests 16 deep"   ? nested(16)
                                                       : Value(Tensor());
      std::vector<Gathered> first, second;
      for (int32_t rank = 0; rank < group.size(); ++rank) {
        const Value& value = rank == victim ? wrong : Value(int64_t{rank});
        first.push_back(group.worker(rank).group().all_gather(value, std::nullopt, 30 * kSecond));
        second.push_back(gather(group, rank, 10 + rank));
        group.scheduler().run_for(100 * kMillisecond);
      }
      const Error error = failure_of(first.front());
      expect_failure(error, Status::kInvalidArgument, fault);
      expect_failure(error, Status::kInvalidArgument, "worker \"" + SimWorkerGroup::name(victim) + "\"");
      for (const Gathered& one : first) {
        EXPECT_EQ(failure_of(one).message(), error.message());
        EXPECT_EQ(failure_of(one).origin_rank(), victim);
      }
      for (const Gathered& one : second) EXPECT_EQ(values_of(one), (std::vector<int64_t>{10, 11, 12}));
      for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
    }
  }
}

// The first of the ranks has no room for the value of one member: it counts as one that cannot be sent.
TEST(AllGather, AValueForWhichThereIsNoRoomFailsOnAll) {
  SimGroupOptions options = options_for(7);
  options.max_message_bytes = size_t{1} << 20;
  SimWorkerGroup group(1, options);
  group.start();
  const Value large = Value::bytes(Value::Bytes((size_t{1} << 19) - 1000));
  std::vector<Gathered> first;
  for (int32_t other = 2; other < 7; ++other) {
    first.push_back(group.worker(1).group().all_gather(large, Ranks{0, 1, other}, 30 * kSecond));
    group.scheduler().run_for(kSecond);
  }
  const Gathered refused = first.back();
  const Gathered next = gather(group, 1, 11, Ranks{0, 1, 6});
  for (const int32_t rank : {0, 6}) {
    const Gathered one = gather(group, rank, rank, Ranks{0, 1, 6});
    const Gathered other = gather(group, rank, 10 + rank, Ranks{0, 1, 6});
    if (rank == 0) continue;
    for (const Gathered& each : {refused, one}) expect_failure(failure_of(each), Status::kOverloaded, "worker \"w1\"");
    for (const Gathered& each : {next, other}) EXPECT_EQ(values_of(each), (std::vector<int64_t>{10, 11, 16}));
  }
  group.shutdown(0);
}

TEST(AllGather, GivesTheListInTheOrderInWhichTheCallerNamesTheRanks) {
  SimWorkerGroup group(1, options_for(3));
  group.start();
  const Gathered first = gather(group, 0, 10, Ranks{2, 0});
  const Gathered second = gather(group, 2, 12, Ranks{0, 2});
  EXPECT_EQ(values_of(first), (std::vector<int64_t>{12, 10}));
  EXPECT_EQ(values_of(second), (std::vector<int64_t>{10, 12}));
}

// Rounds of all subsets of four workers side by side over connections that drop: each worker's k-th over a subset meets
// the k-th of the others, though no worker waits for a round before the next.
TEST(AllGather, KeepsTheRoundsOfEachSubsetInOrder) {
  for_each_seed(50, [](uint64_t seed) {
    SimGroupOptions options = options_for(4);
    options.faults.drop = 0.02;
    SimWorkerGroup group(seed, options);
    group.start();
    struct Expected {
      Gathered gathered;
      std::vector<int64_t> values;
    };
    std::vector<Expected> all;
    for (int64_t round = 0; round < 4; ++round) {
      for (int subset = 1; subset < 16; ++subset) {
        Ranks ranks;
        for (int32_t rank = 0; rank < 4; ++rank) {
          if ((subset >> rank & 1) != 0) ranks.push_back(rank);
        }
        std::vector<int64_t> values;
        for (const int32_t rank : ranks) values.push_back(1000 * subset + 10 * round + rank);
        for (const int32_t rank : ranks)
          all.push_back({gather(group, rank, 1000 * subset + 10 * round + rank, ranks), values});
      }
    }
    for (const Expected& one : all) EXPECT_EQ(values_of(one.gathered), one.values);
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

TEST(AllGather, NamesWhoDidNotComeAndMeetsThemTheNextTime) {
  for_each_seed(20, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(4));
    group.start();
    const Nanos begin = group.scheduler().now();
    const Gathered first = gather(group, 0, 1, std::nullopt, 2 * kSecond);
    const Gathered second = gather(group, 2, 1, std::nullopt, 3 * kSecond);
    Error error = failure_of(first);
    EXPECT_LT(group.scheduler().now() - begin, 3 * kSecond);
    expect_failure(error, Status::kDeadline, "\"w1\" (rank 1), worker \"w3\"");
    EXPECT_EQ(error.message().find("\"w2\""), std::string::npos) << error.message();
    expect_failure(error, Status::kDeadline, "all_gather of ranks 0, 1, 2, 3 after 2 s: ");
    error = failure_of(second);
    expect_failure(error, Status::kDeadline, "all_gather of ranks 0, 1, 2, 3 after 3 s: ");
    expect_failure(error, Status::kDeadline,
                   "missing: worker \"w1\" (rank 1), worker \"w3\" (rank 3); gave up: worker "
                   "\"w0\" (rank 0)");
    std::vector<Gathered> all;
    for (int32_t rank = 0; rank < 4; ++rank) all.push_back(gather(group, rank, 20 + rank));
    for (const Gathered& one : all) EXPECT_EQ(values_of(one), (std::vector<int64_t>{20, 21, 22, 23}));
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

// A value that is never made: its source fails.
class Failing final : public Initialiser {
 public:
  explicit Failing(Error why) : why_(std::move(why)) {}
  void fill(const Dims&, const Dims&, std::byte*) const override { throw why_; }

 private:
  const Error why_;
};

Value failing(Status status, const std::string& text) {
  return Value(Tensor::deferred(Dtype::kInt64, {2}, std::make_shared<Failing>(Error(status, text))));
}

// Whatever the source says: it fails the gathering of all, and the next ones meet. Its text travels as UTF-8.
TEST(AllGather, AValueWhoseSourceFailsFailsOnAll) {
  const std::string bad("lost \xff\0 here", 12);
  for (const int32_t victim : {0, 1, 2}) {
    for (const Status status : {Status::kNotFound, Status::kProtocol, Status::kDisconnected, Status(1234)}) {
      SimWorkerGroup group(1, options_for(3));
      group.start();
      std::vector<Gathered> first, second;
      for (int32_t rank = 0; rank < group.size(); ++rank) {
        const Value value = rank == victim ? failing(status, bad) : Value(int64_t{rank});
        first.push_back(group.worker(rank).group().all_gather(value, std::nullopt, 30 * kSecond));
        second.push_back(gather(group, rank, 10 + rank));
      }
      for (const Gathered& one : first) {
        const Error error = failure_of(one);
        expect_failure(error, status, "worker \"" + SimWorkerGroup::name(victim) + "\"");
        expect_failure(error, status, "lost ?? here");
        EXPECT_EQ(error.origin_rank(), victim);
      }
      for (const Gathered& one : second) EXPECT_EQ(values_of(one), (std::vector<int64_t>{10, 11, 12}));
      for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
    }
  }
}

// Others do not come, are lost, or an earlier gathering is not complete: the error names the unsendable value too.
TEST(AllGather, AFailureBesideAValueThatCannotBeSentHasBothReasons) {
  const std::map<std::string, Value> wrong{{"exceeds the limit", Value(Tensor::empty(Dtype::kFloat64, {150'000}))},
                                           {"nests 16 deep", nested(16)},
                                           {"lost ?? here", failing(Status::kDeadline, "lost \xff\xff here")}};
  for (const int32_t victim : {0, 1}) {
    for (const auto& [fault, value] : wrong) {
      SimGroupOptions options = options_for(3);
      options.max_message_bytes = size_t{1} << 20;
      SimWorkerGroup group(1, options);
      group.start();
      const auto begin = [&group, rank = victim, given = value](Nanos timeout) {
        return group.worker(rank).group().all_gather(given, std::nullopt, timeout);
      };
      Error error = failure_of(begin(2 * kSecond));
      expect_failure(error, Status::kDeadline, "missing: ");
      expect_failure(error, Status::kDeadline, fault);
      const Gathered earlier = gather(group, victim, 1);
      error = failure_of(begin(kSecond));
      expect_failure(error, Status::kDeadline, "an earlier one");
      if (fault != "exceeds the limit") expect_failure(error, Status::kDeadline, fault);  // found when it is sent
      earlier->cancel();
      const Gathered waiting = begin(30 * kSecond);
      group.scheduler().run_for(100 * kMillisecond);
      group.kill(2);
      expect_failure(failure_of(waiting), Status::kDisconnected, "\"w2\"");
      expect_failure(failure_of(waiting), Status::kDisconnected, fault);
    }
  }
}

// A member of a later version may fail with a status that is unknown here.
TEST(AllGather, AnUnknownStatusOfAFailureIsRemote) {
  for (const int64_t status : {int64_t{77}, int64_t{999}, int64_t{1000}}) {
    SimWorkerGroup group(1, options_for(2));
    group.start();
    const Gathered waiting = gather(group, 0, 1);
    CallRequest request;
    request.to = "w0";
    request.function = "distag.all_gather";
    request.args = {row({0, 1}), Value(int64_t{kSecond}), Value(int64_t{7}), Value(),
                    Value::list({Value(status), Value::text("odd")})};
    const Gathered failed = group.worker(1).rpc().call(std::move(request));
    expect_failure(failure_of(waiting), status == 1000 ? Status::kUser : Status::kRemote, "odd");
    expect_failure(failure_of(failed), status == 1000 ? Status::kUser : Status::kRemote, "odd");
  }
}

TEST(AllGather, WithTimeoutZeroDoesNotWait) {
  SimWorkerGroup group(1, options_for(2));
  group.start();
  expect_failure(failure_of(gather(group, 1, 1, std::nullopt, 0)), Status::kDeadline, "\"w0\"");
  const Gathered waiting = gather(group, 0, 5);
  group.scheduler().run_for(kSecond);
  EXPECT_EQ(values_of(gather(group, 1, 6, std::nullopt, 0)), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(values_of(waiting), (std::vector<int64_t>{5, 6}));
}

TEST(AllGather, OneThatWaitsForTheOneBeforeItEndsAtItsDeadline) {
  SimWorkerGroup group(1, options_for(2));
  group.start();
  const Gathered first = gather(group, 0, 1, std::nullopt, 30 * kSecond);
  const Nanos begin = group.scheduler().now();
  expect_failure(failure_of(gather(group, 0, 2, std::nullopt, kSecond)), Status::kDeadline, "an earlier one");
  EXPECT_LE(group.scheduler().now() - begin, kSecond + kMillisecond);
  const Gathered third = gather(group, 0, 3);
  EXPECT_EQ(values_of(gather(group, 1, 10)), (std::vector<int64_t>{1, 10}));
  EXPECT_EQ(values_of(gather(group, 1, 11)), (std::vector<int64_t>{3, 11}));
  EXPECT_EQ(values_of(third), (std::vector<int64_t>{3, 11}));
}

TEST(AllGather, EndsForAllWhenOneOfThemIsLost) {
  for_each_seed(30, [](uint64_t seed) {
    // The victim is the member of lowest rank, to which all send, or another member.
    const int32_t victim = seed % 2 == 0 ? 0 : 2;
    SimWorkerGroup group(seed, options_for(4));
    group.start();
    std::vector<Gathered> waiting;
    for (int32_t rank = 0; rank < 4; ++rank) {
      if (rank != victim) waiting.push_back(gather(group, rank, rank));
    }
    const Ranks others{1, 3};
    group.scheduler().run_for(kSecond);
    group.kill(victim);
    for (const Gathered& one : waiting) {
      expect_failure(failure_of(one), Status::kDisconnected, "\"" + SimWorkerGroup::name(victim) + "\"");
    }
    // The next gathering that needs the victim fails at once; the others can gather without it.
    expect_failure(failure_of(gather(group, 1, 1)), Status::kDisconnected, "\"" + SimWorkerGroup::name(victim) + "\"");
    const Gathered rest = gather(group, 1, 11, others);
    EXPECT_EQ(values_of(gather(group, 3, 13, others)), (std::vector<int64_t>{11, 13}));
    EXPECT_EQ(values_of(rest), (std::vector<int64_t>{11, 13}));
  });
}

TEST(AllGather, RefusesRanksThatCannotBe) {
  SimWorkerGroup group(1, options_for(3));
  const auto refusal = [&group](Ranks ranks) {
    try {
      gather(group, 1, 1, std::move(ranks));
    } catch (const Error& error) {
      return error;
    }
    return Error(Status::kOk, "not refused");
  };
  expect_failure(refusal({0, 1}), Status::kInvalidState, "not started");
  group.start();
  expect_failure(refusal({0, 1, 0}), Status::kInvalidArgument, "rank 0 is named twice");
  expect_failure(refusal({0, 2}), Status::kInvalidArgument, "own rank 1");
  expect_failure(refusal({}), Status::kInvalidArgument, "own rank 1");
  expect_failure(refusal({1, 3}), Status::kInvalidArgument, "no rank 3");
}

// A member that keeps no bounds is refused beyond them; each other member is still heard.
TEST(AllGather, AMemberComesToSoManyRounds) {
  SimGroupOptions options = options_for(13);
  options.max_message_bytes = size_t{1} << 20;
  SimWorkerGroup group(1, options);
  group.start();
  const auto come = [&group](int32_t rank, uint64_t which, size_t bytes = 0) {
    std::vector<int64_t> ranks = {0, 1, 2};
    for (int64_t other = 3; other < 13; ++other) {
      if ((which >> (other - 3) & 1) != 0) ranks.push_back(other);
    }
    if (which >> 10 != 0) ranks.erase(ranks.begin() + (rank == 1 ? 2 : 1));
    CallRequest request;
    request.to = "w0";
    request.function = "distag.all_gather";
    request.args = {row(ranks), Value(int64_t{-1}), Value(int64_t{7}), Value::bytes(Value::Bytes(bytes))};
    return group.worker(rank).rpc().call(std::move(request));
  };
  std::vector<Gathered> waiting;
  for (uint64_t i = 0; i < 1024; ++i) waiting.push_back(come(1, i));
  group.scheduler().run_for(kSecond);
  for (const Gathered& one : waiting) EXPECT_FALSE(one->is_done());
  expect_failure(failure_of(come(1, 1024)), Status::kOverloaded, "1024 incomplete gathers");
  waiting[0]->cancel();
  const Gathered further = come(1, 1024);
  std::vector<Gathered> large;
  for (uint64_t i = 0; i < 3; ++i) {
    large.push_back(come(2, i, size_t{1} << 19));
    large.push_back(come(2, i + 8, (size_t{1} << 19) - 100));
    group.scheduler().run_for(kSecond);
  }
  EXPECT_FALSE(further->is_done());
  for (const Gathered& one : large) EXPECT_FALSE(one->is_done());  // the last two without their values
  group.shutdown(0);
}

TEST(AllGather, AWorkerHasSoManyTurns) {
  SimWorkerGroup group(1, options_for(2));
  group.start();
  std::vector<Gathered> waiting;
  for (int64_t i = 0; i < 4096; ++i) waiting.push_back(gather(group, 1, i, Ranks{0, 1}));
  expect_failure(failure_of(gather(group, 1, 0, Ranks{0, 1})), Status::kOverloaded, "4096");
  EXPECT_EQ(values_of(gather(group, 1, 5, Ranks{1})), (std::vector<int64_t>{5}));
  gather(group, 0, 3, Ranks{0, 1});
  EXPECT_EQ(values_of(waiting[0]), (std::vector<int64_t>{3, 0}));
  group.shutdown(0);
}

// Requests of members are checked where they arrive.
TEST(AllGather, RefusesWhatAMemberMayNotAsk) {
  SimWorkerGroup group(1, options_for(3));
  group.start();
  const auto call = [&group](const std::string& function, Values args) {
    CallRequest request;
    request.to = "w0";
    request.function = function;
    request.args = std::move(args);
    return failure_of(group.worker(1).rpc().call(std::move(request)));
  };
  const auto ask = [&](const std::vector<int64_t>& ranks) {
    return call("distag.all_gather", {row(ranks), Value(int64_t{kSecond}), Value(int64_t{7}), Value()});
  };
  expect_failure(ask({}), Status::kInvalidArgument, "all_gather");
  expect_failure(ask({1, 0}), Status::kInvalidArgument, "all_gather");
  expect_failure(ask({0, 0, 1}), Status::kInvalidArgument, "all_gather");
  expect_failure(ask({0, 2}), Status::kInvalidArgument, "all_gather");
  expect_failure(ask({1, 2}), Status::kInvalidArgument, "all_gather");
  expect_failure(ask({-1, 0, 1}), Status::kInvalidArgument, "all_gather");
  expect_failure(ask({0, 1, int64_t{1} << 40}), Status::kInvalidArgument, "all_gather");
  const auto fail_with = [&](Value failure) {
    return call("distag.all_gather", {row({0, 1}), Value(int64_t{kSecond}), Value(int64_t{7}), Value(), failure});
  };
  expect_failure(fail_with(Value()), Status::kInvalidArgument, "list");
  expect_failure(fail_with(Value::list({Value(int64_t{10})})), Status::kInvalidArgument, "describe a failure");
  expect_failure(fail_with(Value::list({Value(int64_t{0}), Value::text("")})), Status::kInvalidArgument, "status 0");
  const Value text = Value::text(std::string(4097, 'x'));
  expect_failure(fail_with(Value::list({Value(int64_t{10}), text})), Status::kInvalidArgument, "4097 bytes");
  const Value real(Tensor::scalar(Dtype::kFloat64, 0));
  expect_failure(call("distag.all_gather", {real, Value(int64_t{kSecond}), Value(int64_t{7}), Value()}),
                 Status::kInvalidArgument, "int64");
  // Values that were not asked for, of other ranks, of another round, or too few.
  const auto give = [&](const std::vector<int64_t>& ranks, size_t count) {
    return call("distag.all_gather_values",
                {row(ranks), row(std::vector<int64_t>(ranks.size())), Value::list(Value::List(count))});
  };
  expect_failure(give({0, 1}, 2), Status::kInvalidState, "does not wait");
  const Gathered waiting = gather(group, 0, 1, Ranks{0, 1, 2});
  expect_failure(give({0, 1}, 2), Status::kInvalidState, "does not wait");
  expect_failure(give({0, 1, 2}, 3), Status::kInvalidState, "does not wait");
  expect_failure(give({0, 1, 2}, 2), Status::kInvalidArgument, "all_gather");
  expect_failure(give({0, 2}, 2), Status::kInvalidArgument, "all_gather");
  expect_failure(give({1, 2}, 2), Status::kInvalidArgument, "all_gather");
  const Gathered second = gather(group, 1, 2, Ranks{0, 1, 2});
  EXPECT_EQ(values_of(gather(group, 2, 3, Ranks{0, 1, 2})), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(values_of(waiting), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(values_of(second), (std::vector<int64_t>{1, 2, 3}));
  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
}

// Whichever member is lost while the values come down the tree, every other member gets them or learns which one is
// missing, and the survivors can gather without it.
TEST(AllGather, ALossOnTheWayDownStopsNobodyElse) {
  for_each_seed(200, [](uint64_t seed) {
    SimGroupOptions options = options_for(12);
    options.faults.drop = seed % 3 == 0 ? 0.02 : 0;
    SimWorkerGroup group(seed, options);
    group.start();
    const auto victim = static_cast<int32_t>(seed % 12);
    Ranks others;
    for (int32_t rank = 0; rank < 12; ++rank) {
      if (rank != victim) others.push_back(rank);
    }
    std::map<int32_t, Gathered> all;
    for (int32_t rank = 0; rank < 12; ++rank) all[rank] = gather(group, rank, rank);
    group.scheduler().run_for(static_cast<Nanos>(seed % 20) * 100 * kMicrosecond);
    group.kill(victim);
    all.erase(victim);
    const Nanos begin = group.scheduler().now();
    for (const auto& [rank, one] : all) {
      wait(*one, kForever);
      if (one->error() != nullptr) {
        expect_failure(*one->error(), Status::kDisconnected, "\"" + SimWorkerGroup::name(victim) + "\"");
      } else {
        EXPECT_EQ(one->value().as_list().size(), 12u);
      }
    }
    EXPECT_LT(group.scheduler().now() - begin, 10 * kSecond);
    std::vector<Gathered> next;
    for (const int32_t rank : others) next.push_back(gather(group, rank, rank, others));
    for (const Gathered& one : next) EXPECT_EQ(values_of(one), std::vector<int64_t>(others.begin(), others.end()));
  });
}

// A value that is too large for a member fails there alone, and still reaches the members below it in the tree.
TEST(AllGather, WhatIsTooLargeForOneOfThemReachesTheOthers) {
  SimGroupOptions options = options_for(7);
  options.max_message_bytes_of = [](int32_t rank) { return rank == 1 ? size_t{1} << 20 : size_t{1} << 30; };
  SimWorkerGroup group(1, options);
  group.start();
  std::vector<Gathered> all;
  for (int32_t rank = 0; rank < 7; ++rank) {
    const Tensor part = Tensor::empty(Dtype::kFloat32, {int64_t{50'000}});
    all.push_back(group.worker(rank).group().all_gather(Value(part), std::nullopt, 30 * kSecond));
  }
  for (int32_t rank = 0; rank < 7; ++rank) {
    const Gathered& one = all[static_cast<size_t>(rank)];
    if (rank == 1) {
      expect_failure(failure_of(one), Status::kInvalidArgument, "max_message_bytes of worker \"w1\"");
    } else {
      wait(*one, kForever);
      EXPECT_EQ(one->value().as_list().size(), 7u);
    }
  }
  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
}

// A cancelled call of all_gather makes room for the next call of the same worker.
TEST(AllGather, TakesNoValueOfACallThatWasGivenUp) {
  SimWorkerGroup group(1, options_for(3));
  group.start();
  CallRequest request;
  request.to = "w0";
  request.function = "distag.all_gather";
  request.args = {row({0, 1, 2}), Value(kForever), Value(int64_t{7}), Value(int64_t{666})};
  const auto given_up = group.worker(1).rpc().call(std::move(request));
  group.scheduler().run_for(kSecond);
  ASSERT_FALSE(given_up->is_done());
  given_up->cancel();
  group.scheduler().run_for(kSecond);
  std::vector<Gathered> all;
  for (int32_t rank = 0; rank < 3; ++rank) all.push_back(gather(group, rank, rank));
  for (const Gathered& one : all) EXPECT_EQ(values_of(one), (std::vector<int64_t>{0, 1, 2}));
}

// In an open world without ranks, all_gather is over the living members: it grows and shrinks with the group.
TEST(AllGather, InAnOpenWorldItIsOverThoseThatLive) {
  for_each_seed(20, [](uint64_t seed) {
    SimGroupOptions options = options_for(3);
    options.is_open = true;
    SimWorkerGroup group(seed, options);
    group.start();
    const auto all_see = [&group](const Ranks& ranks) {
      return group.scheduler().run_until(
          [&group, &ranks] {
            return std::all_of(ranks.begin(), ranks.end(), [&](int32_t rank) {
              return group.worker(rank).world_size() == static_cast<int32_t>(ranks.size());
            });
          },
          10 * kSecond);
    };
    const auto expect_of = [&group](const Ranks& ranks) {
      std::vector<Gathered> all;
      for (const int32_t rank : ranks) all.push_back(gather(group, rank, rank));
      for (const Gathered& one : all) EXPECT_EQ(values_of(one), std::vector<int64_t>(ranks.begin(), ranks.end()));
    };
    ASSERT_TRUE(all_see({0, 1, 2}));
    expect_of({0, 1, 2});
    auto left = group.worker(1).shutdown(60 * kSecond);
    wait(*left, kForever);
    ASSERT_TRUE(all_see({0, 2}));
    expect_of({0, 2});
    group.kill(2);
    ASSERT_TRUE(all_see({0}));
    expect_of({0});
  });
}

TEST(AllGather, EndsWithTheWorker) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(2));
    group.start();
    const std::vector<Gathered> open = {gather(group, 0, 1), gather(group, 0, 2), gather(group, 1, 1, Ranks{1, 0}),
                                        gather(group, 1, 1)};
    const Gathered lonely = gather(group, 1, 1);
    group.shutdown(0);
    for (const Gathered& one : open) wait(*one, kForever);
    EXPECT_EQ(failure_of(lonely).status(), Status::kCancelled) << failure_of(lonely).message();
  });
}

}  // namespace
}  // namespace distag::sim
