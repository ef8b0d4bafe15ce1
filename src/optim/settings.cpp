#include "optim/settings.h"

#include "base/error.h"

namespace distag::optim {
namespace {

std::string describe_range(const Setting& setting) {
  if (setting.is_flag) return "0 or 1";
  if (setting.lowest <= -kUnlimited) return "a finite number";
  if (setting.highest >= kUnlimited) return fmt::format("a number of at least {}", setting.lowest);
  return fmt::format("in [{}, {}{}", setting.lowest, setting.highest, setting.is_open ? ')' : ']');
}

}  // namespace

bool Setting::allows(double value) const {
  if (is_flag) return value == 0.0 || value == 1.0;
  return value >= lowest && (is_open ? value < highest : value <= highest);
}

Settings::Settings(const Rule& rule) : rule_(&rule) {
  values_.reserve(rule.settings.size());
  for (const Setting& setting : rule.settings) values_.push_back(setting.initial);
}

void Settings::set(const std::string& name, double value) {
  std::string names;
  for (size_t i = 0; i < values_.size(); ++i) {
    const Setting& setting = rule_->settings[i];
    if (setting.name != name) {
      names += std::string(names.empty() ? "" : ", ") + setting.name;
      continue;
    }
    if (!setting.allows(value)) {
      fail(Status::kInvalidArgument, "{}: {} is {}, but must be {}", rule_->name, name, value, describe_range(setting));
    }
    values_[i] = value;
    return;
  }
  fail(Status::kNotFound, "{} has no setting \"{}\"; it has {}", rule_->name, name, names);
}

Value Settings::save() const {
  Value::Map entries;
  for (size_t i = 0; i < values_.size(); ++i) entries.emplace_back(rule_->settings[i].name, Value(values_[i]));
  return Value::map(std::move(entries));
}

void Settings::load(const Value& saved) {
  Settings loaded(*rule_);
  for (const auto& [name, value] : saved.as_map()) loaded.set(name, value.as_float64());
  values_ = std::move(loaded.values_);
}

}  // namespace distag::optim
