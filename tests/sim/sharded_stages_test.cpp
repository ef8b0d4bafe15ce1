// A driver calls a function on each member of a mesh, which computes with sharded tensors and gives back its part. One
// backward pass of the driver runs through all of it, and equals that of one process.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "base/host_code.h"
#include "base/violation.h"
#include "coll/mesh_use.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "ops/op.h"
#include "sim/mesh_pieces.h"
#include "spmd/marking.h"
#include "spmd/program.h"
#include "spmd/tensors.h"
#include "support/sim_group.h"
#include "support/tensors.h"

namespace distag::sim {
namespace {

using testing::values_of;

Tensor scaled(const Tensor& x, double factor) {
  return apply("mul_scalar", {x}, ops::make_attributes({{"value", factor}}));
}

// The program of the members, and the use that the driver makes of its results.
struct Script {
  struct Layer {
    size_t weight = 0;
    bool has_softmax = false;
    const char* spec = nullptr;  // that the result is brought to; nullptr: as it comes
  };
  std::vector<const char*> weights;  // their specs
  std::vector<Layer> layers;
  const char* output = nullptr;
  bool has_lines = false;    // each batch on a line of its own, at the same time
  bool is_chain = false;     // a batch takes the result of the one before, on a line of its own
  size_t first_line = 0;     // its lines count from there, downwards
  size_t taken_part = 0;     // of a repeated result
  bool has_relay = false;    // another worker calls the members, and the driver calls that
  bool is_constant = false;  // the input needs no gradient
  bool has_member_as_driver = false;
  std::vector<std::vector<double>> parts;  // by batch and member: the factor of its part; 0: it is not used
};

Script random_script(SeededRandom& random, size_t members) {
  auto below = [&random](size_t bound) { return static_cast<size_t>(random.next() % bound); };
  Script script;
  for (size_t i = 0, count = 1 + below(3); i < count; ++i) script.weights.push_back(kSpecs[below(kSpecs.size())]);
  for (size_t i = 0, count = 1 + below(3); i < count; ++i) {
    script.layers.push_back(
        {below(script.weights.size()), below(2) == 0, below(2) == 0 ? kSpecs[below(kSpecs.size())] : nullptr});
  }
  script.output = kSpecs[below(kSpecs.size())];
  script.has_lines = below(2) == 0;
  script.is_chain = below(2) == 0;
  script.first_line = below(4);
  script.taken_part = below(members);
  script.has_relay = below(2) == 0;
  script.is_constant = below(2) == 0;
  script.has_member_as_driver = below(3) == 0;
  for (size_t batch = 0, count = 1 + below(3); batch < count; ++batch) {
    std::vector<double> factors;
    const bool is_sparse = below(2) == 0;
    for (size_t i = 0; i < members; ++i) {
      factors.push_back(is_sparse && below(3) != 0 ? 0 : 1 + static_cast<double>(below(8)) / 8);
    }
    if (*std::max_element(factors.begin(), factors.end()) == 0) factors[below(members)] = 1;
    script.parts.push_back(factors);
  }
  return script;
}

// The batches, each an input that a leaf of the driver is part of, and in a chain the result before.
Tensor input_of(const Script& script, const Tensor& leaf, size_t batch, const Tensor& before) {
  Tensor x = apply("tanh", {apply("add", {leaf, matrix(50 + static_cast<int64_t>(batch))})});
  if (script.is_constant) x = autograd::detach(x);
  return script.is_chain && before ? apply("add", {x, before}) : x;
}

std::vector<double> gradient_in(const Gradients& gradients, const Tensor& leaf) {
  const Tensor* gradient = gradients.find(leaf);
  return gradient == nullptr ? std::vector<double>() : values_of<double>(*gradient);
}

struct Expected {
  double loss = 0;
  std::vector<double> leaf;
  std::vector<std::vector<double>> weights;
};

Expected run_alone(const Script& script, const layout::MeshShape& mesh) {
  Tensors weights;
  for (size_t i = 0; i < script.weights.size(); ++i) weights.push_back(parameter(static_cast<int64_t>(i)));
  const Tensor leaf = parameter(40);
  Tensor loss = Tensor::scalar(Dtype::kFloat64, 0);
  Tensor x;
  for (size_t batch = 0; batch < script.parts.size(); ++batch) {
    x = input_of(script, leaf, batch, x);
    for (const Script::Layer& layer : script.layers) {
      x = apply("matmul", {x, weights[layer.weight]});
      x = layer.has_softmax ? apply("softmax", {x}, ops::make_attributes({{"dim", int64_t{1}}})) : apply("tanh", {x});
    }
    // Each element counts as often as parts with it are used.
    Tensor counts = Tensor::empty(Dtype::kFloat64, {kSize, kSize});
    ops::assign(counts, Tensor::scalar(Dtype::kFloat64, 0));
    for (int64_t position = 0; position < mesh.count(); ++position) {
      const layout::Box box = box_of(mesh, layout::parse_spec(mesh, script.output, 2), {kSize, kSize}, position);
      for (int64_t i = 0; i < box.extent[0]; ++i) {
        for (int64_t j = 0; j < box.extent[1]; ++j) {
          counts.mutable_data_as<double>()[(box.offset[0] + i) * kSize + box.offset[1] + j] +=
              script.parts[batch][static_cast<size_t>(position)];
        }
      }
    }
    loss = apply("add", {loss, apply("sum", {apply("mul", {apply("square", {x}), counts})})});
  }
  const auto context = make_local_context();
  context->backward({loss}, {});
  const auto gradients = context->gradients();
  Expected expected{loss.item(), gradient_in(*gradients, leaf), {}};
  for (const Tensor& weight : weights) expected.weights.push_back(gradient_in(*gradients, weight));
  return expected;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-12);
}

// The driver has rank 0 or 1; ranks from 1 on are the mesh, and the last rank is the relay.
class Stages {
 public:
  explicit Stages(uint64_t seed, double drop = 0) : random_(seed) {
    members_ = 1 + static_cast<int32_t>(random_.next() % 4);
    script_ = random_script(random_, static_cast<size_t>(members_));
    SimGroupOptions options;
    options.size = members_ + 2;
    options.faults.drop = drop;
    options.log_level = LogLevel::kError;
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    programs_.resize(static_cast<size_t>(members_) + 2);
    weights_.resize(programs_.size());
    for (int32_t rank = 1; rank <= members_; ++rank) {
      group_->worker(rank).rpc().register_function(
          "stage", [this, rank](Invocation& call) { call.set_result(Value(stage(rank, call.args()))); });
    }
    group_->worker(relay()).rpc().register_function("relay", [this](Invocation& call) {
      call.set_result(Value(forward(relay(), call.context(), call.args().at(0).as_tensor())));
    });
    group_->start();
    make_mesh();
  }
  ~Stages() {
    for (auto& weights : weights_) weights.clear();
    programs_.clear();
  }

