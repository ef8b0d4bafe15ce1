#pragma once

#include "base/error.h"
#include "fuzz/input.h"

namespace distag::fuzz {

// Whether it was done; else it was refused, with INVALID_ARGUMENT or the other status, as texts and shapes of strangers
// are.
template <typename Body>
bool is_taken(Body&& body, Status other = Status::kInvalidArgument) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    check(error.status() == Status::kInvalidArgument || error.status() == other);
    check(!error.message().empty());
    return false;
  }
}

}  // namespace distag::fuzz
