// Random programs of sharded tensors, which all members of a mesh run, over whole workers: with dropped connections and
// members that stand still they end as one process does; a member that is lost, missing or runs another program is
// named to all others, and no member gets a wrong number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "coll/meshes.h"
#include "ops/attributes.h"
#include "ops/op.h"
#include "optim/optimizer.h"
#include "optim/rules.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/sim_group.h"
#include "support/tensors.h"

namespace distag::sim {
namespace {

using distag::testing::values_of;
using Specs = std::vector<const char*>;

constexpr int64_t kSize = 5;  // of all matrices: uneven, and with empty parts on larger meshes
constexpr int kRounds = 2;    // of training
constexpr Nanos kMeshTimeout = 10 * kSecond;
constexpr Nanos kLongest = 300 * kSecond;

const Specs kSpecsOfOneAxis = {"(None, None)", "('x', None)", "(None, 'x')"};
const Specs kSpecsOfTwoAxes = {"(None, None)", "('x', None)", "(None, 'y')",        "('y', 'x')",
                               "('x', 'y')",   "('y', None)", "(('x', 'y'), None)", "(None, ('y', 'x'))"};

Tensor matrix(int64_t seed) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, {kSize, kSize});
  for (int64_t i = 0; i < tensor.count(); ++i) {
    tensor.mutable_data_as<double>()[i] = static_cast<double>((i * 7919 + seed * 104729) % 1009) / 1009 - 0.5;
  }
  return tensor;
}

// The program of all members: matrices, each made of earlier ones.
struct Script {
  struct Step {
    std::string op;  // empty: redistribute
    std::vector<size_t> inputs;
    int64_t dim = -1;  // of an op that takes one
    const char* spec = nullptr;
  };
  Specs leaves;  // the parameters, and at last the batch
  std::vector<Step> steps;
};

Script random_script(SeededRandom& random, const Specs& specs) {
  auto below = [&random](size_t bound) { return static_cast<size_t>(random.next() % bound); };
  Script script;
  for (int i = 0; i < 4; ++i) script.leaves.push_back(specs[below(specs.size())]);
  const size_t count = 4 + below(6);
  for (size_t i = 0; i < count; ++i) {
    // The last result is among the inputs, so that the loss depends on most of them.
    const size_t made = script.leaves.size() + i;
    const size_t last = i == 0 ? script.leaves.size() - 1 : made - 1;
    Script::Step step;
    switch (i == 0 ? 5 : below(6)) {  // the first is by a parameter
      case 0:
        step = {"", {last}, -1, specs[below(specs.size())]};
        break;
      case 1:
        step = {"softmax", {last}, static_cast<int64_t>(below(2)), nullptr};
        break;
      case 2:
        step = {below(2) == 0 ? "tanh" : "sigmoid", {last}, -1, nullptr};
        break;
      case 3:
        step = {below(2) == 0 ? "add" : "mul", {last, below(made)}, -1, nullptr};
        break;
      default:
        step = {"matmul", {last, i == 0 ? 0 : below(made)}, -1, nullptr};
    }
    script.steps.push_back(step);
  }
  return script;
}

// Makes a step of another program, which differs in something that members compare.
void change(Script::Step& step) {
  if (step.op.empty()) {
    step = {"tanh", step.inputs, -1, nullptr};
  } else if (step.op == "softmax") {
    step.dim = 1 - step.dim;
  } else {
    step = {step.op == "exp" ? "neg" : "exp", {step.inputs[0]}, -1, nullptr};
  }
}

struct Results {
  std::vector<double> losses;
  Tensors parameters;
};

// A run by one member, or without a line by one process. `stop`: it makes no step from that one on.
class Run {
 public:
  Run(const Script& script, size_t stop) : script_(script), stop_(stop) {}
  Run(const Script& script, const spmd::Line& line, Dautograd& dautograd, size_t stop)
      : script_(script), line_(line), dautograd_(&dautograd), stop_(stop) {}

