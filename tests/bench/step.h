#pragma once

#include <utility>
#include <vector>

#include "bench/harness.h"

namespace bench {

// The objects of one step, released at its end. Calls are checked once, by done().
class Step {
 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() {
    for (distag_tensor* tensor : owned_) distag_tensor_release(tensor);
  }

  template <typename Op, typename... Args>
  distag_tensor* apply(Op op, Args... args) {
    distag_tensor* result = nullptr;
    op(args..., &result, &error_);
    owned_.push_back(result);
    return result;
  }
  distag_tensor* sum(distag_tensor* x) { return apply(distag_sum, x, nullptr, size_t{0}, 0); }
  distag_tensor* mean(distag_tensor* x) { return apply(distag_mean, x, nullptr, size_t{0}, 0); }

  // A local backward pass, whose gradients `use` sees.
  template <typename Use>
  void backward(distag_tensor* loss, Use use) {
    distag_context* context = nullptr;
    distag_gradients* gradients = nullptr;
    distag_context_create(nullptr, &context, &error_);
    distag_backward(context, &loss, 1, nullptr, &error_);
    distag_get_gradients(context, &gradients, &error_);
    check(error_, "step");
    use(gradients);
    distag_gradients_release(gradients);
    distag_context_release(context);
  }
  void backward(distag_tensor* loss) {
    backward(loss, [](distag_gradients*) {});
  }
  distag_error* error() { return &error_; }
  void done() { check(error_, "step"); }

 private:
  std::vector<distag_tensor*> owned_;
  distag_error error_ = DISTAG_ERROR_INIT;
};

// Numbers in [0, 1), and normal ones times `scale`.
distag_tensor* uniform(std::vector<int64_t> shape, bool requires_grad, uint64_t seed);
distag_tensor* parameter(std::vector<int64_t> shape, double scale, uint64_t seed);

}  // namespace bench
