#include "spmd/plan.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "autograd/autograd.h"
#include "base/error.h"
#include "support/expect.h"
#include "tensor/deferred.h"
#include "unit/layout/meshes.h"

namespace distag::spmd {
namespace {

using testing::failure_of;

layout::MeshShape grid() {
  layout::MeshRequest request;
  request.shape = {2, 2};
  request.axis_names = {"x", "y"};
  request.ranks = {0, 1, 2, 3};
  return layout::MeshShape::make(request);
}

Tensor leaf(const Dims& shape, bool is_trained = false, Dtype dtype = Dtype::kFloat32) {
  Tensor tensor = Tensor::empty(dtype, shape);
  if (is_trained) autograd::set_requires_grad(tensor, true);
  return tensor;
}

PlanSettings model() {
  PlanSettings settings;
  settings.leaves = {{"layers.0.weight", leaf({8, 4}, true)},
                     {"layers.0.bias", leaf({8}, true)},
                     {"layers.10.weight", leaf({4, 8}, true)},
                     {"step", leaf({}, false, Dtype::kInt64)}};
  settings.rules = {{"layers.0.*", "('x',)"}, {"**.weight", "('x', 'y')"}};
  settings.rules[0].pattern = "layers.0.bias";
  return settings;
}

TEST(PlanPatterns, FitNamesAsPathsDo) {
  const struct {
    const char* pattern;
    const char* name;
    bool fits;
  } cases[] = {{"a.b", "a.b", true},
               {"a.b", "a.c", false},
               {"a.*", "a.b", true},
               {"a.*", "a.b.c", false},
               {"a.**", "a.b.c", true},
               {"**", "a.b.c", true},
               {"*", "a.b", false},
               {"*", "ab", true},
               {"*", "", true},
               {"", "", true},
               {"", "a", false},
               {"?", "a", true},
               {"?", ".", true},
               {"a?c", "abc", true},
               {"a?c", "ac", false},
               {"**.weight", "weight", false},
               {"**weight", "weight", true},
               {"*.weight", "l.weight", true},
               {"layers.*.w", "layers.0.w", true},
               {"layers.*.w", "layers.0.1.w", false},
               {"**.a.*", "x.a.y.a.z", true},
               {"*a*b", "aab", true},
               {"*a*b", "aabc", false},
               {"**a*b", "x.a.ab", true},
               {"a***b", "a.b", true},
               {"[x]", "x", false},
               {"a.b*", "a.b", true},
               {"*.*", "a.b", true},
               {"*.*", "a.b.c", false}};
  for (const auto& each : cases)
    EXPECT_EQ(fits(each.pattern, each.name), each.fits) << each.pattern << " " << each.name;
}

// The same language as that of a regular expression.
TEST(PlanPatterns, AgreeWithARegularExpression) {
  std::mt19937 random(3);
  const std::string letters = "ab.";
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string pattern, expression, name;
    bool is_behind_star = false;  // where one more would make another kind of it
    for (size_t i = random() % 7; i > 0; --i) {
      const auto kind = random() % 6;
      if (kind < 2 && !is_behind_star) {
        pattern += kind == 0 ? "**" : "*";
        expression += kind == 0 ? ".*" : "[^.]*";
        is_behind_star = true;
        continue;
      }
      is_behind_star = false;
      const char letter = kind == 2 ? '?' : letters[random() % letters.size()];
      pattern += letter;
      expression += letter == '?' ? "." : letter == '.' ? "\\." : std::string(1, letter);
    }
    for (size_t i = random() % 7; i > 0; --i) name += letters[random() % letters.size()];
    const bool expected = std::regex_match(name, std::regex(expression));
    taken += expected ? 1 : 0;
    ASSERT_EQ(fits(pattern, name), expected) << pattern << " | " << name;
  }
  EXPECT_GT(taken, 500);
}

TEST(PlanPatterns, LongOnesEndSoon) {
  EXPECT_FALSE(fits(std::string(2000, '*') + "b", std::string(20000, 'a')));
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "**a";
  EXPECT_FALSE(fits(pattern + "b", std::string(5000, 'a')));
}

TEST(Plan, TheFirstRuleThatFitsCountsAndTheRestIsRepeated) {
  const Plan plan(grid(), model());
  EXPECT_STREQ(plan.spec_of("layers.0.weight"), "('x', 'y')");
  EXPECT_STREQ(plan.spec_of("layers.0.bias"), "('x',)");
  EXPECT_STREQ(plan.spec_of("layers.10.weight"), "('x', 'y')");
  EXPECT_STREQ(plan.spec_of("step"), "()");
  EXPECT_EQ(plan.spec_of("layers.1.weight"), nullptr);
}

TEST(Plan, ReportsAreEqualForEqualArgumentsAndReadBack) {
  const Plan plan(grid(), model());
  EXPECT_EQ(plan.report(), Plan(grid(), model()).report());
  EXPECT_EQ(
      plan.report(),
      "{\"version\":1,\"mesh\":{\"axes\":[\"x\",\"y\"],\"sizes\":[2,2],\"ranks\":[0,1,2,3]},\"mode\":\"rules\","
      "\"memory\":168,\"leaves\":["
      "{\"name\":\"layers.0.weight\",\"dtype\":\"float32\",\"shape\":[8,4],\"spec\":\"('x', 'y')\",\"why\":\"rule "
      "\\\"**.weight\\\"\"},"
      "{\"name\":\"layers.0.bias\",\"dtype\":\"float32\",\"shape\":[8],\"spec\":\"('x',)\",\"why\":\"rule "
      "\\\"layers.0.bias\\\"\"},"
      "{\"name\":\"layers.10.weight\",\"dtype\":\"float32\",\"shape\":[4,8],\"spec\":\"('x', 'y')\",\"why\":\"rule "
      "\\\"**.weight\\\"\"},"
      "{\"name\":\"step\",\"dtype\":\"int64\",\"shape\":[],\"spec\":\"()\",\"why\":\"no rule fits it: repeated\"}],"
      "\"ops\":[]}");
  PlanSettings again = model();
  again.rules.clear();
  again.saved = plan.report();
  std::swap(again.leaves[0], again.leaves[2]);
  const Plan saved(grid(), again);
  for (const PlanLeaf& each : model().leaves) EXPECT_STREQ(saved.spec_of(each.name), plan.spec_of(each.name));
}

TEST(Plan, RulesThatFitNothingNameTheNearest) {
  PlanSettings settings = model();
  settings.rules.push_back({"layer.0.weight", "('x', None)"});
  EXPECT_EQ(failure_of([&] { Plan(grid(), settings); }),
            "INVALID_ARGUMENT: the pattern \"layer.0.weight\" fits no leaf; the nearest are \"layers.0.weight\", "
            "\"layers.10.weight\", \"layers.0.bias\"");
  settings.leaves.clear();
  settings.rules = {{"*", "()"}};
  EXPECT_EQ(failure_of([&] { Plan(grid(), settings); }),
            "INVALID_ARGUMENT: the pattern \"*\" fits no leaf; the nearest are no leaves at all");
}

TEST(Plan, SpecsThatDoNotSuitNameLeafAndRule) {
  for (const char* spec : {"('x',)", "('z', None)", "('x', 'x')", "('x', None) sum('y')", "nonsense", ""}) {
    PlanSettings settings = model();
    settings.rules = {{"layers.10.*", spec}};
    const std::string failure = failure_of([&] { Plan(grid(), settings); });
    EXPECT_TRUE(failure.starts_with("INVALID_ARGUMENT: rule \"layers.10.*\" does not suit leaf \"layers.10.weight\""))
        << failure;
  }
}

TEST(Plan, NamesOfLeavesAreThereOnce) {
  PlanSettings settings = model();
  settings.leaves[1].name = "layers.0.weight";
  EXPECT_EQ(failure_of([&] { Plan(grid(), settings); }),
            "INVALID_ARGUMENT: two leaves have the name \"layers.0.weight\"");
  settings = model();
  settings.source = 4;
  EXPECT_EQ(failure_of([&] { Plan(grid(), settings); }),
            "INVALID_ARGUMENT: source is 4, not -1 or the position of one of the 4 members");
}

// Bytes of the parts: 2 x 32 and 16 with their gradients, and 8; two copies of the optimizer.
TEST(Plan, MemoryIsThatOfTheMemberThatNeedsMost) {
  PlanSettings settings = model();
  settings.memory_bytes = 168;
  EXPECT_NO_THROW(Plan(grid(), settings));
  settings.memory_bytes = 167;
  EXPECT_EQ(failure_of([&] { Plan(grid(), settings); }),
            "OUT_OF_MEMORY: a member needs 168 bytes by these rules, and memory_bytes is 167; the largest leaf is "
            "\"layers.0.weight\"");
  settings.is_inference = true;
  EXPECT_NE(Plan(grid(), settings).report().find("\"memory\":88,"), std::string::npos);
  settings.is_inference = false;
  settings.memory_bytes = 0;
  settings.optimizer_copies = 2;
  EXPECT_NE(Plan(grid(), settings).report().find("\"memory\":328,"), std::string::npos);
  settings.optimizer_copies = UINT32_MAX;
  EXPECT_NO_THROW(Plan(grid(), settings));
}

class Nothing final : public Initialiser {
 public:
  void fill(const Dims&, const Dims&, std::byte*) const override {}
};

TEST(Plan, MemoryThatNoNumberHoldsFitsNowhere) {
  PlanSettings settings;
  const Tensor large = Tensor::deferred(Dtype::kFloat64, {int64_t{1} << 55}, std::make_shared<Nothing>());
  autograd::set_requires_grad(large, true);
  settings.leaves = {{"large", large}};
  settings.optimizer_copies = UINT32_MAX;
  settings.memory_bytes = uint64_t{1} << 62;
  EXPECT_EQ(failure_of([&] { Plan(grid(), settings); }).rfind("OUT_OF_MEMORY: a member needs 18446744073709551615", 0),
            0u);
}

TEST(Plan, SavedTextsAreTakenForNothingThatTheyAreNot) {
  PlanSettings settings = model();
  settings.rules.clear();
  const std::string good = Plan(grid(), settings).report();
  const auto failure = [&](const std::string& text) {
    PlanSettings given = model();
    given.rules.clear();
    given.saved = text;
    return failure_of([&] { Plan(grid(), given); });
  };
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_EQ(failure(good), "no failure");
  for (const std::string& text : {std::string(),
                                  std::string("{"),
                                  std::string("[]"),
                                  std::string("null"),
                                  std::string(100000, '['),
                                  with("\"version\":1", "\"version\":2"),
                                  with("\"version\":1", "\"version\":\"1\""),
                                  with("[2,2]", "[4,1]"),
                                  with("[0,1,2,3]", "[0,1,3,2]"),
                                  with("\"x\",\"y\"", "\"x\",\"z\""),
                                  with("\"rules\"", "\"auto\""),
                                  with("\"step\"", "\"stop\""),
                                  with("\"step\"", "\"layers.0.bias\""),
                                  with("[8,4]", "[8,5]"),
                                  with("[8,4]", "[8,-4]"),
                                  with("[8,4]", "[8,4.5]"),
                                  with("[8,4]", "{}"),
                                  with("\"int64\"", "\"float16\""),
                                  with("\"int64\"", "\"float32\""),
                                  with("\"spec\":\"()\"", "\"spec\":\"('x',)\""),
                                  with("\"spec\":\"()\"", "\"spec\":7"),
                                  with("\"spec\":\"()\"", "\"spec\":\"() sum('x')\""),
                                  with("\"leaves\"", "\"leafs\""),
                                  with("\"leaves\":[", "\"leaves\":[1,")}) {
    EXPECT_TRUE(failure(text).starts_with("INVALID_ARGUMENT: saved: ")) << text << ": " << failure(text);
  }
  const std::string remedy = "; pass the text from distag_plan_copy_report";
  const std::pair<std::string, std::string> told[] = {
      {"{}", "not the report of a plan: it has no \"version\"" + remedy},
      {"{\"version\"", "not the report of a plan: invalid JSON at byte 11" + remedy},
      {"{\"version\": 1e999}", "not the report of a plan: a number of its JSON is too large" + remedy},
      {with("\"mode\"", "\"mood\""), "not the report of a plan: it has no \"mode\"" + remedy},
      {with("\"spec\":\"()\"", "\"spec\":7"), "not the report of a plan: \"spec\" of leaves["},
      {with("\"leaves\":[", "\"leaves\":[1,"), "not the report of a plan: leaves[0] has no \"name\"" + remedy},
      {with("\"leaves\":[", "\"leaves\":7,\"x\":["),
       "not the report of a plan: \"leaves\" of it must be a list" + remedy}};
  for (const auto& [text, words] : told) {
    EXPECT_TRUE(failure(text).starts_with("INVALID_ARGUMENT: saved: " + words)) << text << ": " << failure(text);
  }
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    text[random() % text.size()] = static_cast<char>(random());
    const std::string found = failure(text);
    EXPECT_TRUE(found == "no failure" || found.starts_with("INVALID_ARGUMENT: saved: ")) << found;
    EXPECT_EQ(found.find("json.exception"), std::string::npos) << found;
  }
  PlanSettings both = model();
  both.saved = good;
  EXPECT_EQ(failure_of([&] { Plan(grid(), both); }),
            "INVALID_ARGUMENT: both saved and rules are given: a saved plan has its own");
}

}  // namespace
}  // namespace distag::spmd
