// References that pass around, an all_gather and the vote of a shutdown, while allocations on one worker's loop are
// refused. Everything ends in time, with a value or a named error; no peer is given up, and no reference is left,
// unless the worker that lacked memory has ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

using Ref = std::shared_ptr<Rref>;

constexpr int kHostThreads = 2;
constexpr int kActionsPerThread = 10;
constexpr Nanos kTimeout = 5 * kSecond;  // of each call
constexpr Nanos kLongest = 60 * kSecond;

struct Tally {
  size_t runs = 0;
  size_t refused = 0;   // runs in which memory was refused
  size_t failures = 0;  // of acts
  size_t ended = 0;     // workers, before the shutdown or in it
};

Value as_value(const Ref& reference) { return Value(std::shared_ptr<ExternalValue>(reference)); }

class ShortageOfReferences {
 public:
  ShortageOfReferences(uint64_t seed, Tally* tally) : tally_(tally), random_(seed) {
    SimGroupOptions options;
    options.size = 2 + static_cast<int32_t>(below(3));
    options.call_timeout = kTimeout;
    options.faults.drop = below(2) == 0 ? 0 : 0.01;
    stores_.resize(static_cast<size_t>(options.size));
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    for (int32_t rank = 0; rank < options.size; ++rank) register_functions(rank);
  }

  void run() {
    ++tally_->runs;
    group_->start();
    victim_ = any_rank();
    group_->share_memory_with_loop(victim_);
    const uint64_t short_phase = below(4);
    if (short_phase == 0) run_short();
    pass_around();
    if (short_phase == 1) run_short();
    gather();
    if (short_phase == 2) run_short();
    let_go();
    if (short_phase == 3) run_short();
    shut_down();
    tally_->refused += memory().refused() != 0;
    // A worker that ended by failure may not have found the memory to say LEAVE. Others may have left before a worker
    // that the verdict did not reach speaks to them for the first time.
    const std::string loss_of_ended =
        "worker \"" + SimWorkerGroup::name(victim_) + "\" (rank " + std::to_string(victim_) + ") is lost: ";
    for (const std::string& line : group_->log_lines()) {
      const bool is_expected = has_failed_ && (line.find(loss_of_ended) != std::string::npos ||
                                               line.find("two redials were refused; never heard") != std::string::npos);
      EXPECT_TRUE(is_expected || line.find(" is lost: ") == std::string::npos) << line;
      EXPECT_EQ(line.find("broke the protocol"), std::string::npos) << line;
    }
  }

