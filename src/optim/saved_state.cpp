#include "optim/saved_state.h"

#include "base/error.h"
#include "optim/local_optimizer.h"

namespace distag::optim {
namespace {

const Value& need(const Value& state, const char* key) {
  const Value* found = state.find(key);
  if (found == nullptr) fail(Status::kInvalidArgument, "load: the state has no \"{}\"", key);
  return *found;
}

}  // namespace

Value SavedState::write() const {
  return Value::map({{"kind", Value::text(settings.rule().name)},
                     {"settings", settings.save()},
                     {"parameters", Value::list(parameters)}});
}

SavedState SavedState::read(const Value& value, const Rule& rule, size_t parameter_count) {
  const std::string& kind = need(value, "kind").as_text();
  if (kind != rule.name) {
    fail(Status::kInvalidArgument, "load: the state is of \"{}\", the optimizer is \"{}\"", kind, rule.name);
  }
  SavedState state{Settings(rule), need(value, "parameters").as_list()};
  if (state.parameters.size() != parameter_count) {
    fail(Status::kInvalidArgument, "load: the state is of {} parameters, the optimizer has {}", state.parameters.size(),
         parameter_count);
  }
  for (size_t number = 0; number < parameter_count; ++number) {
    for (const Value& tensor : state.parameters[number].as_list()) check_saved(rule, tensor, number);
  }
  const Value& settings = need(value, "settings");
  for (const Setting& setting : rule.settings) {
    if (settings.find(setting.name) == nullptr) {
      fail(Status::kInvalidArgument, "load: the state has no setting \"{}\"", setting.name);
    }
  }
  try {
    state.settings.load(settings);
  } catch (const Error& error) {
    fail(Status::kInvalidArgument, "load: {}", error.message());
  }
  return state;
}

}  // namespace distag::optim
