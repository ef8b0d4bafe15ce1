// Optimizers whose parameters live on other workers, over the calls of whole workers. Parameters have names here, as
// "w1/0", in the place of remote references.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "base/executor.h"
#include "ops/op.h"
#include "optim/local_optimizer.h"
#include "optim/rules.h"
#include "support/sim_group.h"
#include "support/tensors.h"

namespace distag::sim {
namespace {

using optim::Optimizer;
using testing::tensor_of;
using testing::values_of;

// The parameters of one worker, by name.
class NamedParameters final : public optim::ParameterPlaces {
 public:
  std::string owner(const Value& parameter) override {
    const std::string& name = parameter.as_text();
    return name.substr(0, name.find('/'));
  }
  uint64_t identity(const Value& parameter) override { return std::hash<std::string>()(parameter.as_text()); }
  Value resolve(const Value& parameter) override { return values.at(parameter.as_text()); }
  Value find(const Value&) override { return Value(); }

  std::map<std::string, Value> values;
};

Tensor leaf_of(const std::vector<double>& values) {
  Tensor leaf = tensor_of(Dims{static_cast<int64_t>(values.size())}, values);
  autograd::set_requires_grad(leaf, true);
  return leaf;
}

Tensor apply(const char* op, Tensor input, ops::Attributes attributes = {}) {
  return autograd::apply(*ops::find_op(op), {&input, 1}, attributes)[0];
}

// Each worker but the first has the parameters "wN/0", a tensor, and "wN/1", a list of two. Its function "use" gives a
// scalar in which the gradient of all of their elements is its argument.
class OptimizerGroup {
 public:
  OptimizerGroup(uint64_t seed, int32_t size) : group(seed, options_for(size)), places(static_cast<size_t>(size)) {
    for (int32_t rank = 0; rank < size; ++rank) add(rank);
    group.start();
  }

  static SimGroupOptions options_for(int32_t size) {
    SimGroupOptions options;
    options.size = size;
    return options;
  }

  Tensors& tensors(int32_t rank) { return tensors_[rank]; }

  Values parameters(std::vector<int32_t> ranks) {
    Values all;
    for (const int32_t rank : ranks) {
      all.push_back(Value::text(SimWorkerGroup::name(rank) + "/0"));
      all.push_back(Value::text(SimWorkerGroup::name(rank) + "/1"));
    }
    return all;
  }

  std::shared_ptr<Optimizer> make(int32_t rank, const char* kind, std::vector<int32_t> owners) {
    return group.worker(rank).optim().make_optimizer(kind, parameters(std::move(owners)));
  }

  // A context of the worker in which the gradient of all parameters of these owners is `slope`.
  std::shared_ptr<Context> make_gradients(int32_t rank, std::vector<int32_t> owners, double slope) {
    auto context = group.worker(rank).dautograd().create_context();
    add_gradients(rank, *context, owners, slope);
    return context;
  }
  void add_gradients(int32_t rank, Context& context, const std::vector<int32_t>& owners, double slope) {
    Tensors roots;
    for (const int32_t owner : owners) {
      roots.push_back(group.call(rank, owner, "use", {Value(slope)}, context.global_id()).as_tensor());
    }
    context.backward(roots, {});
  }

  SimWorkerGroup group;
  std::vector<NamedParameters> places;

 private:
  void add(int32_t rank) {
    NamedParameters& mine = places[static_cast<size_t>(rank)];
    const double first = rank;
    Tensors& leaves = tensors_[rank];
    leaves = {leaf_of({first, first + 1}), leaf_of({first + 2}), leaf_of({first + 3, first + 4, first + 5})};
    const std::string name = SimWorkerGroup::name(rank);
    mine.values.emplace(name + "/0", Value(leaves[0]));
    mine.values.emplace(name + "/1", Value::list({Value(leaves[1]), Value(leaves[2])}));
    Worker& worker = group.worker(rank);
    worker.optim().set_places(&mine);
    worker.rpc().register_function("use", [&leaves](Invocation& invocation) {
      Tensor sum;
      for (const Tensor& leaf : leaves) {
        Tensor part = apply("sum", apply("mul_scalar", leaf, {{"value", invocation.args().at(0)}}));
        const Tensor both[] = {sum, part};
        sum = sum ? autograd::apply(*ops::find_op("add"), both, {})[0] : part;
      }
      invocation.set_result(Value(sum));
    });
  }