  SimWorkerGroup& group() { return *group_; }
  Script& script() { return script_; }
  int32_t members() const { return members_; }
  uint64_t below(uint64_t bound) { return random_.next() % bound; }

  int32_t relay() const { return members_ + 1; }
  int32_t driver() const { return script_.has_member_as_driver ? 1 : 0; }
  std::shared_ptr<Context> make_context() { return group_->worker(driver()).dautograd().create_context(); }

  // The forward pass.
  Tensor run_forward(const std::shared_ptr<Context>& context, const Tensor& leaf) {
    const Id id = context->global_id();
    return script_.has_relay ? group_->call(driver(), relay(), "relay", {Value(leaf)}, id).as_tensor()
                             : forward(driver(), id, leaf);
  }

  void expect_right(const std::shared_ptr<Context>& context, const Tensor& leaf, double loss, double passes = 1) {
    Expected expected = run_alone(script_, programs_[1]->shape());
    EXPECT_NEAR(loss, expected.loss, 1e-12);
    for (double& value : expected.leaf) value *= passes;
    expect_near(gradient_in(*context->gradients(), leaf), expected.leaf);
    for (size_t i = 0; i < script_.weights.size(); ++i) {
      for (double& value : expected.weights[i]) value *= passes;
      expect_weight(context->global_id(), i, expected.weights[i]);
    }
  }
  // The mesh has ended on all members, by one error.
  void expect_ended(Status status, const std::string& words) {
    for (int32_t rank = 1; rank <= members_; ++rank) {
      const auto ended = programs_[static_cast<size_t>(rank)]->mesh().when_ended();
      ASSERT_TRUE(wait(*ended, 60 * kSecond)) << "rank " << rank;
      ASSERT_NE(ended->error(), nullptr);
      EXPECT_EQ(ended->error()->status(), status) << ended->error()->message();
      EXPECT_NE(ended->error()->message().find(words), std::string::npos) << ended->error()->message();
    }
  }
  std::vector<double> weight_gradient(const Id& context, size_t i) { return weight_gradients(context, i)[1]; }
  // A pass that has run for a random moment.
  std::shared_ptr<Future<Value>> begin_pass(const std::shared_ptr<Context>& context, const Tensor& loss) {
    const auto pass = context->backward_async({loss}, {});
    group_->scheduler().run_for(group_->scheduler().between(0, 3 * kMillisecond));
    return pass;
  }
  // Soon no living worker has a part of a pass open, nor its joint steps.
  void expect_no_pass_open(Nanos within = kSecond) {
    const auto open = [this] {
      uint64_t count = 0;
      for (int32_t rank = 0; rank < group_->size(); ++rank) {
        if (group_->is_killed(rank)) continue;
        count += group_->worker(rank).stats().dautograd.passes_open + group_->tasks_running(rank);
        if (programs_[static_cast<size_t>(rank)] != nullptr) {
          count += programs_[static_cast<size_t>(rank)]->mesh().stats().open;
        }
      }
      return count;
    };
    EXPECT_TRUE(group_->scheduler().run_until([&open] { return open() == 0; }, within)) << open();
  }
  // Marks a tensor of the first member; each other member marks a copy of it.
  void mark_on_all(const Tensor& tensor) {
    on_all_members([this, &tensor](int32_t rank) {
      const Tensor own = rank == 1 ? tensor : tensor.clone();
      spmd::mark_sharding(own, spmd::Line{programs_[static_cast<size_t>(rank)], ""}, kSpecs[1], -1);
    });
  }
  // The mesh still works.
  void expect_mesh_works() {
    on_all_members([this](int32_t rank) {
      const Tensor& weight = weights_[static_cast<size_t>(rank)][0];
      EXPECT_EQ(values_of<double>(spmd::gather(weight, -1)), values_of<double>(matrix(0)));
    });
  }
  // A worker had no memory for the gradients that it was told to keep: reading them says so.
  bool is_in_doubt(const Id& context) {
    for (int32_t rank = driver(); rank <= members_; ++rank) {
      try {
        static_cast<void>(group_->worker(rank).dautograd().find_context(context)->gradients());
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kOutOfMemory) << error.message();
        return true;
      }
    }
    return false;
  }
  const Id& mesh() { return programs_[1]->mesh().id(); }
  // Whether the mesh has ended: soon on all members, or on none.
  bool has_mesh_ended() {
    const auto count = [this] {
      return std::count_if(programs_.begin(), programs_.end(), [](const auto& program) {
        return program != nullptr && program->mesh().when_ended()->is_done();
      });
    };
    if (count() == 0) return false;
    EXPECT_TRUE(group_->scheduler().run_until([&] { return count() == members_; }, kSecond)) << count();
    return true;
  }
  // Delivers the message as if it came now from the peer's stream.
  Heard deliver(int32_t to, int32_t from, wire::Body body) {
    const Peer peer = group_->worker(0).group().membership().find_by_rank(from)->peer;
    Heard heard = Heard::kStale;
    group_->loop(to).run([&] {
      wire::Message message{0, 0, {}, std::move(body)};
      heard = group_->worker(to).dautograd().handle(peer, message);
    });
    return heard;
  }
  // Changes the part of a member before it gives it back.
  using Change = std::function<Tensor(int32_t rank, Tensor part)>;
  void set_change(Change change) { change_ = std::move(change); }
  // The members give back copies of the whole, and claim that all copies get the same gradient.
  void claim_copies(const std::vector<double>& factors) {
    script_.output = kSpecs[0];
    script_.is_chain = false;  // a chain takes one of the copies
    claims_copies_ = true;
    for (auto& of_batch : script_.parts) of_batch = factors;
  }
  // The graphs of the members are alike only if all have the hook.
  void add_hook_to_weight(int32_t rank, autograd::Hook hook) {
    autograd::add_hook(weights_[static_cast<size_t>(rank)][script_.layers[0].weight], std::move(hook));
  }

