#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "optim/settings.h"
#include "tensor/value.h"

namespace distag::optim {

// Requests from the user of an optimizer to an owner of parameters. Each is a call of an internal function. Its first
// argument is the request; the parameters follow as long as the owner does not know the optimizer.
enum class Verb {
  kStep,     // in a context: updates the parameters by their gradients
  kMeasure,  // in a context: {"square", "scaled_square", "passes"}: SquareSum of the gradients, and the passes in them
  kScale,    // in a context: multiplies the gradients by `factor`, if they still cover `passes` passes
  kSave,     // returns a list per parameter with the state of each of its tensors
  kLoad,     // `state` is a list as kSave returns
  kForget,   // the user has released the optimizer; no answer is awaited
};
inline constexpr Verb kVerbs[] = {Verb::kStep, Verb::kMeasure, Verb::kScale, Verb::kSave, Verb::kLoad, Verb::kForget};

// Hosts cannot register names that begin like this.
std::string function_name(Verb verb);

struct Request {
  Verb verb;
  Id optimizer;  // maker 0: the optimizer of the owner itself
  Settings settings;
  double factor = 1.0;
  uint64_t passes = 0;
  Value state{};
  Values parameters{};  // empty: the owner knows them

  // Converts to the arguments of the call and back. Throws INVALID_ARGUMENT or NOT_FOUND for a malformed request.
  Values encode() const;
  static Request decode(Verb verb, const Values& args);
};

}  // namespace distag::optim
