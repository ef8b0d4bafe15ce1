#pragma once

#include <vector>

#include "optim/settings.h"
#include "tensor/value.h"

namespace distag::optim {

// The result of Optimizer::save: "kind", "settings", and "parameters", which has for each given parameter a list with
// the state of each of its tensors.
struct SavedState {
  Settings settings;
  Value::List parameters;

  Value write() const;
  // Throws INVALID_ARGUMENT unless the value is the state of an optimizer of this rule and number of parameters.
  static SavedState read(const Value& value, const Rule& rule, size_t parameter_count);
};

}  // namespace distag::optim