  // nullopt: it has stopped.
  std::optional<Results> train() {
    for (size_t i = 0; i + 1 < script_.leaves.size(); ++i) {
      parameters_.push_back(matrix(static_cast<int64_t>(i)));
      if (line_) spmd::mark_sharding(parameters_.back(), *line_, script_.leaves[i], -1);
      autograd::set_requires_grad(parameters_.back(), true);
    }
    const auto optimizer = optim::make_in_process_optimizer(optim::find_rule("adam"), parameters_);
    Results results;
    for (int round = 0; round < kRounds; ++round) {
      const auto context = line_ ? spmd::make_joint_context(*line_, *dautograd_) : make_local_context();
      const Tensor loss = run_steps(round);
      if (!loss) return std::nullopt;
      context->backward({loss}, {});
      optimizer->step(context, {});
      results.losses.push_back(whole(loss).item());
    }
    for (const Tensor& parameter : parameters_) results.parameters.push_back(whole(parameter));
    return results;
  }

 private:
  Tensor run_steps(int round) const {
    Tensors values = parameters_;
    values.push_back(matrix(100 + round));
    if (line_) spmd::mark_sharding(values.back(), *line_, script_.leaves.back(), -1);
    for (size_t i = 0; i < script_.steps.size(); ++i) {
      if (i == stop_) return Tensor();
      values.push_back(make(script_.steps[i], values));
    }
    return apply("mean", {apply("square", {values.back()})});
  }

  Tensor make(const Script::Step& step, const Tensors& values) const {
    Tensors inputs;
    for (const size_t input : step.inputs) inputs.push_back(values[input]);
    if (step.op.empty()) return line_ ? spmd::redistribute(inputs[0], step.spec, {}) : inputs[0];
    if (step.dim < 0) return apply(step.op, inputs);
    return apply(step.op, inputs, ops::make_attributes({{"dim", step.dim}}));
  }

  static Tensor apply(const std::string& op, const Tensors& inputs, const ops::Attributes& attributes = {}) {
    return autograd::apply(*ops::find_op(op), inputs, attributes)[0];
  }
  Tensor whole(const Tensor& x) const { return line_ ? spmd::gather(x, -1) : x.clone(); }

  const Script& script_;
  const std::optional<spmd::Line> line_;
  Dautograd* const dautograd_ = nullptr;
  const size_t stop_;
  Tensors parameters_;
};

constexpr size_t kAll = SIZE_MAX;

// The outcome of a run on a member.
struct Ended {
  std::optional<Results> results;
  std::optional<Error> error;
};

// A member that does not do as the others.
struct Other {
  int32_t rank = -1;
  Script script = {};                          // with steps: it runs this one
  size_t stop = kAll;                          // before this step
  std::optional<Nanos> killed = std::nullopt;  // so long after the beginning
  std::optional<Nanos> frozen = std::nullopt;  // likewise, for a second
};

