// Programs that a careless rule gets wrong, by name.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "spmd/simulated_mesh.h"
#include "support/expect.h"
#include "support/tensors.h"
#include "unit/layout/meshes.h"

namespace distag::testing {
namespace {

using layout::MeshShape;
using layout::MoveClass;
using layout::parse_spec;
using layout::print_spec;
using ops::make_attributes;

Tensor doubles(const Dims& shape) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    tensor.mutable_data_as<double>()[i] = static_cast<double>((i * 37 + 11) % 23) / 4 - 2.5;
  }
  return tensor;
}

// A mesh, tensors on it by the text of their spec, and a comparison of an op on them with the op on the whole.
class TrapsTest : public ::testing::Test {
 protected:
  TrapsTest() : mesh_(mesh_of({2, 3})) {}

  Sharded cut(const Tensor& whole, const char* spec) {
    wholes_.push_back(whole);
    return mesh_.cut(whole, parse_spec(mesh_.shape(), spec, whole.rank()));
  }

  // Returns the spec of the result. Compares the result, and the gradients of a seed of ones.
  std::string run(const char* op, const std::vector<Sharded>& inputs, const ops::Attributes& attributes = {},
                  const std::vector<bool>& are_parameters = {}) {
    const ops::Op& whole = *ops::find_op(op);
    ops::Saved saved;
    saved.needed = ~uint64_t{0};
    const Tensors expected = whole.forward(wholes_, attributes, &saved);
    const Applied applied = mesh_.apply(op, inputs, attributes, are_parameters);
    moves_ = applied.placement.moves;
    expect_close(mesh_.whole(applied.outputs[0]), expected[0]);
    gradients_.clear();
    if (whole.backward != nullptr && is_floating(expected[0].dtype())) {
      const Tensor seed = ones(expected[0].shape());
      const Tensors wanted = whole.backward(saved, {seed});
      const auto got = applied.backward({mesh_.cut(seed, applied.outputs[0].spec.dual())});
      for (size_t i = 0; i < got.size(); ++i) {
        if (wanted[i]) expect_close(mesh_.whole(got[i]), wanted[i]);
        gradients_.push_back(print_spec(mesh_.shape(), got[i].spec));
      }
    }
    wholes_.clear();
    return print_spec(mesh_.shape(), applied.outputs[0].spec);
  }

  static Tensor ones(const Dims& shape) {
    Tensor tensor = Tensor::empty(Dtype::kFloat64, shape);
    for (int64_t i = 0; i < tensor.count(); ++i) tensor.mutable_data_as<double>()[i] = 1;
    return tensor;
  }

  SimulatedMesh mesh_;
  Tensors wholes_;
  MoveClass moves_ = MoveClass::kNone;
  std::vector<std::string> gradients_;
};

TEST_F(TrapsTest, ReluOfAPartialTensorSumsFirst) {
  EXPECT_EQ(run("relu", {cut(doubles({4, 3}), "(x, None) sum(y)")}), "('x', None)");
  EXPECT_EQ(moves_, MoveClass::kParameters);
  EXPECT_EQ(run("neg", {cut(doubles({4, 3}), "(x, None) sum(y)")}), "('x', None) sum('y')");
  EXPECT_EQ(moves_, MoveClass::kNone);
}

TEST_F(TrapsTest, PartialTimesPartialSumsBoth) {
  const Sharded a = cut(doubles({4}), "(None,) sum(x)");
  const Sharded b = cut(doubles({4}), "(None,) sum(x)");
  EXPECT_EQ(run("mul", {a, b}), "(None,)");
}

TEST_F(TrapsTest, PartialPlusRepeatedIsNotAddedTwice) {
  const Sharded a = cut(doubles({4}), "(None,) sum(x)");
  const Sharded b = cut(doubles({4}), "(None,)");
  EXPECT_EQ(run("add", {a, b}), "(None,)");
  EXPECT_EQ(run("add", {cut(doubles({4}), "(None,) sum(x)"), cut(doubles({4}), "(None,) sum(x)")}), "(None,) sum('x')");
  EXPECT_EQ(run("add_scalar", {cut(doubles({4}), "(None,) sum(x)")}, make_attributes({{"value", 3.0}})), "(None,)");
}

