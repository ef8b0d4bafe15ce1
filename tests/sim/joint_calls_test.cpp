// The members of a mesh call functions of each other and of workers outside in a joint context, each with its part of a
// tensor. A joint pass goes through those calls, and equals that of one process.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/hooks.h"
#include "coll/meshes.h"
#include "dautograd/joint_id.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "ops/op.h"
#include "sim/mesh_pieces.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/sim_group.h"
#include "support/tensors.h"

namespace distag::sim {
namespace {

using testing::values_of;

Tensor softmax(const Tensor& x) { return apply("softmax", {x}, ops::make_attributes({{"dim", int64_t{1}}})); }

// The work of a member on its part.
enum class Use { kHere, kUnused, kBuiltIn, kProject, kRelay };

struct Script {
  enum class Kind { kMatmul, kTanh, kSoftmax, kRedistribute, kAdd, kCall };
  struct Step {
    Kind kind = Kind::kTanh;
    size_t other = 0;            // a weight, or an earlier result
    const char* spec = nullptr;  // of a redistribute, or of the parts
    std::vector<Use> uses;       // by member
    std::vector<int32_t> to;     // likewise, the worker that is called
  };
  std::vector<int32_t> ranks;        // of the mesh, in its order
  std::vector<const char*> weights;  // their specs
  const char* batch = nullptr;
  std::vector<Step> steps;
  int passes = 1;
};

// The result has a history all the same, as the parts of others have.
Tensor without_gradient(const Tensor& part) {
  Tensor nothing = Tensor::empty(Dtype::kFloat64, part.shape());
  ops::assign(nothing, Tensor::scalar(Dtype::kFloat64, 0));
  autograd::set_requires_grad(nothing, true);
  return apply("add", {apply("tanh", {autograd::detach(part)}), nothing});
}

// The function of a worker that has a matrix of its own.
Tensor project(const Tensor& x, const Tensor& own, bool by_rows) {
  return apply("tanh", {by_rows ? apply("matmul", {x, own}) : apply("matmul", {own, x})});
}

class Joint {
 public:
  explicit Joint(uint64_t seed, double drop = 0) : random_(seed) {
    const auto members = static_cast<int32_t>(1 + below(4));
    make_script(members);
    SimGroupOptions options;
    options.size = members + 2;
    options.faults.drop = drop;
    options.log_level = LogLevel::kError;
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    const auto size = static_cast<size_t>(options.size);
    programs_.resize(size);
    weights_.resize(size);
    kept_.resize(size);
    for (int32_t rank = 0; rank < options.size; ++rank) {
      own_.push_back(parameter(20 + rank));
      Rpc& rpc = group_->worker(rank).rpc();
      rpc.register_function("project", [this, rank](Invocation& call) {
        Tensor x = call.args().at(0).as_tensor();
        if (const auto& hook = hooks_[static_cast<size_t>(rank)]) {
          x = apply("mul_scalar", {x}, ops::make_attributes({{"value", 1.0}}));
          autograd::add_hook(x, hook);
        }
        call.set_result(Value(project(x, own_[static_cast<size_t>(rank)], call.args().at(1).as_bool())));
      });
      rpc.register_function("relay", [this, rank](Invocation& call) {
        const auto to = static_cast<int32_t>(call.args().at(2).as_int64());
        call.set_result(group_->call(rank, to, "project", {call.args().at(0), call.args().at(1)}, call.context()));
      });
    }
    hooks_.resize(size);
    group_->start();
    make_mesh(script_.ranks);
  }
  ~Joint() {
    kept_.clear();
    weights_.clear();
    programs_.clear();
  }

  SimWorkerGroup& group() { return *group_; }
  Script& script() { return script_; }
  uint64_t below(uint64_t bound) { return random_.next() % bound; }
  int32_t any_rank() { return static_cast<int32_t>(below(static_cast<uint64_t>(group_->size()))); }
  bool is_member(int32_t rank) const { return programs_[static_cast<size_t>(rank)] != nullptr; }
  spmd::Program& program(int32_t rank) { return *programs_[static_cast<size_t>(rank)]; }
  void add_hook(int32_t rank, autograd::Hook hook) { hooks_[static_cast<size_t>(rank)] = std::move(hook); }