 private:
  using Call = Future<Value>;

  void make_mesh() {
    layout::MeshRequest request;
    request.name = "stage";
    request.shape = {members_};
    request.axis_names = {"x"};
    for (int32_t rank = 1; rank <= members_; ++rank) request.ranks.push_back(rank);
    std::vector<Meshes::Made> made;
    for (int32_t rank = 1; rank <= members_; ++rank) {
      made.push_back(group_->worker(rank).meshes().create(request, kMeshTimeout));
    }
    for (int32_t rank = 1; rank <= members_; ++rank) {
      const auto& mesh = made[static_cast<size_t>(rank) - 1];
      wait(*mesh, kForever);
      auto& program = programs_[static_cast<size_t>(rank)];
      program = std::make_shared<spmd::Program>(std::make_shared<MeshUse>(mesh->value()));
      group_->worker(rank).programs().add(program);
    }
    on_all_members([this](int32_t rank) {
      const spmd::Line line{programs_[static_cast<size_t>(rank)], ""};
      for (size_t i = 0; i < script_.weights.size(); ++i) {
        const Tensor weight = matrix(static_cast<int64_t>(i));
        spmd::mark_sharding(weight, line, script_.weights[i], -1);
        autograd::set_requires_grad(weight, true);
        weights_[static_cast<size_t>(rank)].push_back(weight);
      }
    });
  }

