#pragma once

#include "base/executor.h"

namespace distag {

// Waits for an operation of which the caller needs only the outcome: a wait that fails cancels it.
inline void wait_or_cancel(Completion& operation) {
  try {
    wait(operation, kForever);
  } catch (...) {
    operation.cancel();
    throw;
  }
}

}  // namespace distag