  struct Ended {
    std::shared_ptr<Context> context;
    Tensor root;
    double loss = 0;
    std::optional<Error> error;
  };

  // Runs a program on each member, such as that of a training step.
  using Program = std::function<void(int32_t rank, Ended& mine)>;
  std::vector<Ended> run(const Program& body, std::optional<int32_t> killed = std::nullopt) {
    auto ended = std::make_shared<std::vector<Ended>>(static_cast<size_t>(group_->size()));
    std::vector<std::shared_ptr<Future<Unit>>> threads;
    for (const int32_t rank : script_.ranks) {
      if (group_->is_killed(rank)) continue;
      const auto thread = group_->scheduler().spawn([ended, rank, body] {
        Ended& mine = (*ended)[static_cast<size_t>(rank)];
        try {
          body(rank, mine);
        } catch (...) {
          mine.error = current_error();
        }
      });
      threads_.push_back(thread);
      if (rank != killed) threads.push_back(thread);
    }
    for (const auto& thread : threads) EXPECT_TRUE(wait(*thread, kLongest)) << "a member hangs";
    return *ended;
  }
  Program training() {
    return [this](int32_t rank, Ended& mine) {
      mine.context = make_context(rank);
      mine.root = forward(rank, *mine.context);
      for (int pass = 1; pass <= script_.passes; ++pass) {
        BackwardOptions own;
        own.retain_graph = pass < script_.passes;
        mine.context->backward({mine.root}, own);
      }
      mine.loss = spmd::gather(mine.root, -1).item();
    };
  }
  // The two halves of a training step.
  std::vector<Ended> run_forward() {
    auto all = run([this](int32_t rank, Ended& mine) {
      mine.context = make_context(rank);
      mine.root = forward(rank, *mine.context);
      mine.loss = spmd::gather(mine.root, -1).item();
    });
    for (const Ended& mine : all) EXPECT_FALSE(mine.error) << mine.error->message();
    return all;
  }
  // Leaves each member's error, or none, in `all`.
  void run_backward(std::vector<Ended>& all, const BackwardOptions& options, std::optional<int32_t> killed = {}) {
    const auto passes = run(
        [&all, options](int32_t rank, Ended&) {
          const Ended mine = all[static_cast<size_t>(rank)];
          mine.context->backward({mine.root}, options);
        },
        killed);
    for (size_t rank = 0; rank < all.size(); ++rank) all[rank].error = passes[rank].error;
  }
  std::shared_ptr<Context> make_context(int32_t rank) {
    return spmd::make_joint_context(line_of(rank), group_->worker(rank).dautograd());
  }

  Tensor forward(int32_t rank, const Context& context) {
    Tensors results;
    Tensor x = matrix(50);
    spmd::mark_sharding(x, line_of(rank), script_.batch, -1);
    const Tensors& weights = weights_[static_cast<size_t>(rank)];
    const auto position = static_cast<size_t>(program(rank).position());
    for (const Script::Step& step : script_.steps) {
      results.push_back(x);
      x = step.kind == Script::Kind::kCall           ? call_with_part(rank, context, step, position, x)
          : step.kind == Script::Kind::kRedistribute ? spmd::redistribute(x, step.spec, {})
                                                     : compute(step, x, weights, results);
    }
    return apply("mean", {apply("square", {x})});
  }