  void on_all_members(const std::function<void(int32_t rank)>& body) {
    std::vector<std::shared_ptr<Future<Unit>>> threads;
    for (int32_t rank = 1; rank <= members_; ++rank) {
      threads.push_back(group_->scheduler().spawn([&body, rank] { body(rank); }));
    }
    for (const auto& thread : threads) ASSERT_TRUE(wait(*thread, kLongest)) << "a member hangs";
  }

  // The whole tensor, from the parts that the members gave back.
  Tensor whole_of(std::span<const std::shared_ptr<Call>> calls) const {
    Tensors parts;
    for (const auto& call : calls) {
      wait(*call, kForever);
      parts.push_back(call->value().as_tensor());
    }
    if (script_.output == kSpecs[0]) return parts[script_.taken_part];
    const int64_t dim = script_.output == kSpecs[1] ? 0 : 1;
    return apply("concat", parts, ops::make_attributes({{"dim", dim}}));
  }

  Tensor forward(int32_t from, const Id& context, const Tensor& leaf) {
    Tensor loss = Tensor::scalar(Dtype::kFloat64, 0);
    Tensor before;
    std::vector<std::shared_ptr<Call>> calls;
    for (size_t batch = 0; batch < script_.parts.size(); ++batch) {
      const Tensor x = input_of(script_, leaf, batch, before);
      for (int32_t rank = 1; rank <= members_; ++rank) {
        calls.push_back(begin(from, context, rank, {Value(x), Value(static_cast<int64_t>(batch))}));
      }
      if (!script_.has_lines || script_.is_chain) {
        for (const auto& call : calls) wait(*call, kForever);
      }
      if (script_.is_chain) before = whole_of(std::span(calls).last(static_cast<size_t>(members_)));
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      wait(*calls[i], kForever);
      const Tensor part = calls[i]->value().as_tensor();
      const auto count = static_cast<size_t>(members_);
      const double factor = script_.parts[i / count][i % count];
      if (factor != 0) loss = apply("add", {loss, scaled(apply("sum", {apply("square", {part})}), factor)});
    }
    return loss;
  }

  // A function of a member.
  Tensor stage(int32_t rank, const Values& args) {
    const auto& program = programs_[static_cast<size_t>(rank)];
    const auto& weights = weights_[static_cast<size_t>(rank)];
    const auto batch = static_cast<size_t>(args[1].as_int64());
    const std::string name =
        script_.has_lines ? fmt::format("line {}", (script_.first_line + 8 - batch) % 4) : std::string();
    const spmd::Line line{program, name};
    Tensor x = spmd::from_local(line, args[0].as_tensor(), "(None, None)", Dims{kSize, kSize}, "(None, None) sum('x')");
    for (const Script::Layer& layer : script_.layers) {
      x = apply("matmul", {x, weights[layer.weight]});
      x = layer.has_softmax ? apply("softmax", {x}, ops::make_attributes({{"dim", int64_t{1}}})) : apply("tanh", {x});
      if (layer.spec != nullptr) x = spmd::redistribute(x, layer.spec, {});
    }
    x = spmd::redistribute(x, script_.output, {});
    const bool is_repeated = script_.output == kSpecs[0];
    const bool sums = is_repeated && !claims_copies_;
    const Tensor part = spmd::to_local(x, sums ? std::optional<std::string>("(None, None) sum('x')") : std::nullopt);
    return change_ ? change_(rank, part) : part;
  }

  std::shared_ptr<Call> begin(int32_t from, const Id& context, int32_t rank, Values args) {
    CallRequest request;
    request.context = context;
    request.to = SimWorkerGroup::name(rank);
    request.function = "stage";
    request.args = std::move(args);
    return group_->worker(from).rpc().call(std::move(request));
  }

  // The whole gradient of weight `i`, on each member.
  std::vector<std::vector<double>> weight_gradients(const Id& context, size_t i) {
    std::vector<std::vector<double>> got(programs_.size());
    on_all_members([&](int32_t rank) {
      const auto own = group_->worker(rank).dautograd().find_context(context);
      const auto gradients = own->gradients();
      const Tensor* gradient = gradients->find(weights_[static_cast<size_t>(rank)][i]);
      if (gradient != nullptr) got[static_cast<size_t>(rank)] = values_of<double>(spmd::gather(*gradient, -1));
    });
    return got;
  }

  void expect_weight(const Id& context, size_t i, const std::vector<double>& expected) {
    const auto got = weight_gradients(context, i);
    for (int32_t rank = 1; rank <= members_; ++rank) {
      expect_near(got[static_cast<size_t>(rank)], expected);
      EXPECT_EQ(got[static_cast<size_t>(rank)], got[1]);
    }
  }

