#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "optim/settings.h"
#include "tensor/value.h"

namespace distag::optim {

// Requests of the user of an optimizer to an owner of parameters. Each is a call of an internal function, with the
// request as its first argument and, as long as the owner does not know the optimizer, the parameters behind it.
enum class Verb {
  kStep,     // in a context: moves the parameters by their gradients there
  kMeasure,  // in a context: {"square", "passes"}: the square norm of the gradients, and over how many passes they are
  kScale,    // in a context: multiplies the gradients by `factor`, if they are still over `passes` passes
  kSave,     // a list per parameter, with what is kept of each of its tensors
  kLoad,     // `state` is such a list
  kForget,   // the user has released the optimizer: no answer is awaited
};
inline constexpr Verb kVerbs[] = {Verb::kStep, Verb::kMeasure, Verb::kScale, Verb::kSave, Verb::kLoad, Verb::kForget};

// Functions of hosts cannot have names that begin like this.
std::string function_name(Verb verb);

struct Request {
  Verb verb;
  Id optimizer;  // maker 0: of the worker that asks itself
  Settings settings;
  double factor = 1.0;
  uint64_t passes = 0;
  Value state{};
  Values parameters{};  // empty: the owner knows them

  // Arguments of the call, and back. Throws INVALID_ARGUMENT or NOT_FOUND for what no optimizer sends.
  Values encode() const;
  static Request decode(Verb verb, const Values& args);
};

}  // namespace distag::optim
