// Descriptors are short for dials of the caller, or of the callee, or of both, once or again and again, before the
// workers have met or after their connections dropped; a worker may die meanwhile, by its process or by its network.
// Each call ends soon, without a deadline: with its answer, or with OUT_OF_MEMORY and the cure. It runs at most once.
// Only a dead worker is given up, once there is room. Then calls go well again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

constexpr Nanos kPlacesLease = 5 * kSecond;
constexpr Nanos kMostOfACall = 4 * kPlacesLease;

struct PlacesTally {
  size_t runs = 0;
  size_t answered = 0;  // while there was a lack
  size_t refused = 0;
  size_t refused_for_other = 0;
  size_t dead = 0;
};

class Places {
 public:
  Places(uint64_t seed, PlacesTally* tally) : tally_(tally), random_(seed), group_(seed, options()) {
    for (int32_t rank = 0; rank < group_.size(); ++rank) {
      group_.worker(rank).rpc().register_function("count", [this](Invocation& invocation) {
        const int64_t number = invocation.args()[0].as_int64();
        EXPECT_EQ(++runs_[number], 1) << "call " << number << " ran again";
        invocation.set_result(Value(number));
      });
    }
  }

  void run() {
    ++tally_->runs;
    group_.start();
    if (below(2) == 0) {
      ASSERT_EQ(call(0, 1), std::nullopt);
      if (below(2) == 0) {
        ASSERT_EQ(call(1, 0), std::nullopt);
      }
    }
    choose_places();
    const Nanos begin = group_.scheduler().now();
    const Nanos end = begin + static_cast<Nanos>(3 + below(8)) * kPlacesLease;
    set_lack(true);
    if (below(2) == 0) plan_flaps(begin, end);
    plan_drops(begin, end);
    dies_ = below(3) == 0;
    if (dies_) plan_death(begin + static_cast<Nanos>(below(static_cast<uint64_t>(end - begin))));
    while (group_.scheduler().now() < end) call_during_lack();
    group_.scheduler().run_for(kPlacesLease / 10);  // the flaps are over
    set_lack(false);
    if (dies_) return expect_loss();
    for (int32_t from = 0; from < 2; ++from) expect_answer(from);
    expect_nobody_given_up();
    for (const ShutdownReport& report : group_.shutdown()) EXPECT_TRUE(report.clean);
  }

 private:
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }

  SimGroupOptions options() {
    SimGroupOptions options;
    options.lease = kPlacesLease;
    return options;
  }

  void choose_places() {
    places_ = {"w0"};
    const uint64_t choice = below(3);
    if (choice == 1) places_ = {"w1"};
    if (choice == 2) places_.push_back("w1");
  }
  void set_lack(bool is_there) {
    for (const std::string& host : places_) group_.network().set_mute(host, is_there);
  }

  void plan_flaps(Nanos begin, Nanos end) {
    bool is_there = true;
    for (Nanos at = begin; at < end;) {
      at += static_cast<Nanos>(below(static_cast<uint64_t>(2 * kPlacesLease)));
      is_there = !is_there;
      group_.scheduler().at(std::min(at, end), [this, is_there] { set_lack(is_there); });
    }
  }
  void plan_drops(Nanos begin, Nanos end) {
    const uint64_t kind = below(4);
    for (Nanos at = begin; kind != 0 && at < end; at += static_cast<Nanos>(1 + below(4)) * kPlacesLease) {
      group_.scheduler().at(at, [this, kind] {
        if (kind == 1) group_.network().cut("w0", "w1");
        if (kind == 2) group_.network().hang_up("w0", "w1");
        if (kind == 3) group_.network().hang_up("w1", "w0");
      });
    }
  }
  void plan_death(Nanos at) {
    const bool is_told = below(2) == 0;
    group_.scheduler().at(at, [this, is_told] {
      is_dead_ = true;
      is_told ? group_.kill(1) : group_.network().part("w0", "w1");
    });
  }

  // Makes a call, and returns its error if it failed.
  std::optional<Error> call(int32_t from, int32_t to) {
    CallRequest request;
    request.to = SimWorkerGroup::name(to);
    request.function = "count";
    request.args = {Value(++last_call_)};
    request.timeout = kForever;
    const Nanos begin = group_.scheduler().now();
    std::optional<Error> failure;
    try {
      EXPECT_EQ(group_.call(from, std::move(request)).as_int64(), last_call_);
      EXPECT_EQ(runs_[last_call_], 1);
    } catch (const Error& error) {
      failure = error;
    }
    EXPECT_LT(group_.scheduler().now() - begin, kMostOfACall) << (failure ? failure->message() : "answered");
    return failure;
  }

  void call_during_lack() {
    const auto from = static_cast<int32_t>(dies_ ? 0 : below(2));
    const std::optional<Error> error = call(from, 1 - from);
    if (!error) {
      ++tally_->answered;
      group_.scheduler().run_for(static_cast<Nanos>(1 + below(static_cast<uint64_t>(kPlacesLease / 4))));
    } else if (is_dead_ && error->status() != Status::kOutOfMemory) {
      group_.scheduler().run_for(kPlacesLease);
    } else {
      ++tally_->refused;
      const std::string& text = error->message();
      tally_->refused_for_other += text.find("cannot answer, as it says") != std::string::npos;
      EXPECT_EQ(error->status(), Status::kOutOfMemory) << text;
      EXPECT_NE(text.find("ulimit -n"), std::string::npos) << text;
    }
  }

  void expect_answer(int32_t from) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::optional<Error> error = call(from, 1 - from);
      if (!error) return;
      EXPECT_EQ(error->status(), Status::kOutOfMemory) << error->message();
    }
    ADD_FAILURE() << "no call of w" << from << " goes well again";
  }

  void expect_loss() {
    ++tally_->dead;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::optional<Error> error = call(0, 1);
      ASSERT_TRUE(error);
      if (error->status() == Status::kDisconnected) return;
      EXPECT_EQ(error->status(), Status::kOutOfMemory) << error->message();
    }
    ADD_FAILURE() << "the dead worker is not lost";
  }

  void expect_nobody_given_up() {
    for (const std::string& line : group_.log_lines()) {
      EXPECT_EQ(line.find(" is lost: "), std::string::npos) << line;
    }
  }

  PlacesTally* const tally_;
  SeededRandom random_;
  SimWorkerGroup group_;
  std::vector<std::string> places_;
  std::map<int64_t, int> runs_;
  int64_t last_call_ = 0;
  bool dies_ = false;
  bool is_dead_ = false;
};

TEST(LackPlacesTest, EachCallEndsSoonAndOnlyTheDeadAreGivenUp) {
  PlacesTally tally;
  const bool is_sweep = for_each_seed(400, [&tally](uint64_t seed) { Places(seed, &tally).run(); });
  if (!is_sweep) return;
  EXPECT_GT(tally.answered, tally.runs);
  EXPECT_GT(tally.refused, tally.runs);
  EXPECT_GT(tally.refused_for_other, tally.runs / 10);
  EXPECT_GT(tally.dead, tally.runs / 10);
}

}  // namespace
}  // namespace distag::sim