  SeededRandom random_;
  int32_t members_ = 0;
  Script script_;
  std::unique_ptr<SimWorkerGroup> group_;
  std::vector<std::shared_ptr<spmd::Program>> programs_;  // by rank; nullptr for the driver
  std::vector<Tensors> weights_;
  Change change_;
  bool claims_copies_ = false;
};

TEST(ShardedStages, OnePassOfADriverIsThatOfOneProcess) {
  for_each_seed(300, [](uint64_t seed) {
    Stages stages(seed, seed % 2 == 0 ? 0.05 : 0);
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    BackwardOptions options;
    options.retain_graph = seed % 3 == 0;
    context->backward({loss}, options);
    if (options.retain_graph) context->backward({loss}, {});
    stages.expect_right(context, leaf, loss.item(), options.retain_graph ? 2 : 1);
  });
}

// Lines go on in the order in which their gradients come; sums over lines are made in the order of the program.
TEST(ShardedStages, TheTimingOfLinesChangesNoBit) {
  for_each_seed(100, [](uint64_t seed) {
    std::vector<std::vector<double>> weights;
    for (const double drop : {0.0, 0.1, 0.2}) {
      Stages stages(seed, drop);
      stages.script().has_lines = true;
      stages.script().is_chain = false;
      const auto context = stages.make_context();
      context->backward({stages.run_forward(context, parameter(40))}, {});
      weights.push_back(stages.weight_gradient(context->global_id(), 0));
    }
    EXPECT_EQ(weights[1], weights[0]);
    EXPECT_EQ(weights[2], weights[0]);
  });
}

// A pass ends by a cancel, or by its deadline. The next pass finds nothing of it.
TEST(ShardedStages, APassThatEndsEarlyCanBeRepeated) {
  size_t ended_early = 0;
  const bool is_sweep = for_each_seed(300, [&ended_early](uint64_t seed) {
    Stages stages(seed, seed % 2 == 0 ? 0.01 : 0);
    SimScheduler& scheduler = stages.group().scheduler();
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    double committed = 1;
    for (int attempt = 0; attempt < 3; ++attempt) {
      BackwardOptions options;
      options.retain_graph = true;
      const Nanos moment = scheduler.between(0, 4 * kMillisecond);
      const bool is_cancelled = scheduler.below(2) == 0;
      if (!is_cancelled) options.timeout = moment + 1;
      const auto pass = context->backward_async({loss}, options);
      if (is_cancelled) {
        scheduler.run_for(moment);
        pass->cancel();
      }
      wait(*pass, kForever);
      if (pass->error() == nullptr) {
        ++committed;
      } else {
        ++ended_early;
      }
    }
    context->backward({loss}, {});
    stages.expect_right(context, leaf, loss.item(), committed);
    stages.expect_no_pass_open();
  });
  if (!is_sweep) return;
  EXPECT_GT(ended_early, 10u);
}

TEST(ShardedStages, PassesAtTheSameTimeDoNotWaitForEachOther) {
  for_each_seed(200, [](uint64_t seed) {
    Stages stages(seed);
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    BackwardOptions options;
    options.retain_graph = true;
    std::vector<std::shared_ptr<Future<Value>>> passes;
    for (int i = 0; i < 3; ++i) passes.push_back(context->backward_async({loss}, options));
    for (const auto& pass : passes) {
      wait(*pass, kForever);
      EXPECT_EQ(pass->error(), nullptr) << pass->error()->message();
    }
    stages.expect_right(context, leaf, loss.item(), 3);
  });
}

TEST(ShardedStages, AMemberThatStandsStillIsWaitedFor) {
  for_each_seed(100, [](uint64_t seed) {
    Stages stages(seed);
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    const auto pass = stages.begin_pass(context, loss);
    const auto rank = static_cast<int32_t>(stages.below(static_cast<uint64_t>(stages.members()) + 1));
    stages.group().freeze(rank);
    stages.group().scheduler().run_for(kSecond);
    stages.group().thaw(rank);
    wait(*pass, kForever);
    EXPECT_EQ(pass->error(), nullptr) << pass->error()->message();
    stages.expect_right(context, leaf, loss.item());
  });
}