  // All numbers are right, with the same bits on all members.
  void expect_right(const std::vector<Ended>& all, int passes = 0) {
    const Expected expected = run_alone(passes == 0 ? script_.passes : passes);
    for (const int32_t rank : script_.ranks) {
      const Ended& mine = all[static_cast<size_t>(rank)];
      ASSERT_FALSE(mine.error) << mine.error->message();
      EXPECT_NEAR(mine.loss, expected.loss, 1e-12);
      EXPECT_EQ(mine.context->global_id(), all[static_cast<size_t>(script_.ranks[0])].context->global_id());
    }
    auto got = std::make_shared<std::vector<std::vector<std::vector<double>>>>(static_cast<size_t>(group_->size()));
    run([this, got, &all](int32_t rank, Ended&) {
      const auto gradients = all[static_cast<size_t>(rank)].context->gradients();
      for (const Tensor& weight : weights_[static_cast<size_t>(rank)]) {
        const Tensor* gradient = gradients->find(weight);
        (*got)[static_cast<size_t>(rank)].push_back(
            gradient == nullptr ? std::vector<double>() : values_of<double>(spmd::gather(*gradient, -1)));
      }
    });
    for (const int32_t rank : script_.ranks) {
      const auto& mine = (*got)[static_cast<size_t>(rank)];
      ASSERT_EQ(mine.size(), expected.weights.size());
      for (size_t i = 0; i < mine.size(); ++i) expect_near(mine[i], expected.weights[i]);
      EXPECT_EQ(mine, (*got)[static_cast<size_t>(script_.ranks[0])]);
    }
    const Id context = all[static_cast<size_t>(script_.ranks[0])].context->global_id();
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      const Tensor& own = own_[static_cast<size_t>(rank)];
      std::vector<double> mine;
      if (!expected.own[static_cast<size_t>(rank)].empty()) {
        const auto gradients = group_->worker(rank).dautograd().find_context(context)->gradients();
        if (const Tensor* gradient = gradients->find(own)) mine = values_of<double>(*gradient);
      }
      expect_near(mine, expected.own[static_cast<size_t>(rank)]);
    }
  }

  // No member has an error, or all have the same error, of the same rank.
  void expect_alike(const std::vector<Ended>& all) {
    const Ended& first = all[static_cast<size_t>(script_.ranks[0])];
    for (const int32_t rank : script_.ranks) {
      const Ended& mine = all[static_cast<size_t>(rank)];
      ASSERT_EQ(mine.error.has_value(), first.error.has_value()) << rank;
      if (!mine.error) continue;
      EXPECT_EQ(mine.error->message(), first.error->message());
      EXPECT_EQ(mine.error->status(), first.error->status());
      EXPECT_EQ(mine.error->origin_rank(), first.error->origin_rank());
    }
  }

  // No context is left, soon after the members have released theirs.
  void expect_no_context_left(Nanos within = 10 * kSecond) {
    const auto left = [this] {
      uint64_t count = 0;
      for (int32_t rank = 0; rank < group_->size(); ++rank) {
        if (group_->is_killed(rank)) continue;
        const auto stats = group_->worker(rank).stats().dautograd;
        count += stats.contexts + stats.passes_open;
      }
      return count;
    };
    EXPECT_TRUE(group_->scheduler().run_until([&left] { return left() == 0; }, within)) << left();
  }

  bool has_mesh_ended() {
    return std::any_of(script_.ranks.begin(), script_.ranks.end(), [this](int32_t rank) {
      return !group_->is_killed(rank) && program(rank).mesh().when_ended()->is_done();
    });
  }

  void make_mesh(const std::vector<int32_t>& ranks) {
    script_.ranks = ranks;
    for (auto& weights : weights_) weights.clear();
    std::fill(programs_.begin(), programs_.end(), nullptr);
    layout::MeshRequest request;
    request.name = "joint";
    request.shape = {static_cast<int64_t>(ranks.size())};
    request.axis_names = {"x"};
    request.ranks = ranks;
    std::vector<Meshes::Made> made;
    for (const int32_t rank : ranks) made.push_back(group_->worker(rank).meshes().create(request, kMeshTimeout));
    for (size_t i = 0; i < ranks.size(); ++i) {
      wait(*made[i], kForever);
      auto& program = programs_[static_cast<size_t>(ranks[i])];
      program = std::make_shared<spmd::Program>(std::make_shared<MeshUse>(made[i]->value()));
      group_->worker(ranks[i]).programs().add(program);
    }
    const auto all = run([this](int32_t rank, Ended&) {
      for (size_t i = 0; i < script_.weights.size(); ++i) {
        const Tensor weight = matrix(static_cast<int64_t>(i));
        spmd::mark_sharding(weight, line_of(rank), script_.weights[i], -1);
        autograd::set_requires_grad(weight, true);
        weights_[static_cast<size_t>(rank)].push_back(weight);
      }
    });
    for (const Ended& mine : all) ASSERT_FALSE(mine.error) << mine.error->message();
  }

 private:
  struct Expected {
    double loss = 0;
    std::vector<std::vector<double>> weights;
    std::vector<std::vector<double>> own;  // by rank
  };

