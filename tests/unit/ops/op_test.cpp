#include "ops/op.h"

#include <gtest/gtest.h>

#include <set>

#include "apply_op.h"
#include "ops/require.h"

namespace distag::ops {
namespace {

using testing::failure_of;
using testing::floats;

Tensors nothing(std::span<const Tensor>, const Attributes&, Saved*) { return {}; }

constexpr Op kMade{.signature = "made(tensor x, tensor? y, int64 n, int64[] dims = [1,1], text mode = plain) -> tensor",
                   .forward = nothing};
constexpr Op kJoin{.signature = "join(tensor... xs, bool flat = false) -> tensor", .forward = nothing};

TEST(SignatureTest, IsReadByTheCompiler) {
  static_assert(kMade.arguments.min_inputs() == 1);
  static_assert(kMade.arguments.max_inputs() == 2);
  static_assert(!kMade.arguments.is_optional(0) && kMade.arguments.is_optional(1));
  static_assert(kMade.arguments.attribute_count() == 3);
  static_assert(kMade.arguments.attribute(0).is_required && !kMade.arguments.attribute(1).is_required);
  static_assert(kJoin.arguments.max_inputs() == UINT32_MAX && kJoin.arguments.min_inputs() == 1);
  EXPECT_STREQ(kMade.arguments.attribute_names()[0], "n");
  EXPECT_STREQ(kMade.arguments.attribute_names()[1], "dims");
  EXPECT_STREQ(kMade.arguments.attribute_names()[2], "mode");
}

TEST(SignatureTest, OfEachOpStartsWithItsName) {
  std::set<std::string> names;
  for (const Op* op : builtins()) {
    EXPECT_EQ(std::string(op->signature).find(std::string(op->name) + "("), 0u) << op->signature;
    EXPECT_TRUE(std::string(op->summary).ends_with(".")) << op->name << " has no sentence that says what it computes";
    EXPECT_TRUE(names.insert(op->name).second) << op->name << " is there twice";
    EXPECT_EQ(find_op(op->name), op);
  }
  EXPECT_EQ(find_op("nothing"), nullptr);
}

// Gives the gradient back, and whether it alone holds it.
struct PassedOn {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) { return inputs[0]; }
  static Tensors backward(const Saved&, const Tensor& g) {
    const bool is_alone = g.is_exclusive();
    return {g, Tensor::scalar(Dtype::kBool, is_alone ? 1 : 0)};
  }
};
constexpr Op kPassedOn = make_op<PassedOn>("passed_on(tensor x) -> tensor", "x.", kCheap | kOnePass, 0b10);

// An op with two outputs, whose backward uses the gradient of the second.
struct Chosen {
  static Tensors forward(Inputs inputs, const Attributes&, Saved*) { return {inputs[0], inputs[0]}; }
  static Tensor backward(const Saved&, Tensors gradients) { return gradients[1]; }
};
constexpr Op kChosen = make_op<Chosen>("chosen(tensor x) -> tensor, tensor", "x, twice.");

struct WithoutGradient {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) { return inputs[0]; }
};
constexpr Op kWithoutGradient = make_op<WithoutGradient>("plain(tensor x) -> tensor", "x.");

TEST(MakeOpTest, TakesTheNameFromTheSignatureAndTheTraitsAsFlags) {
  EXPECT_STREQ(kPassedOn.name, "passed_on");
  EXPECT_TRUE(kPassedOn.is_cheap && kPassedOn.is_one_pass);
  EXPECT_FALSE(kPassedOn.is_view || kPassedOn.is_separable);
  EXPECT_EQ(kPassedOn.constant, 0b10u);
  EXPECT_EQ(kWithoutGradient.backward, nullptr);
  EXPECT_EQ(kPassedOn.backward_onto, nullptr);
}

TEST(MakeOpTest, ListsOneResult) {
  const Tensor x = floats({1}, {1});
  const Tensors results = kPassedOn.forward(Tensors{x}, {}, nullptr);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].id(), x.id());
}

TEST(MakeOpTest, HandsTheOnlyGradientOverAndCallsNothingWithoutOne) {
  Tensors gradients;
  gradients.push_back(floats({1}, {2}));
  const Tensors results = kPassedOn.backward({}, std::move(gradients));
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(*results[1].data_as<uint8_t>(), 1);
  EXPECT_TRUE(kPassedOn.backward({}, Tensors(1)).empty());
}

TEST(MakeOpTest, GivesTheGradientsOfAllOutputsWhereTheyAreTaken) {
  const Tensor g = floats({1}, {2});
  const Tensors results = kChosen.backward({}, {Tensor(), g});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].id(), g.id());
}

TEST(RequireTest, SaysWhatDoesNotHold) {
  const Tensor x = floats({1, 2}, {1, 2});
  require(true, "{}", x);
  EXPECT_EQ(failure_of([&] {
              require(false, "made: {} does not fit {}", x, Dims{3, 4});
            }),
            "INVALID_ARGUMENT: made: float32[1, 2] does not fit [3, 4]");
  require_floating("made", x);
  EXPECT_EQ(failure_of([] { require_floating("made", Tensor::scalar(Dtype::kInt64, 1.0)); }),
            "UNSUPPORTED: made: dtype of int64[] is not supported: cast it first");
}