// The workers, and a random script with its right results.
class Programs {
 public:
  explicit Programs(uint64_t seed, double drop) : random_(seed) {
    static const std::vector<Dims> kSizes = {{2}, {3}, {4}, {2, 2}, {1, 3}};
    sizes_ = kSizes[below(kSizes.size())];
    script_ = random_script(random_, sizes_.size() == 1 ? kSpecsOfOneAxis : kSpecsOfTwoAxes);
    expected_ = *Run(script_, kAll).train();
    SimGroupOptions options;
    options.size = static_cast<int32_t>(element_count(sizes_));
    options.faults.drop = drop;
    options.log_level = LogLevel::kError;
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    group_->start();
  }

  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }
  int32_t any_member() { return static_cast<int32_t>(below(static_cast<uint64_t>(group_->size()))); }
  SimWorkerGroup& group() { return *group_; }
  Script& script() { return script_; }

  // All living members make a mesh of that shape, and run the script, each on a thread of its own. The run does not
  // wait for a member that is killed.
  std::vector<Ended> run(const Dims& sizes, const Other& other = {}) {
    make_mesh(sizes);
    if (other.killed || other.frozen) threads_.push_back(group_->scheduler().spawn([this, other] { disturb(other); }));
    auto ended = std::make_shared<std::vector<Ended>>(static_cast<size_t>(group_->size()));
    std::vector<std::shared_ptr<Future<Unit>>> threads;
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      const auto& program = programs_[static_cast<size_t>(rank)];
      if (program == nullptr) continue;
      const bool differs = rank == other.rank && !other.script.steps.empty();
      const size_t stop = rank == other.rank ? other.stop : kAll;
      auto script = std::make_shared<Script>(differs ? other.script : script_);
      threads_.push_back(group_->scheduler().spawn([ended, rank, stop, script, line = spmd::Line{program, ""}, this] {
        Ended& mine = (*ended)[static_cast<size_t>(rank)];
        try {
          mine.results = Run(*script, line, group_->worker(rank).dautograd(), stop).train();
        } catch (...) {
          mine.error = current_error();
        }
      }));
      if (rank != other.rank || !other.killed) threads.push_back(threads_.back());
    }
    const Nanos begin = group_->scheduler().now();
    for (const auto& thread : threads) EXPECT_TRUE(wait(*thread, kLongest)) << "a member hangs";
    taken_ = group_->scheduler().now() - begin;
    return *ended;
  }
  Nanos taken() const { return taken_; }  // by the last run
  // A moment within a run as long as the last one; without one, within 100 ms.
  Nanos any_moment() {
    return static_cast<Nanos>(below(static_cast<uint64_t>(taken_ != 0 ? taken_ : 100 * kMillisecond)));
  }

  void expect_right(const Ended& ended) const {
    ASSERT_FALSE(ended.error) << ended.error->message();
    ASSERT_TRUE(ended.results);
    for (size_t i = 0; i < expected_.losses.size(); ++i) {
      EXPECT_NEAR(ended.results->losses[i], expected_.losses[i], 1e-9);
    }
    for (size_t i = 0; i < expected_.parameters.size(); ++i) {
      const auto expected = values_of<double>(expected_.parameters[i]);
      const auto got = values_of<double>(ended.results->parameters[i]);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t k = 0; k < expected.size(); ++k) ASSERT_NEAR(got[k], expected[k], 1e-9) << "parameter " << i;
    }
  }

  // All results are right, with the same bits on all members.
  void expect_all_right(const std::vector<Ended>& all) const {
    for (const Ended& ended : all) {
      expect_right(ended);
      if (::testing::Test::HasFailure()) return;
      for (size_t i = 0; i < expected_.parameters.size(); ++i) {
        EXPECT_EQ(values_of<double>(ended.results->parameters[i]), values_of<double>(all[0].results->parameters[i]));
      }
    }
  }

  const Dims& sizes() const { return sizes_; }

 private:
  void make_mesh(const Dims& sizes) {
    programs_.assign(static_cast<size_t>(group_->size()), nullptr);
    layout::MeshRequest request;
    request.name = "train";
    request.shape = sizes;
    for (size_t i = 0; i < sizes.size(); ++i) request.axis_names.emplace_back(1, static_cast<char>("xy"[i]));
    std::vector<std::pair<int32_t, Meshes::Made>> made;
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      if (group_->is_killed(rank)) continue;
      made.emplace_back(rank, group_->worker(rank).meshes().create(request, kMeshTimeout));
    }
    for (const auto& [rank, mesh] : made) {
      wait(*mesh, kForever);
      programs_[static_cast<size_t>(rank)] = std::make_shared<spmd::Program>(std::make_shared<MeshUse>(mesh->value()));
    }
  }

  void disturb(const Other& other) {
    wait(*Future<Unit>::make(), other.killed ? *other.killed : *other.frozen);
    if (other.killed) return group_->kill(other.rank);
    group_->freeze(other.rank);
    wait(*Future<Unit>::make(), kSecond);
    group_->thaw(other.rank);
  }

  SeededRandom random_;
  Dims sizes_;
  Script script_;
  Results expected_;
  Nanos taken_ = 0;
  std::unique_ptr<SimWorkerGroup> group_;
  std::vector<std::shared_ptr<spmd::Program>> programs_;  // by rank
  std::vector<std::shared_ptr<Future<Unit>>> threads_;
};