  void make_script(int32_t members) {
    for (int32_t rank = 0; rank < members + 2; ++rank) script_.ranks.push_back(rank);
    for (size_t i = script_.ranks.size(); i > 1; --i) std::swap(script_.ranks[i - 1], script_.ranks[below(i)]);
    script_.ranks.resize(static_cast<size_t>(members));
    for (size_t i = 0, count = 1 + below(2); i < count; ++i) script_.weights.push_back(kSpecs[below(kSpecs.size())]);
    script_.batch = kSpecs[below(kSpecs.size())];
    script_.passes = 1 + static_cast<int>(below(2));
    const size_t count = 2 + below(4);
    const size_t call = 1 + below(count - 1);  // there is one at least
    for (size_t i = 0; i < count; ++i) {
      Script::Step step;
      const uint64_t kind = i == 0 ? 0 : i == call ? 5 : below(7);
      step.kind = static_cast<Script::Kind>(std::min<uint64_t>(kind, 5));
      step.other = step.kind == Script::Kind::kAdd ? below(i + 1) : below(script_.weights.size());
      step.spec = kSpecs[step.kind == Script::Kind::kCall ? 1 + below(2) : below(3)];
      for (int32_t member = 0; member < members; ++member) {
        step.uses.push_back(static_cast<Use>(below(5)));
        step.to.push_back(static_cast<int32_t>(below(static_cast<uint64_t>(members) + 2)));
      }
      script_.steps.push_back(step);
    }
  }

  spmd::Line line_of(int32_t rank) { return {programs_[static_cast<size_t>(rank)], ""}; }

  static Tensor compute(const Script::Step& step, const Tensor& x, const Tensors& weights, const Tensors& results) {
    switch (step.kind) {
      case Script::Kind::kMatmul:
        return apply("matmul", {x, weights[step.other]});
      case Script::Kind::kSoftmax:
        return softmax(x);
      case Script::Kind::kAdd:
        return apply("add", {x, results[step.other]});
      default:
        return apply("tanh", {x});
    }
  }

  Tensor call_with_part(int32_t rank, const Context& context, const Script::Step& step, size_t position,
                        const Tensor& x) {
    const Tensor part = spmd::to_local(spmd::redistribute(x, step.spec, {}), std::nullopt);
    kept_[static_cast<size_t>(rank)].push_back(part);  // also where nothing is computed from it
    const bool by_rows = step.spec == kSpecs[1];
    const int32_t to = step.to[position];
    const Id id = context.global_id();
    Tensor y;
    switch (step.uses[position]) {
      case Use::kHere:
        y = apply("tanh", {part});
        break;
      case Use::kUnused:
        y = without_gradient(part);
        break;
      case Use::kBuiltIn:
        y = group_->call(rank, to, "tanh", {Value(part)}, id).as_tensor();
        break;
      case Use::kProject:
        y = group_->call(rank, to, "project", {Value(part), Value(by_rows)}, id).as_tensor();
        break;
      case Use::kRelay:
        y = group_->call(rank, relay(), "relay", {Value(part), Value(by_rows), Value(int64_t{to})}, id).as_tensor();
    }
    return spmd::from_local(line_of(rank), y, step.spec, Dims{kSize, kSize}, std::nullopt);
  }

  // A worker outside of the mesh.
  int32_t relay() const {
    int32_t rank = 0;
    while (programs_[static_cast<size_t>(rank)] != nullptr) ++rank;
    return rank;
  }

  Tensor call_alone(const Script::Step& step, const Tensor& x, const Tensors& own) const {
    const layout::MeshShape& mesh = programs_[static_cast<size_t>(script_.ranks[0])]->shape();
    const bool by_rows = step.spec == kSpecs[1];
    Tensor sum;
    for (int64_t position = 0; position < mesh.count(); ++position) {
      const layout::Box box = box_of(mesh, layout::parse_spec(mesh, step.spec, 2), {kSize, kSize}, position);
      Tensor mask = Tensor::empty(Dtype::kFloat64, {kSize, kSize});
      ops::assign(mask, Tensor::scalar(Dtype::kFloat64, 0));
      for (int64_t i = 0; i < box.extent[0]; ++i) {
        for (int64_t j = 0; j < box.extent[1]; ++j) {
          mask.mutable_data_as<double>()[(box.offset[0] + i) * kSize + box.offset[1] + j] = 1;
        }
      }
      const Use use = step.uses[static_cast<size_t>(position)];
      const Tensor& weight = own[static_cast<size_t>(step.to[static_cast<size_t>(position)])];
      const bool has_weight = use == Use::kProject || use == Use::kRelay;
      const Tensor here = use == Use::kUnused ? without_gradient(x) : apply("tanh", {x});
      const Tensor y = has_weight ? project(x, weight, by_rows) : here;
      const Tensor part = apply("mul", {y, mask});
      sum = sum ? apply("add", {sum, part}) : part;
    }
    return sum;
  }