TEST_F(TrapsTest, ABiasIsAddedOnce) {
  const Sharded x = cut(doubles({4, 6}), "(None, y)");
  const Sharded weight = cut(doubles({5, 6}), "(None, y)");
  const Sharded bias = cut(doubles({5}), "(None,)");
  EXPECT_EQ(run("linear", {x, weight, bias}), "(None, None) sum('y')");
  EXPECT_EQ(moves_, MoveClass::kNone);
  // All members have the whole gradient of the bias.
  EXPECT_EQ(gradients_, (std::vector<std::string>{"(None, 'y')", "(None, 'y')", "(None,)"}));
}

TEST_F(TrapsTest, AMeanIsOverTheCountOfTheWhole) {
  for (int64_t rows : {1, 2, 4, 5, 7}) {
    EXPECT_EQ(run("mean", {cut(doubles({rows, 2}), "((y, x), None)")}, make_attributes({{"dims", Dims{0}}})),
              "(None,) sum('x', 'y')");
    EXPECT_EQ(run("mse_loss", {cut(doubles({rows, 2}), "(y, x)"), cut(ones({rows, 2}), "(y, x)")}), "() sum('x', 'y')");
  }
}

TEST_F(TrapsTest, SumsOfIntegersAndFlagsAreIntegers) {
  const Tensor flags = tensor_of<uint8_t>({5}, {1, 0, 1, 1, 1});
  EXPECT_EQ(run("sum", {cut(flags, "(y,)")}), "() sum('y')");
  EXPECT_EQ(run("sum", {cut(tensor_of<int64_t>({4}, {int64_t{1} << 60, 1, -7, 2}), "(y,)")}), "() sum('y')");
}

TEST_F(TrapsTest, SoftmaxAndMaxOverEmptyShards) {
  const auto over = [](int64_t dim) { return make_attributes({{"dims", Dims{dim}}}); };
  for (const char* op : {"softmax", "log_softmax"}) {
    EXPECT_EQ(run(op, {cut(doubles({3, 2}), "(x, y)")}), "('x', 'y')");
    EXPECT_EQ(moves_, MoveClass::kNone);
    EXPECT_EQ(run(op, {cut(doubles({2, 4}), "(None, (y, x))")}), "(None, ('y', 'x'))");
    EXPECT_EQ(run(op, {cut(doubles({1, 4}), "(y, None)")}), "('y', None)");
    EXPECT_EQ(run(op, {cut(doubles({1, 4}), "(y, x)")}, make_attributes({{"dim", 0}})), "('y', 'x')");
  }
  for (const char* op : {"max", "amin", "logsumexp", "var"}) {
    EXPECT_EQ(run(op, {cut(doubles({3, 2}), "(x, y)")}, over(1)), "('x',)");
    EXPECT_EQ(moves_, MoveClass::kNone);
    EXPECT_EQ(run(op, {cut(doubles({4, 2}), "(x, y)")}), "()");
  }
  EXPECT_EQ(run("argmax", {cut(doubles({3, 2}), "(x, y)")}), "('x',)");
  EXPECT_EQ(run("layer_norm", {cut(doubles({3, 2}), "(x, y)")}), "('x', 'y')");
  // Without any element there is nothing to choose from, on all members alike; other ops give results.
  for (const char* op : {"max", "amin"}) {
    const Tensor none = doubles({3, 0});
    const Sharded shards = mesh_.cut(none, parse_spec(mesh_.shape(), "(x, y)", 2));
    EXPECT_EQ(failure_of([&] { mesh_.apply(op, {shards}, over(1)); }),
              std::string("INVALID_ARGUMENT: ") + op + ": float64[3, 0] has no elements to choose from");
  }
  EXPECT_EQ(run("softmax", {cut(doubles({3, 0}), "(x, y)")}), "('x', 'y')");
  EXPECT_EQ(run("logsumexp", {cut(doubles({3, 0}), "(x, y)")}, over(1)), "('x',)");
  EXPECT_EQ(run("var", {cut(doubles({3, 0}), "(x, y)")}, over(1)), "('x',)");
}

// Weights are gathered if they are cut and the data is not; if the data is cut, they are cut with it.
TEST_F(TrapsTest, WeightsOfANormAreCutAsTheDataIs) {
  const Tensor data = doubles({6, 6});
  EXPECT_EQ(run("layer_norm", {cut(data, "(x, y)"), cut(doubles({6}), "(None,)"), cut(ones({6}), "(None,)")}),
            "('x', 'y')");
  EXPECT_EQ(moves_, MoveClass::kNone);
  EXPECT_EQ(gradients_, (std::vector<std::string>{"('x', 'y')", "('y',) sum('x')", "('y',) sum('x')"}));
  const std::vector<bool> are_parameters{false, true, true};
  EXPECT_EQ(run("layer_norm", {cut(data, "(x, None)"), cut(doubles({6}), "(x,)"), cut(ones({6}), "(x,)")}, {},
                are_parameters),
            "('x', None)");
  EXPECT_EQ(moves_, MoveClass::kParameters);
  EXPECT_EQ(run("layer_norm", {cut(data, "(None, None)"), cut(doubles({6}), "(x,)"), cut(ones({6}), "(x,)")}, {},
                are_parameters),
            "(None, None)");
}

