#pragma once

#include <distag.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace distag_tool {

// Releases a handle at its end.
template <typename T, void (*release)(T*)>
struct Release {
  void operator()(T* handle) const { release(handle); }
};
template <typename T, void (*release)(T*)>
using Handle = std::unique_ptr<T, Release<T, release>>;

using Worker = Handle<distag_worker, distag_worker_release>;
using Future = Handle<distag_future, distag_future_release>;
using Context = Handle<distag_context, distag_context_release>;
using Optimizer = Handle<distag_optimizer, distag_optimizer_release>;
using Tensor = Handle<distag_tensor, distag_tensor_release>;
using Value = Handle<distag_value, distag_value_release>;

// The error of a chain of calls is checked once, at its end.
inline void check(const distag_error& error) {
  if (error.code == DISTAG_OK) return;
  throw std::runtime_error(std::string(distag_status_get_name(error.code)) + ": " + error.message);
}

}  // namespace distag_tool