TEST(ShardedStages, ALostMemberEndsThePassOnAll) {
  for_each_seed(200, [](uint64_t seed) {
    Stages stages(seed);
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    const auto pass = stages.begin_pass(context, loss);
    const int32_t victim = 1 + static_cast<int32_t>(stages.below(static_cast<uint64_t>(stages.members())));
    if (victim == stages.driver()) return;  // the next test
    stages.group().kill(victim);
    ASSERT_TRUE(wait(*pass, 30 * kSecond)) << "the pass hangs";
    if (pass->error() != nullptr) {
      EXPECT_EQ(pass->error()->status(), Status::kDisconnected) << pass->error()->message();
      EXPECT_NE(pass->error()->message().find(SimWorkerGroup::name(victim)), std::string::npos)
          << pass->error()->message();
    }
    stages.expect_no_pass_open(30 * kSecond);
  });
}

TEST(ShardedStages, ALostDriverLeavesNothingBehind) {
  for_each_seed(200, [](uint64_t seed) {
    Stages stages(seed);
    auto context = stages.make_context();
    const Tensor loss = stages.run_forward(context, parameter(40));
    const auto pass = stages.begin_pass(context, loss);
    stages.group().kill(stages.driver());
    stages.expect_no_pass_open(30 * kSecond);
    if (stages.driver() == 0) stages.expect_mesh_works();
  });
}

// A worker gets no memory at some moment of the pass, its loop included: the pass is right, or fails everywhere.
TEST(ShardedStages, AShortageEndsThePassAtWorst) {
  size_t refused = 0;
  size_t meshes_ended = 0;
  const bool is_sweep = for_each_seed(500, [&](uint64_t seed) {
    Stages stages(seed);
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    const auto victim = static_cast<int32_t>(stages.below(static_cast<uint64_t>(stages.group().size())));
    SimMemory& memory = stages.group().memory(victim);
    if (seed % 2 == 0) stages.group().share_memory_with_loop(victim);
    memory.refuse(stages.below(uint64_t{1} << (1 + stages.below(9))), stages.below(4) == 0 ? 1 + stages.below(8) : 1);
    BackwardOptions options;
    options.retain_graph = true;
    double committed = 0;
    bool is_over = false;
    for (int attempt = 0; attempt < 20 && committed == 0 && !is_over; ++attempt) {
      const auto pass = context->backward_async({loss}, options);
      ASSERT_TRUE(wait(*pass, 60 * kSecond)) << "the pass hangs";
      if (pass->error() == nullptr) {
        ++committed;
      } else {
        EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
      }
      stages.expect_no_pass_open(10 * kSecond);
      is_over = stages.has_mesh_ended();
    }
    memory.refuse(0, 0);
    refused += memory.refused() != 0;
    meshes_ended += is_over;
    if (is_over || stages.is_in_doubt(context->global_id())) return;
    stages.expect_right(context, leaf, loss.item(), committed);
  });
  if (!is_sweep) return;
  EXPECT_GT(refused, 20u);
  EXPECT_LT(meshes_ended, refused);
}

// From its walks on, a pass holds what it needs: a pass that frees the graph meanwhile takes nothing from it.
TEST(ShardedStages, APassThatFreesTheGraphLeavesItToThoseThatHaveWalked) {
  for_each_seed(100, [](uint64_t seed) {
    Stages stages(seed);
    stages.script().has_relay = false;
    stages.script().is_constant = false;
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    // The last pass to begin is the only one that frees; the first one still searches at a worker that stands still.
    const Tensor far =
        stages.group().call(stages.driver(), stages.relay(), "tanh", {Value(leaf)}, context->global_id()).as_tensor();
    const Tensor both = apply("add", {loss, apply("sum", {scaled(far, 0)})});
    stages.group().freeze(stages.relay());
    BackwardOptions options;
    options.retain_graph = true;
    const auto first = context->backward_async({both}, options);
    stages.group().scheduler().run_for(100 * kMillisecond);
    const auto second = context->backward_async({loss}, {});
    ASSERT_TRUE(wait(*second, 60 * kSecond));
    EXPECT_EQ(second->error(), nullptr) << second->error()->message();
    stages.group().thaw(stages.relay());
    ASSERT_TRUE(wait(*first, 60 * kSecond));
    EXPECT_EQ(first->error(), nullptr) << first->error()->message();
    stages.expect_right(context, leaf, loss.item(), 2);
  });
}

TEST(ShardedStages, ALeafIsShardedBeforeOpsTakeIt) {
  Stages stages(4);
  const auto context = stages.group().worker(1).dautograd().create_context();
  const Tensor weight = parameter(3);
  const Tensor loss = apply("sum", {apply("tanh", {weight})});
  stages.mark_on_all(weight);
  for (const bool is_async : {false, true}) {
    try {
      if (is_async) {
        const auto pass = context->backward_async({loss}, {});
        ASSERT_TRUE(wait(*pass, 10 * kSecond));
        pass->value();
      } else {
        context->backward({loss}, {});
      }
      ADD_FAILURE() << "the pass went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidState) << error.message();
      EXPECT_NE(error.message().find("shard a leaf before an op uses it"), std::string::npos) << error.message();
    }
  }
}