  Expected run_alone(int passes) const {
    Tensors weights;
    Tensors own;
    for (size_t i = 0; i < script_.weights.size(); ++i) weights.push_back(parameter(static_cast<int64_t>(i)));
    for (size_t rank = 0; rank < own_.size(); ++rank) own.push_back(parameter(20 + static_cast<int64_t>(rank)));
    Tensor x = matrix(50);
    Tensors results;
    for (const Script::Step& step : script_.steps) {
      results.push_back(x);
      if (step.kind == Script::Kind::kCall) {
        x = call_alone(step, x, own);
      } else if (step.kind != Script::Kind::kRedistribute) {
        x = compute(step, x, weights, results);
      }
    }
    const Tensor loss = apply("mean", {apply("square", {x})});
    const auto context = make_local_context();
    context->backward({loss}, {});
    const auto gradients = context->gradients();
    const auto of = [&gradients, passes](const Tensor& leaf) {
      const Tensor* gradient = gradients->find(leaf);
      std::vector<double> values = gradient == nullptr ? std::vector<double>() : values_of<double>(*gradient);
      for (double& value : values) value *= passes;
      return values;
    };
    Expected expected;
    expected.loss = loss.item();
    for (const Tensor& weight : weights) expected.weights.push_back(of(weight));
    for (const Tensor& weight : own) expected.own.push_back(of(weight));
    return expected;
  }

  static void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-12);
  }

  SeededRandom random_;
  Script script_;
  std::unique_ptr<SimWorkerGroup> group_;
  std::vector<std::shared_ptr<spmd::Program>> programs_;  // by rank; nullptr outside of the mesh
  std::vector<Tensors> weights_;                          // of members
  std::vector<Tensors> kept_;                             // their parts
  Tensors own_;                                           // the plain matrix of each worker
  std::vector<autograd::Hook> hooks_;                     // of its function
  std::vector<std::shared_ptr<Future<Unit>>> threads_;
};

TEST(JointCalls, AJointPassIsThatOfOneProcess) {
  for_each_seed(300, [](uint64_t seed) {
    Joint joint(seed, seed % 2 == 0 ? 0.05 : 0);
    joint.expect_right(joint.run(joint.training()));
    joint.expect_no_context_left();
  });
}

TEST(JointCalls, WorkersThatStandStillAreWaitedFor) {
  for_each_seed(100, [](uint64_t seed) {
    Joint joint(seed, seed % 2 == 0 ? 0.01 : 0);
    const int32_t rank = joint.any_rank();
    const Nanos moment = joint.group().scheduler().between(0, 5 * kMillisecond);
    const auto other = joint.group().scheduler().spawn([&joint, rank, moment] {
      wait(*Future<Unit>::make(), moment);
      joint.group().freeze(rank);
      wait(*Future<Unit>::make(), kSecond);
      joint.group().thaw(rank);
    });
    joint.expect_right(joint.run(joint.training()));
    wait(*other, kForever);
  });
}

