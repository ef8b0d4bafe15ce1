// Functions pass references around at random, through drops of connections and deaths of workers. Whatever happened,
// nothing is left when all references are released.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

using Ref = std::shared_ptr<Rref>;

constexpr int kHostThreads = 3;
constexpr int kActionsPerThread = 25;

Value as_value(const Ref& reference) { return Value(std::shared_ptr<ExternalValue>(reference)); }

class RandomPassing {
 public:
  RandomPassing(uint64_t seed, bool has_faults) : random_(seed), has_faults_(has_faults) {
    SimGroupOptions options;
    options.size = static_cast<int32_t>(2 + below(3));
    stores_.resize(static_cast<size_t>(options.size));
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    for (int32_t rank = 0; rank < options.size; ++rank) register_functions(rank);
    group_->start();
    if (!has_faults) return;
    group_->network().faults.drop = 0.01;
    if (below(2) == 0) victim_ = any_rank();
  }

  void run() {
    std::vector<std::shared_ptr<Future<Unit>>> threads;
    for (int i = 0; i < kHostThreads; ++i) threads.push_back(group_->scheduler().spawn([this] { act_often(); }));
    if (victim_ >= 0) {
      group_->scheduler().run_for(static_cast<Nanos>(below(20)) * kMillisecond);
      group_->kill(victim_);
    }
    const bool all_ended = group_->scheduler().run_until([&threads] {
      return std::all_of(threads.begin(), threads.end(), [](const auto& thread) { return thread->is_done(); });
    });
    EXPECT_TRUE(all_ended);
    EXPECT_GT(successes_, 0);
    for (Values& store : stores_) store.clear();
    group_->scheduler().run_until([this] { return is_clean(); }, 120 * kSecond);
    expect_clean();
  }

 private:
  uint64_t below(uint64_t bound) { return random_.next() % bound; }
  int32_t any_rank() { return static_cast<int32_t>(below(static_cast<uint64_t>(group_->size()))); }
  Values& store(int32_t rank) { return stores_[static_cast<size_t>(rank)]; }
  Rrefs& rrefs(int32_t rank) { return group_->worker(rank).rrefs(); }

  void register_functions(int32_t rank) {
    Rpc& rpc = group_->worker(rank).rpc();
    // Results of "make" consist of its arguments alone: no value comes to refer to itself.
    rpc.register_function("make", [this, rank](Invocation& invocation) {
      invocation.set_result(make(rank, invocation.args(), invocation.context()));
    });
    rpc.register_function("swap", [this, rank](Invocation& invocation) {
      for (const Value& arg : invocation.args()) put(rank, arg);
      Values given;
      for (uint64_t i = below(3); i > 0; --i) given.push_back(any_value(rank));
      invocation.set_result(Value::list(std::move(given)));
    });
  }

  Value make(int32_t rank, Values args, const Id& context) {
    switch (below(6)) {
      case 0:
        throw Error(static_cast<Status>(1001), "made nothing");
      case 1:
        return as_value(rrefs(rank).create(Value::list(std::move(args))));
      case 2:
        return as_value(remote(rank, any_rank(), std::move(args), context));
      case 3:
        return args.empty() ? Value(scalar()) : args.front();
      case 4:
        return call(rank, any_rank(), "make", std::move(args), context);
      default:
        return Value::list(std::move(args));
    }
  }

  static Tensor scalar() {
    Tensor tensor = Tensor::scalar(Dtype::kFloat64, 2);
    autograd::set_requires_grad(tensor, true);
    return tensor;
  }

  void act_often() {
    for (int i = 0; i < kActionsPerThread; ++i) {
      const int32_t rank = any_rank();
      if (rank == victim_) continue;  // its threads end with it
      try {
        act(rank);
        ++successes_;
      } catch (const Error& error) {
        EXPECT_NE(error.status(), Status::kInternal) << error.message();
        EXPECT_NE(error.status(), Status::kProtocol) << error.message();
        // Nested calls end with their context; a call that makes a value goes out all the same, without time.
        const std::set<Status> expected{static_cast<Status>(1001), Status::kCancelled, Status::kInvalidState,
                                        Status::kDeadline};
        EXPECT_TRUE(has_faults_ || expected.contains(error.status())) << error.message();
      }
    }
  }