TEST(CheckArgumentsTest, CountsInputs) {
  Tensor x = floats({1}, {1});
  EXPECT_EQ(failure_of([&] { check_arguments(kMade, Tensors{}, {}); }).find("INVALID_ARGUMENT: made: 0 inputs"), 0u);
  EXPECT_EQ(failure_of([&] { check_arguments(kMade, Tensors{x, x, x}, {}); }).find("INVALID_ARGUMENT: made: 3"), 0u);
  EXPECT_EQ(failure_of([&] {
              check_arguments(kMade, Tensors{Tensor(), x}, {});
            }).find("INVALID_ARGUMENT: made: input 0 is missing"),
            0u);
  EXPECT_EQ(failure_of([&] {
              check_arguments(kMade, Tensors{x, Tensor()}, make_attributes({{"n", 1}}));
            }),
            "no failure");
  EXPECT_EQ(failure_of([&] {
              check_arguments(kJoin, Tensors{x, Tensor()}, {});
            }).find("INVALID_ARGUMENT: join: input 1 is missing"),
            0u);
  EXPECT_EQ(failure_of([&] { check_arguments(kJoin, Tensors(100, x), {}); }), "no failure");
}

TEST(CheckArgumentsTest, ChecksAttributes) {
  Tensors x{floats({1}, {1})};
  auto check = [&](std::initializer_list<Setting> settings) {
    return failure_of([&] { check_arguments(kMade, x, make_attributes(settings)); });
  };
  EXPECT_EQ(check({{"n", 1}}), "no failure");
  EXPECT_EQ(check({{"n", 1}, {"dims", Dims{1, 2}}, {"mode", "plain"}}), "no failure");
  EXPECT_EQ(check({{"n", 1}, {"dims", Value()}}), "no failure");
  EXPECT_EQ(check({}).find("INVALID_ARGUMENT: made: attribute \"n\" is missing"), 0u);
  EXPECT_EQ(check({{"n", 0.5}}).find("INVALID_ARGUMENT: made: attribute \"n\" must be an int64, not a float64"), 0u);
  EXPECT_EQ(check({{"n", 1}, {"m", 1}}).find("NOT_FOUND: made: no attribute \"m\""), 0u);
  EXPECT_EQ(check({{"n", 1}, {"dims", 3}}).find("INVALID_ARGUMENT: made: attribute \"dims\""), 0u);
  EXPECT_EQ(check({{"n", 1}, {"dims", Value::list({Value(0.5)})}}).find("INVALID_ARGUMENT: made: attribute"), 0u);
  EXPECT_EQ(check({{"n", 1}, {"dims", Value::list(Value::List(17, Value(int64_t{1})))}}).find("INVALID_ARGUMENT"), 0u);
  EXPECT_EQ(check({{"n", 1}, {"mode", true}}).find("INVALID_ARGUMENT: made: attribute \"mode\" must be a text"), 0u);
}

TEST(AttributesTest, AreReadByKind) {
  Attributes attributes = make_attributes(
      {{"z", 3}, {"a", 0.5}, {"b", true}, {"t", "text"}, {"d", Dims{1, -2}}, {"dtype", "float64"}, {"none", Value()}});
  EXPECT_TRUE(std::is_sorted(attributes.begin(), attributes.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; }));
  EXPECT_EQ(get_int(attributes, "z", 0), 3);
  EXPECT_EQ(get_float(attributes, "z", 0), 3.0);
  EXPECT_EQ(get_float(attributes, "a", 0), 0.5);
  EXPECT_TRUE(get_bool(attributes, "b", false));
  EXPECT_EQ(get_text(attributes, "t", ""), "text");
  EXPECT_EQ(get_dims(attributes, "d"), (Dims{1, -2}));
  EXPECT_EQ(get_dtype(attributes, "dtype", Dtype::kBool), Dtype::kFloat64);
  EXPECT_EQ(get_int(attributes, "none", 7), 7);
  EXPECT_EQ(get_dims(attributes, "absent", {5}), (Dims{5}));
}

TEST(AttributesTest, RefuseDtypesThatAreNotSupported) {
  auto dtype = [](Setting setting) {
    return failure_of([&] { get_dtype(make_attributes({setting}), "dtype", Dtype::kBool); });
  };
  EXPECT_EQ(dtype({"dtype", 2}), "no failure");
  EXPECT_EQ(dtype({"dtype", "bfloat16"}).find("UNSUPPORTED: dtype bfloat16"), 0u);
  EXPECT_EQ(dtype({"dtype", "double"}).find("INVALID_ARGUMENT: \"double\" is no dtype"), 0u);
  EXPECT_EQ(dtype({"dtype", 7}).find("UNSUPPORTED: dtype int8"), 0u);
  EXPECT_EQ(dtype({"dtype", int64_t{1} << 40}).find("UNSUPPORTED"), 0u);
}

}  // namespace
}  // namespace distag::ops