TEST_F(TrapsTest, RowsOfATableAreWhereTheyAre) {
  const Tensor index = tensor_of<int64_t>({2, 3}, {4, 0, 6, 4, 4, 5});
  const std::vector<bool> are_parameters{false, true};
  EXPECT_EQ(run("embedding", {cut(index, "(x, None)"), cut(doubles({7, 2}), "(y, None)")}, {}, are_parameters),
            "('x', None, None) sum('y')");
  EXPECT_EQ(moves_, MoveClass::kNone);
  EXPECT_EQ(gradients_[1], "('y', None) sum('x')");
  // An axis on both: the table is gathered over it, and over no other axis if that costs more than to sum the rows.
  EXPECT_EQ(run("embedding", {cut(index, "(x, None)"), cut(doubles({60, 2}), "((y, x), None)")}, {}, are_parameters),
            "('x', None, None) sum('y')");
  EXPECT_EQ(moves_, MoveClass::kParameters);
  EXPECT_EQ(run("embedding", {cut(index, "(x, None)"), cut(doubles({7, 1}), "(x, None)")}), "('x', None, None)");
  EXPECT_EQ(moves_, MoveClass::kData);  // as the table is no parameter
  // More members than rows.
  EXPECT_EQ(run("embedding", {cut(tensor_of<int64_t>({2}, {1, 0}), "(None,)"), cut(doubles({2, 2}), "((y, x), None)")}),
            "(None, None) sum('x', 'y')");
}

TEST_F(TrapsTest, LossesOfCutClassesTakeTheTargetWhereItIs) {
  const Tensor targets = tensor_of<int64_t>({4}, {2, -100, 0, 1});
  const Tensor weights = tensor_of<double>({3}, {0.5, 2, 0.25});
  for (const char* op : {"cross_entropy", "nll_loss"}) {
    for (const char* reduction : {"mean", "sum", "none"}) {
      const bool keeps = reduction == std::string("none");
      const auto attributes = make_attributes({{"reduction", reduction}, {"ignore_index", int64_t{-100}}});
      EXPECT_EQ(run(op, {cut(doubles({4, 3}), "(x, y)"), cut(targets, "(x,)")}, attributes),
                keeps ? "('x',)" : "() sum('x')");
      EXPECT_EQ(moves_, MoveClass::kNone);
      run(op, {cut(doubles({4, 3}), "(x, y)"), cut(targets, "(x,)"), cut(weights, "(None,)")}, attributes);
      EXPECT_EQ(moves_, MoveClass::kNone);
      run(op, {cut(doubles({4, 3}), "(None, (y, x))"), cut(targets, "(None,)"), cut(weights, "(y,)")}, attributes);
    }
  }
}

// NaN or infinite numbers, on one member or on several, give the results of one process.
TEST_F(TrapsTest, NumbersThatAreNoneGoThroughWhatIsMerged) {
  const double none = std::nan("");
  const double inf = INFINITY;
  const std::vector<double> rows[] = {{1, none, 2},  {inf, 1, 2},        {inf, 1, inf},     {-inf, 1, inf},
                                      {1, 2, -inf},  {-inf, -inf, -inf}, {none, inf, -inf}, {1e308, 1e308, -1e308},
                                      {1e200, 1e200}};
  for (const auto& row : rows) {
    const auto count = static_cast<int64_t>(row.size());  // of two numbers the last member has none
    const Tensor x = tensor_of<double>({1, count}, row);
    for (const char* op : {"softmax", "log_softmax", "logsumexp", "max", "amin", "argmax", "var", "layer_norm"}) {
      SCOPED_TRACE(op);
      const bool takes_dims = std::set<std::string>{"logsumexp", "max", "amin", "var"}.count(op) == 1;
      run(op, {cut(x, "(None, y)")}, takes_dims ? make_attributes({{"dims", Dims{1}}}) : ops::Attributes());
    }
    for (int64_t target = 0; target < count; ++target) {
      run("cross_entropy", {cut(x, "(None, y)"), cut(tensor_of<int64_t>({1}, {target}), "(None,)")});
    }
  }
}