// All members get the same end, and can run the pass again.
TEST(JointCalls, APassThatEndsAtItsDeadlineCanBeRepeated) {
  size_t late = 0;
  const bool is_sweep = for_each_seed(200, [&late](uint64_t seed) {
    Joint joint(seed, seed % 2 == 0 ? 0.01 : 0);
    auto all = joint.run_forward();
    int committed = 0;
    for (int attempt = 0; attempt < 4; ++attempt) {
      BackwardOptions options;
      options.retain_graph = attempt < 3;
      if (attempt < 3) options.timeout = 1 + joint.group().scheduler().between(0, 4 * kMillisecond);
      joint.run_backward(all, options);
      if (joint.has_mesh_ended()) return;  // so short a time that members missed each other
      joint.expect_alike(all);
      const auto& error = all[static_cast<size_t>(joint.script().ranks[0])].error;
      if (error) {
        EXPECT_EQ(error->status(), Status::kDeadline) << error->message();
        ++late;
      } else {
        ++committed;
      }
    }
    joint.expect_right(all, committed);
  });
  if (!is_sweep) return;
  EXPECT_GT(late, 10u);
}

TEST(JointCalls, AFailureAtACalleeIsThatOfAllMembers) {
  size_t failed = 0;
  const bool is_sweep = for_each_seed(100, [&failed](uint64_t seed) {
    Joint joint(seed);
    const int32_t rank = joint.any_rank();
    auto fails = std::make_shared<bool>(true);
    joint.add_hook(rank, [fails](const Tensor& gradient) {
      if (*fails) fail(Status::kRemote, "not this time");
      return gradient;
    });
    auto all = joint.run_forward();
    BackwardOptions options;
    options.retain_graph = true;
    joint.run_backward(all, options);
    EXPECT_FALSE(joint.has_mesh_ended());
    joint.expect_alike(all);
    const auto& error = all[static_cast<size_t>(joint.script().ranks[0])].error;
    if (!error) return joint.expect_right(all, 1);  // no call reaches the function of that worker
    ++failed;
    EXPECT_NE(error->message().find("not this time"), std::string::npos) << error->message();
    EXPECT_EQ(error->origin_rank(), rank) << error->message();
    *fails = false;
    joint.run_backward(all, {});
    joint.expect_right(all, 1);
  });
  if (!is_sweep) return;
  EXPECT_GT(failed, 10u);
}

// A member, or a worker outside, is lost at any moment of the pass.
TEST(JointCalls, ALostWorkerIsNamedOnAllMembers) {
  size_t outside = 0;
  const bool is_sweep = for_each_seed(300, [&outside](uint64_t seed) {
    Joint joint(seed);
    auto all = joint.run_forward();
    const int32_t victim = joint.any_rank();
    SimScheduler& scheduler = joint.group().scheduler();
    const Nanos moment = scheduler.between(0, 3 * kMillisecond);
    const auto killer = scheduler.spawn([&joint, victim, moment] {
      wait(*Future<Unit>::make(), moment);
      joint.group().kill(victim);
    });
    const Nanos begin = scheduler.now();
    BackwardOptions options;
    options.retain_graph = true;
    joint.run_backward(all, options, victim);
    wait(*killer, kForever);
    EXPECT_LT(scheduler.now() - begin, 3 * kSecond);
    const std::vector<int32_t> ranks = joint.script().ranks;
    for (const int32_t rank : ranks) {
      const auto& error = all[static_cast<size_t>(rank)].error;
      if (rank == victim || !error) continue;
      EXPECT_EQ(error->status(), Status::kDisconnected) << error->message();
      EXPECT_NE(error->message().find(SimWorkerGroup::name(victim)), std::string::npos) << error->message();
    }
    if (!joint.is_member(victim)) {
      ++outside;
      EXPECT_FALSE(joint.has_mesh_ended());
      joint.expect_alike(all);
    }
    all.clear();
    joint.expect_no_context_left(30 * kSecond);
    std::vector<int32_t> left = ranks;
    std::erase(left, victim);
    if (left.empty()) return;
    // The survivors go on, without calls of the lost worker.
    for (auto& step : joint.script().steps) std::replace(step.to.begin(), step.to.end(), victim, left[0]);
    for (auto& step : joint.script().steps)
      std::replace(step.uses.begin(), step.uses.end(), Use::kRelay, Use::kProject);
    joint.make_mesh(left);
    joint.expect_right(joint.run(joint.training()));
  });
  if (!is_sweep) return;
  EXPECT_GT(outside, 10u);
}