// The ops of a hook are calls of the line of the pass.
TEST(ShardedStages, AHookOfAShardedTensorRunsWhereHostCodeMay) {
  for_each_seed(100, [](uint64_t seed) {
    Stages stages(seed);
    auto runs = std::make_shared<int>(0);
    for (int32_t rank = 1; rank <= stages.members(); ++rank) {
      stages.add_hook_to_weight(rank, [runs](const Tensor& gradient) {
        ++*runs;
        Executor* const elsewhere = exchange_host_code_executor(nullptr);
        EXPECT_EQ(elsewhere, nullptr) << "on a thread of distag";
        exchange_host_code_executor(elsewhere);
        return scaled(apply("add", {gradient, gradient}), 0.5);
      });
    }
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    context->backward({loss}, {});
    EXPECT_EQ(*runs, stages.members());
    stages.expect_right(context, leaf, loss.item());
  });
}

TEST(ShardedStages, APartThatIsGoneIsNamed) {
  Stages stages(4);
  ASSERT_GT(stages.members(), 1);
  const int32_t last = stages.members();
  stages.set_change([last](int32_t rank, const Tensor& part) { return rank == last ? autograd::detach(part) : part; });
  const auto context = stages.make_context();
  const Tensor loss = stages.run_forward(context, parameter(40));
  try {
    context->backward({loss}, {});
    ADD_FAILURE() << "the pass went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState) << error.message();
    EXPECT_NE(error.message().find("to_local: its function must return its part"), std::string::npos)
        << error.message();
  }
  stages.expect_no_pass_open();
  stages.expect_mesh_works();
}

TEST(ShardedStages, AFailureOfOneMembersOwnStepEndsThePassAndNotTheMesh) {
  for_each_seed(100, [](uint64_t seed) {
    Stages stages(seed);
    auto fails = std::make_shared<bool>(true);
    const int32_t last = stages.members();
    stages.set_change([last, fails](int32_t rank, const Tensor& part) {
      if (rank == last) {
        autograd::add_hook(part, [fails](const Tensor& gradient) {
          if (*fails) fail(Status::kRemote, "not this time");
          return gradient;
        });
      }
      return part;
    });
    for (auto& factors : stages.script().parts) factors.back() = 1;  // so that the hook is reached
    const auto context = stages.make_context();
    const Tensor leaf = parameter(40);
    const Tensor loss = stages.run_forward(context, leaf);
    BackwardOptions options;
    options.retain_graph = true;
    const auto pass = context->backward_async({loss}, options);
    wait(*pass, kForever);
    ASSERT_NE(pass->error(), nullptr);
    EXPECT_NE(pass->error()->message().find("not this time"), std::string::npos) << pass->error()->message();
    stages.expect_no_pass_open();
    *fails = false;
    context->backward({loss}, {});
    stages.expect_right(context, leaf, loss.item());
  });
}

TEST(ShardedStages, AWorkerThatIsNoMemberNamesNoEntry) {
  Stages stages(4);
  stages.script().has_member_as_driver = false;
  const auto context = stages.make_context();
  const Tensor loss = stages.run_forward(context, parameter(40));
  const Id id = context->global_id();
  wire::Discover discover{id, {id.maker, 77}, {id.maker, 1000}, false, {}, {{stages.mesh(), 1, 1}}};
  EXPECT_THROW(stages.deliver(1, 0, discover), Violation);
  discover.request.counter = 1001;
  discover.entries.clear();
  EXPECT_THROW(stages.deliver(1, 0, discover), Violation);
}

TEST(ShardedStages, FastIsRefused) {
  Stages stages(4);
  const auto context = stages.make_context();
  const Tensor loss = stages.run_forward(context, parameter(40));
  BackwardOptions options;
  options.mode = BackwardMode::kFast;
  const auto pass = context->backward_async({loss}, options);
  ASSERT_TRUE(wait(*pass, 60 * kSecond));
  ASSERT_NE(pass->error(), nullptr);
  EXPECT_EQ(pass->error()->status(), Status::kInvalidState) << pass->error()->message();
  EXPECT_NE(pass->error()->message().find("by a SMART pass"), std::string::npos) << pass->error()->message();
  stages.expect_no_pass_open();
  stages.expect_mesh_works();
}

TEST(ShardedStages, AMemberThatDoesNotHoldTheContextSaysSo) {
  Stages stages(4);
  stages.script().has_member_as_driver = false;
  const Id id = stages.make_context()->global_id();
  try {
    stages.deliver(1, 0, wire::Discover{id, {id.maker, 77}, {id.maker, 1000}, false, {}, {{stages.mesh(), 1, 1}}});
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState) << error.message();
    EXPECT_NE(error.message().find("call the function on each member"), std::string::npos) << error.message();
  }
}