 private:
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }
  int32_t any_rank() { return static_cast<int32_t>(below(static_cast<uint64_t>(group_->size()))); }
  Values& store(int32_t rank) { return stores_[static_cast<size_t>(rank)]; }
  Rrefs& rrefs(int32_t rank) { return group_->worker(rank).rrefs(); }
  SimMemory& memory() { return group_->memory(victim_); }
  bool has_ended() { return !group_->worker(victim_).is_started(); }

  void run_short() {
    const uint64_t given = below(uint64_t{1} << (2 + below(10)));
    memory().refuse(given, below(4) == 0 ? 1 + below(8) : 1);
  }

  void register_functions(int32_t rank) {
    Rpc& rpc = group_->worker(rank).rpc();
    rpc.register_function("make", [this, rank](Invocation& invocation) {
      const MemoryScope own(nullptr);
      Values args = invocation.args();
      if (below(3) == 0) {
        invocation.set_result(as_value(rrefs(rank).create(Value::list(std::move(args)))));
      } else {
        invocation.set_result(Value::list(std::move(args)));
      }
    });
    rpc.register_function("swap", [this, rank](Invocation& invocation) {
      const MemoryScope own(nullptr);
      for (const Value& arg : invocation.args()) store(rank).push_back(arg);
      Values given;
      for (uint64_t i = below(3); i > 0; --i) given.push_back(any_value(rank));
      invocation.set_result(Value::list(std::move(given)));
    });
  }

  // A value of the store, up to the depth that a message may have.
  Value any_value(int32_t rank) {
    if (store(rank).empty()) return Value(int64_t{1});
    const Value value = store(rank)[below(store(rank).size())];
    return value.depth() < 4 ? value : Value(int64_t{1});
  }

  // ---- references ----

  void pass_around() {
    std::vector<std::shared_ptr<Future<Unit>>> threads;
    for (int i = 0; i < kHostThreads; ++i) {
      threads.push_back(group_->scheduler().spawn([this] {
        for (int k = 0; k < kActionsPerThread; ++k) try_act();
      }));
    }
    EXPECT_TRUE(group_->scheduler().run_until(
        [&threads] {
          return std::all_of(threads.begin(), threads.end(), [](const auto& thread) { return thread->is_done(); });
        },
        kActionsPerThread * kLongest));
  }

  void try_act() {
    const Nanos begin = group_->scheduler().now();
    try {
      act(any_rank());
    } catch (const Error& error) {
      ++tally_->failures;
      expect_named(error);
    }
    EXPECT_LT(group_->scheduler().now() - begin, kLongest);
  }

  void expect_named(const Error& error) {
    const std::set<Status> named{Status::kOutOfMemory,  Status::kDeadline, Status::kCancelled, Status::kInvalidState,
                                 Status::kDisconnected, Status::kNotFound, Status::kRemote};
    EXPECT_TRUE(named.contains(error.status())) << static_cast<int>(error.status()) << ": " << error.message();
    EXPECT_NE(memory().refused(), 0u) << error.message();
  }

  void act(int32_t rank) {
    Values args;
    for (uint64_t i = below(3); i > 0; --i) args.push_back(any_value(rank));
    switch (below(6)) {
      case 0:
        store(rank).push_back(as_value(rrefs(rank).create(Value::list(std::move(args)))));
        return;
      case 1:
      case 2:
        store(rank).push_back(as_value(remote(rank, any_rank(), std::move(args))));
        return;
      case 3: {
        const Value got = group_->call(rank, any_rank(), "swap", std::move(args));
        store(rank).push_back(got);
        return;
      }
      case 4: {
        const Value got = fetch(rank, any_value(rank));
        store(rank).push_back(got);
        return;
      }
      default: {
        if (store(rank).empty()) return;
        const auto at = store(rank).begin() + static_cast<ptrdiff_t>(below(store(rank).size()));
        const Value gone = std::move(*at);  // it ends once the store is whole again
        store(rank).erase(at);
      }
    }
  }

  Ref remote(int32_t from, int32_t to, Values args) {
    CallRequest request;
    request.to = SimWorkerGroup::name(to);
    request.function = "make";
    request.args = std::move(args);
    return rrefs(from).remote(std::move(request));
  }

  Value fetch(int32_t rank, Value value) {
    for (int links = 0; links < 4; ++links) {
      if (value.kind() == ValueKind::kList && !value.as_list().empty()) value = Value(value.as_list().front());
      const Ref reference = as_rref(value);
      if (reference == nullptr) break;
      const auto future = rrefs(rank).fetch(reference, FetchOptions());
      wait(*future, kForever);
      value = future->value();
    }
    return value;
  }

  // ---- all_gather ----

  // Two rounds: a failure of the first leaves nothing that the second one stumbles over.
  void gather() {
    for (int round = 0; round < 2; ++round) {
      const Nanos begin = group_->scheduler().now();
      std::vector<std::shared_ptr<Future<Value>>> all;
      for (int32_t rank = 0; rank < group_->size(); ++rank) {
        try {
          all.push_back(group_->worker(rank).group().all_gather(Value(int64_t{rank}), std::nullopt, kTimeout));
        } catch (const Error& error) {
          expect_named(error);
        }
      }
      for (const auto& gathered : all) expect_gathered(*gathered);
      EXPECT_LT(group_->scheduler().now() - begin, kLongest);
    }
  }

  void expect_gathered(Future<Value>& gathered) {
    EXPECT_TRUE(group_->scheduler().run_until([&gathered] { return gathered.is_done(); }, kLongest));
    if (!gathered.is_done()) return;
    if (gathered.error() != nullptr) {
      ++tally_->failures;
      return expect_named(*gathered.error());
    }
    const Value::List& values = gathered.value().as_list();
    ASSERT_EQ(values.size(), static_cast<size_t>(group_->size()));
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i].as_int64(), static_cast<int64_t>(i));
  }

  // ---- the end ----

  void let_go() {
    for (Values& store : stores_) {
      const Values gone = std::exchange(store, {});
    }
    group_->scheduler().run_until([this] { return describe_left().empty(); }, kLongest);
    EXPECT_EQ(describe_left(), "");
  }

  // After the end of a worker, only the state of the others counts.
  std::string describe_left() {
    std::string left;
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      if (!group_->worker(rank).is_started()) continue;
      const WorkerStats stats = group_->worker(rank).stats();
      bool is_idle = false;
      group_->loop(rank).run([this, rank, &is_idle] {
        const MemoryScope own(nullptr);
        is_idle = rrefs(rank).is_idle();
      });
      if (stats.rrefs.owned + stats.rrefs.used + stats.rrefs.forks + stats.rpc.calls_open == 0 && is_idle) continue;
      left += fmt::format("w{}: {} owned, {} used, {} forks, {} calls{}; ", rank, stats.rrefs.owned, stats.rrefs.used,
                          stats.rrefs.forks, stats.rpc.calls_open, is_idle ? "" : ", not idle");
    }
    return left;
  }

  void shut_down() {
    const bool had_ended = has_ended();
    const Nanos begin = group_->scheduler().now();
    const std::vector<ShutdownReport> reports = group_->shutdown(kLongest);
    EXPECT_LT(group_->scheduler().now() - begin, kLongest / 2);
    const auto victim = static_cast<size_t>(victim_);
    const bool is_victim_clean = reports[victim].clean;
    has_failed_ = had_ended || !is_victim_clean;
    if (has_failed_) ++tally_->ended;
    EXPECT_TRUE(is_victim_clean || memory().refused() != 0);
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      EXPECT_TRUE(has_failed_ || reports[rank].clean) << "w" << rank;
    }
  }

  Tally* const tally_;
  SeededRandom random_;
  std::vector<Values> stores_;
  std::unique_ptr<SimWorkerGroup> group_;
  int32_t victim_ = 0;
  bool has_failed_ = false;
};

TEST(ShortageOfReferencesTest, OfALoopLeavesNothingBehindAndHoldsUpNobody) {
  Tally tally;
  const bool is_sweep = for_each_seed(2500, [&tally](uint64_t seed) { ShortageOfReferences(seed, &tally).run(); });
  std::cout << tally.runs << " runs, " << tally.refused << " with refusals, " << tally.failures << " failures, "
            << tally.ended << " workers ended\n";
  if (!is_sweep) return;
  EXPECT_GT(tally.refused, tally.runs / 4);
}

}  // namespace
}  // namespace distag::sim
