#include "optim/rules.h"

#include "base/error.h"

namespace distag::optim {
namespace {

constexpr const Rule* kRules[] = {&kSgd, &kAdagrad, &kAdam, &kAdamw, &kAdadelta, &kRmsprop, &kAdamax, &kRprop};

}  // namespace

std::span<const Rule* const> all_rules() { return kRules; }

const Rule& find_rule(const std::string& name) {
  std::string names;
  for (const Rule* rule : kRules) {
    if (rule->name == name) return *rule;
    names += std::string(names.empty() ? "" : ", ") + rule->name;
  }
  fail(Status::kNotFound, "there is no optimizer \"{}\"; there are {}", name, names);
}

}  // namespace distag::optim
