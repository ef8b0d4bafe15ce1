// The reference numbers in data/ops.jsonl, for every op that there is.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/attributes.h"
#include "ops/op.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

using Json = nlohmann::json;

Tensor tensor_from(const Json& json) {
  if (json.is_null()) return Tensor();
  Dims shape;
  for (const Json& size : json["shape"]) shape.push_back(size.get<int64_t>());
  if (json["dtype"] == "float64") return tensor_of(shape, json["data"].get<std::vector<double>>());
  if (json["dtype"] == "int64") return tensor_of(shape, json["data"].get<std::vector<int64_t>>());
  std::vector<uint8_t> flags;
  for (const Json& item : json["data"]) flags.push_back(item.get<bool>() ? 1 : 0);
  return tensor_of(shape, flags);
}

Tensors tensors_from(const Json& json) {
  Tensors tensors;
  for (const Json& item : json) tensors.push_back(tensor_from(item));
  return tensors;
}

Value value_from(const Json& json) {
  if (json.is_null()) return Value();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_integer()) return Value(json.get<int64_t>());
  if (json.is_number()) return Value(json.get<double>());
  if (json.is_string()) return Value::text(json.get<std::string>());
  Value::List items;
  for (const Json& item : json) items.push_back(value_from(item));
  return Value::list(std::move(items));
}

ops::Attributes attributes_from(const Json& json) {
  ops::Attributes attributes;
  for (const auto& [name, value] : json.items()) attributes.emplace_back(name, value_from(value));
  return attributes;
}

void expect_equal(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  if (expected.dtype() == Dtype::kInt64) {
    EXPECT_EQ(values_of<int64_t>(actual), values_of<int64_t>(expected)) << what;
  }
  if (expected.dtype() == Dtype::kBool) {
    EXPECT_EQ(values_of<uint8_t>(actual), values_of<uint8_t>(expected)) << what;
  }
  if (expected.dtype() != Dtype::kFloat64) return;
  auto a = values_of<double>(actual);
  auto e = values_of<double>(expected);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], e[i], 1e-10 + 1e-9 * std::fabs(e[i])) << what << ", element " << i;
  }
}

void check_case(const ops::Op& op, const Json& json, bool with_gaps_between) {
  Tensors inputs = tensors_from(json["inputs"]);
  if (with_gaps_between) {
    for (Tensor& input : inputs) {
      if (input) input = with_gaps(input);
    }
  }
  ops::Attributes attributes = attributes_from(json["attributes"]);
  ops::check_arguments(op, inputs, attributes);
  ops::Saved saved;
  saved.needed = ~uint64_t{0};
  Tensors outputs = op.forward(inputs, attributes, &saved);
  Tensors expected = tensors_from(json["outputs"]);
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) expect_equal(outputs[i], expected[i], "output " + std::to_string(i));
  if (op.backward == nullptr || json["grad_outputs"].empty()) return;
  Tensors gradients = op.backward(saved, tensors_from(json["grad_outputs"]));
  Tensors expected_gradients = tensors_from(json["grad_inputs"]);
  for (size_t i = 0; i < expected_gradients.size(); ++i) {
    if (!expected_gradients[i]) continue;
    ASSERT_TRUE(i < gradients.size() && gradients[i]) << "no gradient of input " << i;
    expect_equal(gradients[i], expected_gradients[i], "gradient of input " + std::to_string(i));
  }
}

TEST(ReferenceTest, EveryOpThatThereIsGivesTheseNumbers) {
  std::ifstream file(DISTAG_TEST_DATA "/ops.jsonl");
  ASSERT_TRUE(file.good());
  std::set<std::string> checked;
  int line = 0;
  for (std::string text; std::getline(file, text);) {
    ++line;
    Json json = Json::parse(text);
    const ops::Op* op = ops::find_op(json["op"].get<std::string>());
    if (op == nullptr) continue;
    SCOPED_TRACE(std::string(op->name) + ", line " + std::to_string(line));
    check_case(*op, json, false);
    check_case(*op, json, true);
    checked.insert(op->name);
  }
  EXPECT_GE(checked.size(), 75u);
}

}  // namespace
}  // namespace distag::testing
