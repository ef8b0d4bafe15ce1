#pragma once

#include <distag.h>

#include <utility>

namespace distag::testing {

// A reference to a handle, for C++ tests of the C API.
template <typename T, void (*release)(T*)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T* handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() { release(handle_); }

  T* get() const { return handle_; }
  T** out() {
    release(std::exchange(handle_, nullptr));
    return &handle_;
  }

 private:
  T* handle_ = nullptr;
};

using Tensor = Owned<distag_tensor, distag_tensor_release>;
using Value = Owned<distag_value, distag_value_release>;
using Worker = Owned<distag_worker, distag_worker_release>;
using Future = Owned<distag_future, distag_future_release>;
using Context = Owned<distag_context, distag_context_release>;
using Gradients = Owned<distag_gradients, distag_gradients_release>;
using Reply = Owned<distag_reply, distag_reply_release>;

}  // namespace distag::testing