// Several members and a driver that is no member, after the forward pass.
struct DrivenStages {
  Stages stages{4};
  std::shared_ptr<Context> context;
  Tensor leaf = parameter(40);
  Tensor loss;
  Id id;

  DrivenStages() {
    stages.script().has_member_as_driver = false;
    EXPECT_GT(stages.members(), 1);
    context = stages.make_context();
    loss = stages.run_forward(context, leaf);
    id = context->global_id();
  }
};

TEST(ShardedStages, GoIsHeardOfTheInitiatorAlone) {
  DrivenStages driven;
  auto& [stages, context, leaf, loss, id] = driven;
  EXPECT_THROW(stages.deliver(1, 2, wire::Go{id, {id.maker, 1}}), Violation);
  EXPECT_EQ(stages.deliver(1, 0, wire::Go{id, {id.maker, 1000}}), Heard::kStale);
  context->backward({loss}, {});
  EXPECT_EQ(stages.deliver(1, 0, wire::Go{id, {id.maker, 1}}), Heard::kStale);
  stages.expect_right(context, leaf, loss.item());
}

// A member may say so of an entry that the pass has reached, and while the pass runs.
TEST(ShardedStages, OnlyMembersSayThatAGradientHasCome) {
  DrivenStages driven;
  Stages& stages = driven.stages;
  const Id id = driven.id;
  const Id pass{id.maker, 1};
  const wire::EntryName none{stages.mesh(), 1000, 1};
  EXPECT_EQ(stages.deliver(1, 2, wire::Entered{id, pass, none}), Heard::kStale);
  const auto running = driven.context->backward_async({driven.loss}, {});
  SimScheduler& scheduler = stages.group().scheduler();
  const auto has_begun = [&] { return stages.group().worker(1).dautograd().stats().passes_open > 0; };
  ASSERT_TRUE(scheduler.run_until(has_begun, kSecond));
  const auto tell = [&](int32_t from) { return stages.deliver(1, from, wire::Entered{id, pass, none}); };
  const auto has_searched = [&] {
    try {
      return tell(2) != Heard::kStale;
    } catch (const Violation&) {
      return true;
    }
  };
  ASSERT_TRUE(scheduler.run_until(has_searched, kSecond));
  EXPECT_THROW(tell(2), Violation);
  EXPECT_THROW(tell(0), Violation);
  ASSERT_TRUE(wait(*running, 60 * kSecond));
  EXPECT_EQ(running->error(), nullptr);
  stages.expect_right(driven.context, driven.leaf, driven.loss.item());
}

TEST(ShardedStages, CopiesThatADriverUsesInItsOwnWaysAreTold) {
  for_each_seed(20, [](uint64_t seed) {
    Stages stages(seed);
    if (stages.members() == 1) return;
    // All factors are alike; one differs; one copy is unused.
    std::vector<double> factors(static_cast<size_t>(stages.members()), 1.5);
    if (seed % 3 != 0) factors.back() = seed % 3 == 1 ? 2.0 : 0.0;
    stages.claim_copies(factors);
    const auto context = stages.make_context();
    const Tensor loss = stages.run_forward(context, parameter(40));
    const auto pass = context->backward_async({loss}, {});
    ASSERT_TRUE(wait(*pass, 60 * kSecond));
    if (seed % 3 == 0) {
      EXPECT_EQ(pass->error(), nullptr) << pass->error()->message();
      return;
    }
    ASSERT_NE(pass->error(), nullptr);
    EXPECT_EQ(pass->error()->status(), Status::kDiverged) << pass->error()->message();
    EXPECT_NE(pass->error()->message().find("to_local"), std::string::npos) << pass->error()->message();
    stages.expect_ended(Status::kDiverged, "to_local");
  });
}

TEST(ShardedStages, AMemberWithAnotherGraphIsNamed) {
  Stages stages(4);
  ASSERT_GT(stages.members(), 1);
  stages.add_hook_to_weight(stages.members(), [](const Tensor& gradient) { return gradient; });
  const auto context = stages.make_context();
  const Tensor loss = stages.run_forward(context, parameter(40));
  const auto pass = context->backward_async({loss}, {});
  ASSERT_TRUE(wait(*pass, 60 * kSecond));
  ASSERT_NE(pass->error(), nullptr);
  EXPECT_EQ(pass->error()->status(), Status::kDiverged) << pass->error()->message();
  stages.expect_ended(Status::kDiverged, "backward");
}

}  // namespace
}  // namespace distag::sim