// A worker gets no memory at some moment of the pass, its loop included: the pass is right, or fails on all.
TEST(JointCalls, AShortageEndsThePassAtWorst) {
  size_t refused = 0;
  const bool is_sweep = for_each_seed(300, [&refused](uint64_t seed) {
    Joint joint(seed);
    auto all = joint.run_forward();
    const int32_t victim = joint.any_rank();
    SimMemory& memory = joint.group().memory(victim);
    if (seed % 2 == 0) joint.group().share_memory_with_loop(victim);
    memory.refuse(joint.below(uint64_t{1} << (1 + joint.below(9))), joint.below(4) == 0 ? 1 + joint.below(8) : 1);
    BackwardOptions options;
    options.retain_graph = true;
    bool has_passed = false;
    for (int attempt = 0; attempt < 20 && !has_passed && !joint.has_mesh_ended(); ++attempt) {
      joint.run_backward(all, options);
      has_passed = true;
      for (const int32_t rank : joint.script().ranks) {
        const auto& error = all[static_cast<size_t>(rank)].error;
        if (!error) continue;
        has_passed = false;
        EXPECT_EQ(error->status(), Status::kOutOfMemory) << error->message();
      }
      if (!joint.has_mesh_ended()) joint.expect_alike(all);
    }
    memory.refuse(0, 0);
    refused += memory.refused() != 0;
    if (has_passed && !joint.has_mesh_ended()) joint.expect_right(all, 1);
  });
  if (!is_sweep) return;
  EXPECT_GT(refused, 20u);
}

// No member reaches the first part by its roots alone: some reach it behind the second part, which others come to.
TEST(JointCalls, PartsOfOtherMembersLeadToPartsOfOthersAgain) {
  Joint joint(4);
  const size_t members = joint.script().ranks.size();
  ASSERT_GE(members, 2u);
  for (const Use use : {Use::kHere, Use::kProject}) {
    Script::Step first{Script::Kind::kCall, 0, kSpecs[1], {}, {}};
    first.uses.assign(members, Use::kUnused);
    first.to.assign(members, 0);
    Script::Step second = first;
    first.uses[0] = Use::kHere;
    second.uses[1] = use;
    joint.script().steps = {{Script::Kind::kMatmul, 0, nullptr, {}, {}}, first, second};
    joint.expect_right(joint.run(joint.training()));
  }
}

// ---- the life of a joint context ----

uint64_t contexts_at(Joint& joint, int32_t rank) { return joint.group().worker(rank).stats().dautograd.contexts; }

int32_t outside_of(const Joint& joint) {
  int32_t rank = 0;
  while (joint.is_member(rank)) ++rank;
  return rank;
}

// The creator makes the context after the others have used it, and let go of it.
TEST(JointCalls, AContextThatItsCreatorMakesLastIsThatOfTheOthers) {
  for_each_seed(100, [](uint64_t seed) {
    Joint joint(seed);
    const auto& ranks = joint.script().ranks;
    if (ranks.size() < 2) return;
    const int32_t creator = *std::min_element(ranks.begin(), ranks.end());
    const int32_t outside = outside_of(joint);
    for (const int32_t rank : ranks) {
      if (rank == creator) continue;
      const auto context = joint.make_context(rank);
      joint.group().call(rank, outside, "tanh", {Value(parameter(1))}, context->global_id());
      joint.group().call(rank, creator, "tanh", {Value(parameter(1))}, context->global_id());
    }
    joint.group().scheduler().run_for(kSecond);
    EXPECT_EQ(contexts_at(joint, outside), 1u);
    EXPECT_EQ(contexts_at(joint, creator), 1u);
    auto context = joint.make_context(creator);
    joint.group().call(creator, outside, "tanh", {Value(parameter(1))}, context->global_id());
    joint.group().scheduler().run_for(kSecond);
    EXPECT_EQ(contexts_at(joint, outside), 1u);
    context.reset();
    joint.expect_no_context_left();
  });
}

TEST(JointCalls, AContextThatItsCreatorLetsGoOfFirstIsThatOfTheOthers) {
  Joint joint(4);
  const auto ranks = joint.script().ranks;
  ASSERT_GE(ranks.size(), 2u);
  const int32_t creator = *std::min_element(ranks.begin(), ranks.end());
  const int32_t outside = outside_of(joint);
  joint.make_context(creator).reset();
  joint.group().scheduler().run_for(kSecond);
  for (const int32_t rank : ranks) {
    if (rank == creator) continue;
    const auto context = joint.make_context(rank);
    joint.group().call(rank, outside, "tanh", {Value(parameter(1))}, context->global_id());
    joint.group().scheduler().run_for(kSecond);
    EXPECT_EQ(contexts_at(joint, outside), 1u);
  }
  joint.expect_no_context_left();
}