  std::map<int32_t, Tensors> tensors_;
};

Tensors clones(const Tensors& tensors) {
  Tensors copies;
  for (const Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

Tensors filled_like(const Tensors& tensors, double value) {
  Tensors gradients;
  for (const Tensor& tensor : tensors) {
    gradients.push_back(tensor_of(tensor.shape(), std::vector<double>(static_cast<size_t>(tensor.count()), value)));
  }
  return gradients;
}

void expect_equal(const Tensors& actual, const Tensors& expected) {
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(values_of<double>(actual[i]), values_of<double>(expected[i])) << "parameter " << i;
  }
}

TEST(OptimizersTest, EachOwnersParametersMoveAsALocalOptimizerMovesThem) {
  for_each_seed(20, [](uint64_t seed) {
    OptimizerGroup test(seed, 3);
    for (const optim::Rule* rule : optim::all_rules()) {
      const Tensors expected[] = {clones(test.tensors(0)), clones(test.tensors(2))};
      optim::LocalOptimizer locals[] = {{*rule, expected[0]}, {*rule, expected[1]}};
      const auto optimizer = test.make(0, rule->name, {0, 2});
      for (const double slope : {1.0, -0.5}) {
        optimizer->set("lr", slope > 0 ? 0.1 : 0.2);
        for (optim::LocalOptimizer& local : locals) {
          local.settings().set("lr", slope > 0 ? 0.1 : 0.2);
          local.step(filled_like(local.parameters(), slope));
        }
        optimizer->step(test.make_gradients(0, {0, 1, 2}, slope), {});
        EXPECT_EQ(optimizer->stepped_ranks(), (std::vector<int32_t>{0, 2}));
      }
      expect_equal(test.tensors(0), expected[0]);
      expect_equal(test.tensors(2), expected[1]);
    }
    EXPECT_EQ(values_of<double>(test.tensors(1)[1])[0], 3);
    for (const ShutdownReport& report : test.group.shutdown()) EXPECT_TRUE(report.clean);
    for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(test.group.worker(rank).optim().owned_count(), 0u);
  });
}

TEST(OptimizersTest, OwnersWithoutGradientsStayAsTheyAre) {
  OptimizerGroup test(1, 3);
  const auto optimizer = test.make(0, "sgd", {1, 2});
  optimizer->set("lr", 1);
  optimizer->step(test.make_gradients(0, {1}, 1.0), {});
  EXPECT_EQ(optimizer->stepped_ranks(), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(values_of<double>(test.tensors(1)[1])[0], 2);
  EXPECT_EQ(values_of<double>(test.tensors(2)[1])[0], 4);
}

TEST(OptimizersTest, OptimizersOfSeveralWorkersOnTheSameParametersLoseNoStep) {
  for_each_seed(50, [](uint64_t seed) {
    OptimizerGroup test(seed, 3);
    std::vector<std::shared_ptr<Optimizer>> optimizers = {test.make(0, "sgd", {1, 2}), test.make(1, "sgd", {1, 2}),
                                                          test.make(2, "sgd", {2, 1})};
    std::vector<std::shared_ptr<Context>> contexts;
    std::vector<std::shared_ptr<Future<Value>>> futures;
    for (int32_t rank = 0; rank < 3; ++rank) {
      optimizers[static_cast<size_t>(rank)]->set("lr", 0.25);
      contexts.push_back(test.make_gradients(rank, {1, 2}, 1.0));
    }
    for (int i = 0; i < 4; ++i) {
      for (size_t rank = 0; rank < 3; ++rank) futures.push_back(optimizers[rank]->step_async(contexts[rank], {}));
    }
    for (const auto& future : futures) {
      ASSERT_TRUE(wait(*future, 60 * kSecond));
      EXPECT_TRUE(future->value().is_null());
    }
    EXPECT_EQ(values_of<double>(test.tensors(1)[0]), (std::vector<double>{1 - 3, 2 - 3}));
    EXPECT_EQ(values_of<double>(test.tensors(2)[0]), (std::vector<double>{2 - 3, 3 - 3}));
  });
}

TEST(OptimizersTest, AFailureNamesTheOwnersThatDidNotApplyAndTheOthersDid) {
  OptimizerGroup test(3, 4);
  const auto optimizer = test.make(0, "sgd", {1, 2, 3});
  optimizer->set("lr", 1);
  const auto context = test.make_gradients(0, {1, 2, 3}, 1.0);
  test.group.kill(2);
  try {
    optimizer->step(context, {});
    FAIL() << "it did not fail";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kDisconnected);
    EXPECT_NE(error.message().find("\"w2\" (rank 2)"), std::string::npos) << error.message();
    EXPECT_EQ(error.message().find("\"w1\""), std::string::npos) << error.message();
    EXPECT_EQ(error.origin_rank(), 2);
  }
  EXPECT_EQ(optimizer->stepped_ranks(), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(values_of<double>(test.tensors(1)[1])[0], 2);
  EXPECT_EQ(values_of<double>(test.tensors(3)[1])[0], 4);
}

TEST(OptimizersTest, AnOwnerThatRefusesAppliesNothing) {
  OptimizerGroup test(4, 2);
  const auto optimizer = test.make(0, "sgd", {1});
  optimizer->set("nesterov", 1);
  try {
    optimizer->step(test.make_gradients(0, {1}, 1.0), {});
    FAIL() << "it did not fail";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState);
    EXPECT_FALSE(error.may_have_run());
    EXPECT_EQ(error.message(),
              "step: not applied by \"w1\" (rank 1): sgd: nesterov needs a momentum above 0 and a "
              "dampening of 0");
  }
  EXPECT_TRUE(optimizer->stepped_ranks().empty());
  EXPECT_EQ(values_of<double>(test.tensors(1)[1])[0], 3);
}

TEST(OptimizersTest, ClippingIsByTheJointNormOfAllOwners) {
  for_each_seed(20, [](uint64_t seed) {
    OptimizerGroup test(seed, 3);
    const auto optimizer = test.make(0, "sgd", {1, 2});
    optimizer->set("lr", 1);
    const auto context = test.make_gradients(0, {0, 1, 2}, 2.0);
    const double norm = 2.0 * std::sqrt(12.0);
    EXPECT_DOUBLE_EQ(optimizer->clip(context, 100, {}), norm);
    EXPECT_DOUBLE_EQ(optimizer->clip(context, norm / 2, {}), norm);
    EXPECT_NEAR(optimizer->clip(context, norm, {}), norm / 2, 1e-12);
    // A tensor that is no parameter of the optimizer keeps its gradient.
    EXPECT_EQ(values_of<double>(*context->gradients()->find(test.tensors(0)[1]))[0], 2.0);
    optimizer->step(context, {});
    EXPECT_NEAR(values_of<double>(test.tensors(1)[1])[0], 3 - 1, 1e-12);
    EXPECT_NEAR(values_of<double>(test.tensors(2)[1])[0], 4 - 1, 1e-12);
    EXPECT_THROW(optimizer->clip(context, -1, {}), Error);
  });
}

// The squares at one owner are finite, those at the other overflow.
TEST(OptimizersTest, ClippingIsByAJointNormWhoseSquaresOverflow) {
  OptimizerGroup test(3, 3);
  const auto optimizer = test.make(0, "sgd", {1, 2});
  const auto context = test.make_gradients(0, {1}, 1e150);
  test.add_gradients(0, *context, {2}, 1e200);
  EXPECT_NEAR(optimizer->clip(context, 1, {}) / 1e200, std::sqrt(6.0), 1e-12);
  EXPECT_NEAR(optimizer->clip(context, 1, {}), 1, 1e-12);
}

TEST(OptimizersTest, ASavedStateGoesOnInAnotherOptimizer) {
  OptimizerGroup test(5, 3);
  const auto first = test.make(0, "adam", {2, 1});
  first->set("lr", 0.5);
  first->step(test.make_gradients(0, {1, 2}, 1.0), {});
  const Value saved = first->save({});
  EXPECT_EQ(saved.find("kind")->as_text(), "adam");
  EXPECT_EQ(saved.find("settings")->find("lr")->as_float64(), 0.5);
  const Value::List& parameters = saved.find("parameters")->as_list();
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[1].as_list().size(), 2u);
  EXPECT_EQ(parameters[1].as_list()[1].find("exp_avg")->as_tensor().shape(), (Dims{3}));

  Tensors expected = clones(test.tensors(1));
  optim::LocalOptimizer local(optim::kAdam, expected);
  local.load(Value::list({parameters[2].as_list()[0], parameters[3].as_list()[0], parameters[3].as_list()[1]}));
  local.settings().set("lr", 0.5);
  local.step(filled_like(expected, -2.0));
  const auto second = test.make(2, "adam", {2, 1});
  second->load(saved, {});
  second->step(test.make_gradients(2, {1, 2}, -2.0), {});
  expect_equal(test.tensors(1), expected);

  EXPECT_THROW(test.make(0, "sgd", {2, 1})->load(saved, {}), Error);
  EXPECT_THROW(test.make(0, "adam", {1})->load(saved, {}), Error);
  EXPECT_THROW(test.make(0, "adam", {2, 1})->load(Value(), {}), Error);
}

TEST(OptimizersTest, WhatOwnersKeepGoesWithTheOptimizerAndWithItsMaker) {
  OptimizerGroup test(6, 3);
  auto released = test.make(0, "adam", {1, 2});
  const auto lost = test.make(2, "adam", {1});
  released->save({});
  lost->save({});
  EXPECT_EQ(test.group.worker(1).optim().owned_count(), 2u);
  released.reset();
  test.group.kill(2);
  EXPECT_THROW(test.group.call(1, 2, "use", {Value(1.0)}), Error);
  test.group.call(0, 1, "use", {Value(1.0)});
  EXPECT_EQ(test.group.worker(1).optim().owned_count(), 0u);
}

TEST(OptimizersTest, RefusesAParameterTwiceAndWhatIsNone) {
  OptimizerGroup test(7, 2);
  const auto status_of = [&test](Values parameters) {
    try {
      test.group.worker(0).optim().make_optimizer("sgd", std::move(parameters));
    } catch (const Error& error) {
      return error.status();
    }
    return Status::kOk;
  };
  const Value name = Value::text("w1/0");
  EXPECT_EQ(status_of({name, name}), Status::kInvalidArgument);
  EXPECT_EQ(status_of({Value(leaf_of({1})), name}), Status::kOk);
  EXPECT_EQ(status_of({Value(int64_t{1})}), Status::kInvalidArgument);
  EXPECT_EQ(status_of({Value(tensor_of<int64_t>(Dims{1}, {1}))}), Status::kInvalidArgument);
  EXPECT_EQ(status_of({}), Status::kOk);
}

}  // namespace
}  // namespace distag::sim
