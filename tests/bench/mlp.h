#pragma once

#include <cmath>

#include "bench/step.h"

namespace bench {

// An MLP of 512-`hidden`-512 under the mean squared error, SGD; batch 256, cut over the members.
class Mlp {
 public:
  // `weights`, `biases`: the specs by which its parameters lie.
  Mlp(distag_worker* worker, distag_mesh* mesh, const char* weights, const char* biases, int64_t hidden = 2048)
      : mesh_(mesh) {
    x_ = sharded(uniform({256, 512}, false, 1), "('axis0', None)");
    y_ = sharded(uniform({256, 512}, false, 2), "('axis0', None)");
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{hidden, 512}, {hidden}, {512, hidden}, {512}}) {
      const double scale = shape.size() == 1 ? 0 : 1 / std::sqrt(static_cast<double>(shape[1]));
      parameters_.push_back(sharded(parameter(shape, scale, parameters_.size()), shape.size() == 1 ? biases : weights));
    }
    std::vector<distag_value*> values;
    for (distag_tensor* parameter : parameters_) values.push_back(distag_tensor_as_value(parameter));
    distag_optimizer_create(worker, "sgd", values.data(), values.size(), &sgd_, &error_);
    distag_optimizer_set(sgd_, "lr", 0.05, &error_);
    check(error_, "a sharded model");
  }
  Mlp(const Mlp&) = delete;
  Mlp& operator=(const Mlp&) = delete;
  ~Mlp() {
    distag_optimizer_release(sgd_);
    for (distag_tensor* parameter : parameters_) distag_tensor_release(parameter);
    distag_tensor_release(y_);
    distag_tensor_release(x_);
  }

  // A step on its own batch, or on another one that lies alike.
  void train() { train(x_, y_); }
  void train(distag_tensor* x, distag_tensor* y) {
    Step step;
    distag_context* context = nullptr;
    distag_context_create_joint(mesh_, &context, step.error());
    distag_tensor* hidden = step.apply(distag_relu, step.apply(distag_linear, x, parameters_[0], parameters_[1]));
    distag_tensor* out = step.apply(distag_linear, hidden, parameters_[2], parameters_[3]);
    distag_tensor* loss = step.apply(distag_mse_loss, out, y);
    distag_backward(context, &loss, 1, nullptr, step.error());
    distag_optimizer_step(sgd_, context, nullptr, step.error());
    step.done();
    distag_context_release(context);
  }

  const std::vector<distag_tensor*>& parameters() const { return parameters_; }

 private:
  distag_tensor* sharded(distag_tensor* tensor, const char* spec) {
    distag_tensor_mark_sharding(tensor, mesh_, spec, -1, &error_);
    return tensor;
  }

  distag_mesh* const mesh_;
  distag_error error_ = DISTAG_ERROR_INIT;
  distag_tensor* x_ = nullptr;
  distag_tensor* y_ = nullptr;
  std::vector<distag_tensor*> parameters_;
  distag_optimizer* sgd_ = nullptr;
};

}  // namespace bench