TEST(ShardedPrograms, AreExactWhateverDropsOrStandsStill) {
  for_each_seed(300, [](uint64_t seed) {
    Programs programs(seed, seed % 2 == 0 ? 0.01 : 0);
    Other other{programs.any_member()};
    if (seed % 3 == 0) other.frozen = programs.any_moment();
    programs.expect_all_right(programs.run(programs.sizes(), other));
  });
}

// A member is lost at any moment of the run. The others end at once, and go on as a mesh of their own.
TEST(ShardedPrograms, ALostMemberIsNamedAndTheOthersTrainOn) {
  for_each_seed(300, [](uint64_t seed) {
    Programs programs(seed, 0);
    programs.expect_all_right(programs.run(programs.sizes()));
    const int32_t victim = programs.any_member();
    Other lost{victim};
    lost.killed = programs.any_moment();
    const auto all = programs.run(programs.sizes(), lost);
    for (int32_t rank = 0; rank < programs.group().size(); ++rank) {
      const auto& ended = all[static_cast<size_t>(rank)];
      if (rank == victim) continue;
      if (!ended.error) {
        programs.expect_right(ended);
        continue;
      }
      EXPECT_EQ(ended.error->status(), Status::kDisconnected) << ended.error->message();
      EXPECT_NE(ended.error->message().find(SimWorkerGroup::name(victim)), std::string::npos) << ended.error->message();
    }
    EXPECT_LT(programs.taken(), 3 * kSecond);
    programs.group().scheduler().run_for(kSecond);
    Dims left{programs.group().size() - 1};
    if (programs.sizes().size() == 2) left = {1, programs.group().size() - 1};
    const auto again = programs.run(left);
    for (int32_t rank = 0; rank < programs.group().size(); ++rank) {
      if (rank != victim) programs.expect_right(again[static_cast<size_t>(rank)]);
    }
  });
}

// Also where the calls that differ send nothing to a member that could compare them.
TEST(ShardedPrograms, AMemberWithAnotherProgramIsToldToAll) {
  for_each_seed(300, [](uint64_t seed) {
    Programs programs(seed, seed % 2 == 0 ? 0.01 : 0);
    Other other{programs.any_member(), programs.script()};
    change(other.script.steps[programs.below(other.script.steps.size())]);
    for (const auto& ended : programs.run(programs.sizes(), other)) {
      ASSERT_TRUE(ended.error);
      EXPECT_EQ(ended.error->status(), Status::kDiverged) << ended.error->message();
    }
  });
}

TEST(ShardedPrograms, AMemberThatDoesNotComeIsNamed) {
  for_each_seed(200, [](uint64_t seed) {
    Programs programs(seed, 0);
    Other other{programs.any_member()};
    other.stop = programs.below(programs.script().steps.size());
    const auto all = programs.run(programs.sizes(), other);
    for (int32_t rank = 0; rank < programs.group().size(); ++rank) {
      const auto& ended = all[static_cast<size_t>(rank)];
      if (rank == other.rank) {
        EXPECT_FALSE(ended.error);
        continue;
      }
      ASSERT_TRUE(ended.error);
      const std::string& message = ended.error->message();
      EXPECT_EQ(ended.error->status(), Status::kDeadline) << message;
      EXPECT_NE(message.find(fmt::format("(rank {})", other.rank)), std::string::npos) << message;
    }
  });
}

}  // namespace
}  // namespace distag::sim