double largest_error(const Tensor& got, const Tensor& exact) {
  const Tensor doubles =
      ops::find_op("cast")->forward({{got}}, make_attributes({{"dtype", Dtype::kFloat64}}), nullptr)[0];
  const auto left = values_of<double>(doubles);
  const auto right = values_of<double>(exact);
  double error = 0;
  for (size_t i = 0; i < left.size(); ++i) error = std::max(error, std::fabs(left[i] - right[i]));
  return error;
}

double largest_of(const Tensor& exact) {
  double largest = 0;
  for (double value : values_of<double>(exact)) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Numbers with a large mean: errors against float64 are hardly larger than those of the op on one process.
TEST_F(TrapsTest, FloatsAreMergedInDouble) {
  const auto last = make_attributes({{"dims", Dims{1}}});
  const std::pair<const char*, ops::Attributes> calls[] = {{"softmax", {}}, {"log_softmax", {}}, {"logsumexp", last},
                                                           {"var", last},   {"layer_norm", {}},  {"max", last}};
  Tensor x = Tensor::empty(Dtype::kFloat32, {5, 40});
  for (int64_t i = 0; i < x.count(); ++i) {
    x.mutable_data_as<float>()[i] = 5000 + 3 * std::sin(static_cast<float>(i * 37 % 101));
  }
  const auto in = [](const Tensor& tensor, Dtype dtype) {
    return ops::find_op("cast")->forward({{tensor}}, make_attributes({{"dtype", dtype}}), nullptr)[0];
  };
  for (const auto& [name, attributes] : calls) {
    SCOPED_TRACE(name);
    const ops::Op& op = *ops::find_op(name);
    ops::Saved saved;
    ops::Saved saved_exact;
    saved.needed = saved_exact.needed = ~uint64_t{0};
    const Tensor plain = op.forward({{x}}, attributes, &saved)[0];
    const Tensor exact = op.forward({{in(x, Dtype::kFloat64)}}, attributes, &saved_exact)[0];
    const Applied applied = mesh_.apply(name, {mesh_.cut(x, parse_spec(mesh_.shape(), "(x, y)", 2))}, attributes);
    const double epsilon = 0x1p-22;
    EXPECT_LE(largest_error(mesh_.whole(applied.outputs[0]), exact),
              2 * largest_error(plain, exact) + epsilon * largest_of(exact));
    const Tensor seed = doubles(exact.shape());
    const Tensor wanted = op.backward(saved_exact, {seed})[0];
    const Tensor of_plain = op.backward(saved, {in(seed, Dtype::kFloat32)})[0];
    const auto got = applied.backward({mesh_.cut(in(seed, Dtype::kFloat32), applied.outputs[0].spec.dual())});
    EXPECT_LE(largest_error(mesh_.whole(got[0]), wanted),
              2 * largest_error(of_plain, wanted) + epsilon * largest_of(wanted));
  }
  const Tensor integers = tensor_of<int64_t>({1, 6}, {3, 1, 4, 1, 5, 9});
  for (const auto& [name, attributes] : {calls[0], calls[1], calls[2]}) {
    const Sharded cut = mesh_.cut(integers, parse_spec(mesh_.shape(), "(None, y)", 2));
    const Tensor got = mesh_.whole(mesh_.apply(name, {cut}, attributes).outputs[0]);
    EXPECT_EQ(got.dtype(), Dtype::kFloat32);
    EXPECT_LE(
        largest_error(got, ops::find_op(name)->forward({{in(integers, Dtype::kFloat64)}}, attributes, nullptr)[0]),
        1e-5);
  }
}

// In each row one element outweighs all others. Members that hold a part give each number as one process does, however
// small it is.
TEST_F(TrapsTest, ConfidentRowsKeepTheirDigitsWhereTheyAreCut) {
  const Tensor x = tensor_of<double>(
      {5, 4}, {0, -46, -50, -60, -700, 3, -52, -1e3, -41, -45, -48, 2, 7, 7, -40, -50, -90, -90.5, -80, -20});
  const Tensor targets = tensor_of<int64_t>({5}, {0, 1, 3, 1, 2});
  const Tensor seed = tensor_of<double>({5, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1});
  const auto expect_alike = [&](const Tensor& got, const Tensor& wanted) {
    const auto left = values_of<double>(got);
    const auto right = values_of<double>(wanted);
    for (size_t i = 0; i < left.size(); ++i) EXPECT_NEAR(left[i], right[i], 1e-14 * std::fabs(right[i])) << i;
  };
  for (const std::string name : {"softmax", "log_softmax", "logsumexp", "cross_entropy"}) {
    SCOPED_TRACE(name);
    const bool is_loss = name == "cross_entropy";
    const ops::Attributes attributes = is_loss               ? make_attributes({{"reduction", "none"}})
                                       : name == "logsumexp" ? make_attributes({{"dims", Dims{1}}})
                                                             : ops::Attributes();
    Tensors inputs{x};
    std::vector<Sharded> parts{mesh_.cut(x, parse_spec(mesh_.shape(), "(None, y)", 2))};
    if (is_loss) {
      inputs.push_back(targets);
      parts.push_back(mesh_.cut(targets, parse_spec(mesh_.shape(), "(None,)", 1)));
    }
    ops::Saved saved;
    saved.needed = ~uint64_t{0};
    const ops::Op& op = *ops::find_op(name);
    const Tensor y = op.forward(inputs, attributes, &saved)[0];
    const Applied applied = mesh_.apply(name, parts, attributes);
    expect_alike(mesh_.whole(applied.outputs[0]), y);
    const Tensor g = y.rank() == 2 ? seed : ones(y.shape());
    const auto got = applied.backward({mesh_.cut(g, applied.outputs[0].spec.dual())});
    expect_alike(mesh_.whole(got[0]), op.backward(saved, {g})[0]);
  }
}

// Several members have equal largest elements.
TEST_F(TrapsTest, EqualExtremesShareTheGradientOverMembers) {
  const Tensor x = tensor_of<double>({2, 6}, {3, 1, 3, 3, 0, 3, -1, -1, -1, -1, -1, -1});
  run("max", {cut(x, "(None, (x, y))")}, make_attributes({{"dims", Dims{1}}}));
  run("amin", {cut(x, "(None, (y, x))")}, make_attributes({{"dims", Dims{1}}}));
  run("max", {cut(x, "(x, y)")});
  EXPECT_EQ(run("argmax", {cut(x, "(None, (y, x))")}), "(None,)");
  const Tensor flags = tensor_of<uint8_t>({6}, {0, 0, 0, 1, 0, 1});
  EXPECT_EQ(run("argmax", {cut(flags, "(y,)")}), "()");
  EXPECT_EQ(run("max", {cut(flags, "(y,)")}), "()");
  const int64_t large = int64_t{1} << 60;
  EXPECT_EQ(run("argmax", {cut(tensor_of<int64_t>({4}, {large, large + 1, large + 1, -large}), "((x, y),)")}), "()");
}

TEST_F(TrapsTest, SqueezeJudgesByTheWhole) {
  EXPECT_EQ(run("squeeze", {cut(doubles({2, 3}), "(None, y)")}, make_attributes({{"dim", 1}})), "(None, 'y')");
  EXPECT_EQ(run("squeeze", {cut(doubles({2, 1}), "(x, y)")}, make_attributes({{"dim", 1}})), "('x',)");
}

TEST_F(TrapsTest, ReshapeKeepsACutOnlyWhereBoxesAgree) {
  // Halves of 12 rows of 8 are halves of 16 rows of 6; thirds of 12 rows are no rows of 16.
  EXPECT_EQ(run("reshape", {cut(doubles({12, 8}), "(x, None)")}, make_attributes({{"shape", Dims{16, 6}}})),
            "('x', None)");
  EXPECT_EQ(moves_, MoveClass::kNone);
  EXPECT_EQ(run("reshape", {cut(doubles({12, 8}), "(y, None)")}, make_attributes({{"shape", Dims{16, 6}}})),
            "(None, None)");
  EXPECT_EQ(moves_, MoveClass::kData);
  // 5 is cut in 3 and 2, and so are 10 in 5 and 5.
  EXPECT_EQ(run("reshape", {cut(doubles({5, 2}), "(x, None)")}, make_attributes({{"shape", Dims{10}}})), "(None,)");
}

TEST_F(TrapsTest, UnevenSizesCutByTwoAxes) {
  for (int64_t size : {0, 1, 4, 5, 7, 8}) {
    EXPECT_EQ(run("exp", {cut(doubles({size}), "((x, y),)")}), "(('x', 'y'),)");
    run("add", {cut(doubles({size}), "((x, y),)"), cut(doubles({size}), "((y, x),)")});
    run("add", {cut(doubles({size}), "((x, y),)"), cut(doubles({size}), "(x,)")});
  }
}

TEST_F(TrapsTest, OperandsKeepTheirOrder) {
  const Tensor a = doubles({6});
  const Tensor b = ones({6});
  run("sub", {cut(a, "(x,)"), cut(b, "(y,)")});
  run("sub", {cut(b, "(y,)"), cut(a, "(None,) sum(x)")});
}

TEST_F(TrapsTest, ABroadcastDimOfSizeOneIsWhole) {
  EXPECT_EQ(run("mul", {cut(doubles({4, 3}), "(x, y)"), cut(doubles({4, 1}), "(x, None)")}), "('x', 'y')");
  EXPECT_EQ(gradients_, (std::vector<std::string>{"('x', 'y')", "('x', None) sum('y')"}));
  run("mul", {cut(doubles({4, 3}), "(x, y)"), cut(doubles({1, 1}), "(y, x)")});
}

TEST_F(TrapsTest, ADimOfSizeZeroGoesThroughBlas) {
  EXPECT_EQ(run("matmul", {cut(doubles({4, 0}), "(x, y)"), cut(doubles({0, 3}), "(y, None)")}), "('x', None) sum('y')");
  EXPECT_EQ(run("matmul", {cut(doubles({1, 4}), "(y, None)"), cut(doubles({4, 3}), "(None, x)")}), "('y', 'x')");
}

// Each use gives a part of the gradient; they are added as they are, and summed over the members once.
TEST_F(TrapsTest, ATensorUsedThreeTimesIsSummedOnce) {
  const Tensor weight = doubles({3, 2});
  const Sharded own = mesh_.cut(weight, parse_spec(mesh_.shape(), "(None, None)", 2));
  const auto part = [&](const Tensor& whole, const char* spec) {
    return mesh_.cut(whole, parse_spec(mesh_.shape(), spec, 2));
  };
  const std::vector<Sharded> arrivals = {part(weight, "(None, None) sum(x)"), part(ones({3, 2}), "(None, None) sum(x)"),
                                         part(weight, "(None, None)")};
  std::vector<layout::Spec> specs;
  for (const Sharded& arrival : arrivals) specs.push_back(arrival.spec);
  EXPECT_EQ(print_spec(mesh_.shape(), layout::meeting_spec(own.spec, specs)), "(None, None) sum('x')");
  Tensor expected = doubles({3, 2});
  for (int64_t i = 0; i < expected.count(); ++i) {
    expected.mutable_data_as<double>()[i] = 2 * expected.data_as<double>()[i] + 1;
  }
  expect_close(mesh_.whole(mesh_.meet(own.spec, arrivals)), expected);
}

// Weights come to the data, also where moving the data would be cheaper.
TEST_F(TrapsTest, ParametersAreGatheredAndDataIsNot) {
  const Sharded x = cut(doubles({6, 2}), "(y, None)");
  const Sharded weight = cut(doubles({30, 2}), "(y, None)");
  EXPECT_EQ(run("linear", {x, weight}, {}, {false, true}), "('y', None)");
  EXPECT_EQ(moves_, MoveClass::kParameters);
  EXPECT_EQ(gradients_[1], "(None, None) sum('y')");
}

// A column-cut and then a row-cut weight: no communication except a single sum at the end.
TEST_F(TrapsTest, TensorParallelLayersMoveNothing) {
  EXPECT_EQ(
      run("linear", {cut(doubles({4, 6}), "(x, None)"), cut(doubles({6, 6}), "(y, None)"), cut(doubles({6}), "(y,)")}),
      "('x', 'y')");
  EXPECT_EQ(moves_, MoveClass::kNone);
  EXPECT_EQ(gradients_[0], "('x', None) sum('y')");
  EXPECT_EQ(gradients_[1], "('y', None) sum('x')");
  EXPECT_EQ(run("linear", {cut(doubles({4, 6}), "(x, y)"), cut(doubles({6, 6}), "(None, y)")}), "('x', None) sum('y')");
  EXPECT_EQ(moves_, MoveClass::kNone);
  EXPECT_EQ(gradients_[0], "('x', 'y')");
}

TEST_F(TrapsTest, AHiddenMoveIsSeen) {
  run("add", {cut(doubles({6}), "(x,)"), cut(doubles({6}), "(y,)")});
  EXPECT_EQ(moves_, MoveClass::kData);
}

}  // namespace
}  // namespace distag::testing
