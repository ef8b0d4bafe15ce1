#pragma once

#include <new>

#include "base/error.h"
#include "base/future.h"

namespace distag {

// Fails the future with this error, or with a short text if there is no memory for it. Throws what callbacks throw.
template <typename T>
void fail_or_say_less(Future<T>& future, const Error& error) {
  try {
    future.fail(error);
  } catch (const std::bad_alloc&) {
    if (future.is_done()) throw;  // thrown by a callback
    future.fail(Error(Status::kOutOfMemory, "out of memory"));
  }
}

}  // namespace distag
