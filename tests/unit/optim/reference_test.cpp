// The reference numbers in data/optimizers.json, for every rule.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "optim/local_optimizer.h"
#include "optim/rules.h"
#include "support/tensors.h"

namespace distag::optim {
namespace {

using Json = nlohmann::json;
using testing::tensor_of;
using testing::values_of;

Json read_cases() {
  std::ifstream file(DISTAG_TEST_DATA "/optimizers.json");
  return Json::parse(file);
}

template <typename T>
Tensor tensor_from(const Json& json) {
  if (json.is_null()) return Tensor();
  Dims shape;
  for (const Json& size : json["shape"]) shape.push_back(size.get<int64_t>());
  return tensor_of(shape, json["data"].get<std::vector<T>>());
}

void apply_settings(Settings& settings, const Json& json) {
  for (const auto& [name, value] : json.items()) {
    if (name == "betas") {
      settings.set("beta1", value[0].get<double>());
      settings.set("beta2", value[1].get<double>());
    } else {
      settings.set(name, value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>());
    }
  }
}

template <typename T>
void check_case(const Json& json, bool is_strided, double absolute, double relative) {
  Tensor parameter = tensor_from<T>(json["initial"]);
  if (is_strided) parameter = testing::with_gaps(parameter);
  LocalOptimizer optimizer(find_rule(json["optimizer"].get<std::string>()), {parameter});
  apply_settings(optimizer.settings(), json["settings"]);
  int number = 0;
  for (const Json& step : json["steps"]) {
    ++number;
    Tensor gradient = tensor_from<T>(step["gradient"]);
    if (gradient && is_strided) gradient = testing::with_gaps(gradient);
    optimizer.step({&gradient, 1});
    const auto actual = values_of<T>(parameter);
    const auto expected = step["parameter"]["data"].get<std::vector<double>>();
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], absolute + relative * std::fabs(expected[i]))
          << "step " << number << ", element " << i;
    }
  }
}

TEST(OptimizerReferenceTest, EveryRuleGivesTheseNumbers) {
  std::set<std::string> checked;
  for (const Json& json : read_cases()) {
    SCOPED_TRACE(json["optimizer"].get<std::string>() + " " + json["settings"].dump());
    check_case<double>(json, false, 1e-10, 1e-9);
    check_case<double>(json, true, 1e-10, 1e-9);
    check_case<float>(json, false, 2e-6, 2e-5);
    checked.insert(json["optimizer"].get<std::string>());
  }
  EXPECT_EQ(checked.size(), all_rules().size());
}

}  // namespace
}  // namespace distag::optim
