#pragma once

#include <cstdint>
#include <string>

#include "tensor/value.h"

namespace distag::optim {

// Resolves parameters that are not tensors (remote references), which this layer does not know. Installed by the
// worker, before the start. Any thread.
class ParameterPlaces {
 public:
  virtual ~ParameterPlaces() = default;

  // Both throw INVALID_ARGUMENT for a value that cannot be a parameter.
  virtual std::string owner(const Value& parameter) = 0;  // name of the worker that has the parameter, "" for this one
  virtual uint64_t identity(const Value& parameter) = 0;  // equal for all values that denote the same parameter

  // At the owner: a tensor, or a list of tensors.
  virtual Value resolve(const Value& parameter) = 0;
  // The value that resolve() would return now; null if resolve() would throw.
  virtual Value find(const Value& parameter) = 0;
};

}  // namespace distag::optim