// Other members may still step them there.
TEST(JointCalls, GradientsStayUntilAllMembersHaveLetGo) {
  Joint joint(4);
  ASSERT_GE(joint.script().ranks.size(), 2u);
  for (auto& step : joint.script().steps) std::fill(step.uses.begin(), step.uses.end(), Use::kHere);
  auto all = joint.run(joint.training());
  const int32_t first = joint.script().ranks[0];
  const Id id = all[static_cast<size_t>(first)].context->global_id();
  all[static_cast<size_t>(first)].context.reset();
  joint.group().scheduler().run_for(kSecond);
  const auto context = joint.group().worker(first).dautograd().find_context(id);
  EXPECT_FALSE(context->gradients()->entries.empty());
  all.clear();
  joint.expect_no_context_left();
}

TEST(JointCalls, AContextThatItsCreatorNeverMakesEndsWithTheMesh) {
  Joint joint(4);
  const auto ranks = joint.script().ranks;
  ASSERT_GE(ranks.size(), 2u);
  const int32_t creator = *std::min_element(ranks.begin(), ranks.end());
  const int32_t outside = outside_of(joint);
  const int32_t other = ranks[0] == creator ? ranks[1] : ranks[0];
  auto context = joint.make_context(other);
  joint.group().call(other, outside, "tanh", {Value(parameter(1))}, context->global_id());
  joint.group().scheduler().run_for(kSecond);
  EXPECT_EQ(contexts_at(joint, creator), 1u);
  joint.program(creator).mesh().end(Error(Status::kRemote, "it goes home"));
  joint.group().scheduler().run_for(kSecond);
  context.reset();
  joint.expect_no_context_left();
}

TEST(JointCalls, AFunctionBeginsNoPassOfItsOwnInIt) {
  Joint joint(4);
  const auto all = joint.run_forward();
  const Id id = all[static_cast<size_t>(joint.script().ranks[0])].context->global_id();
  EXPECT_TRUE(is_joint(id));
  const auto context = joint.group().worker(outside_of(joint)).dautograd().find_context(id);
  try {
    context->backward({apply("sum", {parameter(1)})}, {});
    ADD_FAILURE() << "the pass went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState) << error.message();
    EXPECT_NE(error.message().find("joint context"), std::string::npos) << error.message();
  }
}

// A worker keeps only contexts that it may come to make itself, and a bounded number of them.
TEST(JointCalls, AWorkerThatNamesContextsAtWillFillsNoMemory) {
  Joint joint(4);
  const auto& ranks = joint.script().ranks;
  const int32_t creator = *std::min_element(ranks.begin(), ranks.end());
  const Peer from = joint.group().worker(creator).group().membership().find_by_rank(outside_of(joint))->peer;
  const Id mesh = joint.program(creator).mesh().id();
  const auto say = [&](const Id& context) {
    joint.group().loop(creator).run([&] {
      wire::Message message{0, 0, {}, wire::Joined{context, {}}};
      joint.group().worker(creator).dautograd().handle(from, message);
    });
  };
  say(joint_context_id({mesh.maker, mesh.counter + 1}, 1));  // there is no such mesh
  EXPECT_EQ(contexts_at(joint, creator), 0u);
  for (uint64_t number = 1; number <= 5000; ++number) say(joint_context_id(mesh, number));
  EXPECT_EQ(contexts_at(joint, creator), 4096u);
  joint.program(creator).mesh().end(Error(Status::kRemote, "it goes home"));
  joint.group().scheduler().run_for(kSecond);
  joint.group().loop(creator).run([&] {
    wire::Message message{0, 0, {}, wire::Release{{joint_context_id(mesh, 5001)}}};
    EXPECT_EQ(joint.group().worker(creator).dautograd().handle(from, message), Heard::kStale);
  });
  EXPECT_EQ(contexts_at(joint, creator), 0u);
}

}  // namespace
}  // namespace distag::sim