  void act(int32_t rank) {
    std::shared_ptr<Context> context;
    if (below(3) == 0) context = group_->worker(rank).dautograd().create_context();
    const Id id = context ? context->global_id() : Id{};
    Values args;
    for (uint64_t i = below(3); i > 0; --i) args.push_back(any_value(rank));
    switch (below(6)) {
      case 0:
        put(rank, as_value(rrefs(rank).create(Value::list(std::move(args)))));
        return;
      case 1:
      case 2:
        put(rank, as_value(remote(rank, any_rank(), std::move(args), id)));
        return;
      case 3:
        put(rank, call(rank, any_rank(), "swap", std::move(args), id));
        return;
      case 4:
        put(rank, fetch(rank, any_value(rank), id));
        return;
      default:
        if (!store(rank).empty())
          store(rank).erase(store(rank).begin() + static_cast<ptrdiff_t>(below(store(rank).size())));
    }
  }

  Ref remote(int32_t from, int32_t to, Values args, const Id& context) {
    CallRequest request;
    request.to = SimWorkerGroup::name(to);
    request.function = "make";
    request.args = std::move(args);
    request.context = context;
    return rrefs(from).remote(std::move(request));
  }
  Value call(int32_t from, int32_t to, const std::string& function, Values args, const Id& context) {
    return group_->call(from, to, function, std::move(args), context);
  }
  // Also fetches what the value refers to, some links further.
  Value fetch(int32_t rank, Value value, const Id& context) {
    for (int links = 0; links < 4; ++links) {
      if (value.kind() == ValueKind::kList && !value.as_list().empty()) value = Value(value.as_list().front());
      const Ref reference = as_rref(value);
      if (reference == nullptr) break;
      FetchOptions options;
      options.context = context;
      const auto future = rrefs(rank).fetch(reference, options);
      wait(*future, kForever);
      value = future->value();
    }
    return value;
  }
  void put(int32_t rank, const Value& value) {
    if (!group_->is_killed(rank)) store(rank).push_back(value);
  }
  // A value of the store, up to the depth that a message may have.
  Value any_value(int32_t rank) {
    if (store(rank).empty()) return Value(scalar());
    const Value value = store(rank)[below(store(rank).size())];
    return value.depth() < 4 ? value : Value(int64_t{1});
  }

  bool is_idle(int32_t rank) {
    bool idle = false;
    group_->loop(rank).run([this, rank, &idle] { idle = rrefs(rank).is_idle(); });
    return idle;
  }
  bool is_clean() {
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      if (group_->is_killed(rank)) continue;
      const WorkerStats stats = group_->worker(rank).stats();
      if (stats.rrefs.owned + stats.rrefs.used + stats.rrefs.forks != 0 || !is_idle(rank)) return false;
      if (stats.dautograd.contexts + stats.rpc.calls_open + stats.rpc.futures_open != 0) return false;
    }
    return true;
  }
  void expect_clean() {
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      if (group_->is_killed(rank)) continue;
      const WorkerStats stats = group_->worker(rank).stats();
      EXPECT_EQ(stats.rrefs.owned, 0u) << "w" << rank;
      EXPECT_EQ(stats.rrefs.used, 0u) << "w" << rank;
      EXPECT_EQ(stats.rrefs.forks, 0u) << "w" << rank;
      EXPECT_EQ(stats.dautograd.contexts, 0u) << "w" << rank;
      EXPECT_EQ(stats.rpc.calls_open, 0u) << "w" << rank;
      EXPECT_EQ(stats.rpc.futures_open, 0u) << "w" << rank;
      EXPECT_TRUE(is_idle(rank)) << "w" << rank;
    }
  }

  SeededRandom random_;
  const bool has_faults_;
  std::vector<Values> stores_;
  std::unique_ptr<SimWorkerGroup> group_;
  int32_t victim_ = -1;
  int successes_ = 0;
};

TEST(RandomRrefsTest, NothingIsLeftOfReferencesPassedAroundAtRandom) {
  for_each_seed(200, [](uint64_t seed) { RandomPassing(seed, false).run(); });
}

TEST(RandomRrefsTest, NothingIsLeftThoughConnectionsDropAndAWorkerDies) {
  for_each_seed(200, [](uint64_t seed) { RandomPassing(seed, true).run(); });
}

}  // namespace
}  // namespace distag::sim
