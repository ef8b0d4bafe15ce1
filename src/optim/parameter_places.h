#pragma once

#include <cstdint>
#include <string>

#include "tensor/value.h"

namespace distag::optim {

// Resolves parameters that are no tensors (remote references), which this layer does not know. Installed by the worker,
// before the start. Any thread.
class ParameterPlaces {
 public:
  virtual ~ParameterPlaces() = default;

  // Throw INVALID_ARGUMENT for a value that can be no parameter.
  virtual std::string owner(const Value& parameter) = 0;  // name of the worker that has it, "" for this one
  virtual uint64_t identity(const Value& parameter) = 0;  // the same for all that stand for the same

  // At the owner: a tensor, or a list of tensors.
  virtual Value resolve(const Value& parameter) = 0;
  // The value that resolve() would give now; null when it would throw.
  virtual Value find(const Value& parameter) = 0;
};

}  // namespace distag::optim
