// Rows of local work: the engine's cost per op, elementwise math, a training step, softmax, a convolution.
#include <cmath>
#include <cstdio>

#include "bench/step.h"

namespace bench {

distag_tensor* uniform(std::vector<int64_t> shape, bool requires_grad, uint64_t seed) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* made = nullptr;
  distag_rand(seed, DISTAG_FLOAT32, shape.data(), shape.size(), &made, &error);
  distag_tensor_set_requires_grad(made, requires_grad ? 1 : 0, &error);
  check(error, "rand");
  return made;
}

distag_tensor* parameter(std::vector<int64_t> shape, double scale, uint64_t seed) {
  distag_error error = DISTAG_ERROR_INIT;
  Step s;
  distag_tensor* made = nullptr;
  distag_tensor* normal = s.apply(distag_randn, seed, static_cast<distag_dtype>(DISTAG_FLOAT32),
                                  static_cast<const int64_t*>(shape.data()), shape.size());
  distag_mul_scalar(normal, scale, &made, &error);
  distag_tensor_set_requires_grad(made, 1, &error);
  check(error, "parameter");
  return made;
}

namespace {

// 10 chained adds and muls on 4 floats, forward and backward: overhead per op.
void small_chain() {
  distag_tensor* a = uniform({4}, true, 1);
  const auto step = [a] {
    Step s;
    distag_tensor* x = a;
    for (int i = 0; i < 5; ++i) x = s.apply(distag_add, s.apply(distag_mul, x, a), a);
    s.backward(s.sum(x));
  };
  report("local_small_chain", timed(step, 2000, 100), "us");
  distag_tensor_release(a);
}

void elementwise() {
  distag_tensor* a = uniform({1 << 20}, true, 1);
  distag_tensor* b = uniform({1 << 20}, true, 2);
  const auto step = [a, b] {
    Step s;
    distag_tensor* inner = s.apply(distag_add, s.apply(distag_mul, a, b), a);
    s.backward(s.sum(s.apply(distag_mul, s.apply(distag_tanh, inner), b)));
  };
  report("local_elementwise_1M", timed(step, 60, 5), "ms");
  distag_tensor_release(a);
  distag_tensor_release(b);
}

// 784-512-512-10 MLP, batch 128, cross entropy, SGD: one training step.
void mlp_step() {
  const std::vector<int64_t> sizes = {784, 512, 512, 10};
  std::vector<distag_tensor*> weights, biases;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    weights.push_back(parameter({sizes[i], sizes[i + 1]}, 1 / std::sqrt(static_cast<double>(sizes[i])), i));
    biases.push_back(parameter({sizes[i + 1]}, 0, 9));
  }
  distag_tensor* x = uniform({128, 784}, false, 5);
  int64_t classes[128];
  for (int64_t i = 0; i < 128; ++i) classes[i] = i * 7 % 10;
  distag_error error = DISTAG_ERROR_INIT;
  const int64_t batch = 128;
  distag_tensor* y = nullptr;
  distag_tensor_create(classes, sizeof classes, DISTAG_INT64, &batch, 1, &y, &error);
  check(error, "targets");
  const auto step = [&] {
    Step s;
    distag_tensor* h = x;
    for (size_t i = 0; i < weights.size(); ++i) {
      h = s.apply(distag_add, s.apply(distag_matmul, h, weights[i]), biases[i]);
      if (i + 1 < weights.size()) h = s.apply(distag_relu, h);
    }
    s.backward(s.apply(distag_cross_entropy, h, y), [&](distag_gradients* gradients) {
      for (const auto* parameters : {&weights, &biases}) {
        for (distag_tensor* p : *parameters) {
          distag_tensor_add_scaled(p, distag_gradients_find(gradients, p), -0.05, &error);
        }
      }
      check(error, "update");
    });
  };
  report("local_mlp_step", timed(step, 100, 10), "ms");
  for (distag_tensor* tensor : weights) distag_tensor_release(tensor);
  for (distag_tensor* tensor : biases) distag_tensor_release(tensor);
  distag_tensor_release(x);
  distag_tensor_release(y);
}

void matmul() {
  distag_tensor* a = uniform({512, 512}, false, 1);
  distag_tensor* b = uniform({512, 512}, false, 2);
  const auto step = [a, b] {
    Step s;
    s.apply(distag_matmul, a, b);
    s.done();
  };
  report("local_matmul_512", timed(step, 200, 20), "us");
  distag_tensor_release(a);
  distag_tensor_release(b);
}

void softmax() {
  distag_tensor* a = uniform({512, 1024}, true, 1);
  const auto step = [a] {
    Step s;
    distag_tensor* y = s.apply(distag_softmax, a, int64_t{-1});
    s.backward(s.sum(s.apply(distag_mul, y, y)));
  };
  report("local_softmax_512x1024", timed(step, 100, 5), "ms");
  distag_tensor_release(a);
}

void conv2d() {
  distag_tensor* x = uniform({16, 3, 32, 32}, false, 1);
  distag_tensor* weight = uniform({32, 3, 3, 3}, true, 2);
  const auto step = [x, weight] {
    const int64_t ones[] = {1, 1};
    Step s;
    distag_tensor* y = s.apply(distag_conv2d, x, weight, nullptr, static_cast<const int64_t*>(ones),
                               static_cast<const int64_t*>(ones));
    s.backward(s.sum(s.apply(distag_relu, y)));
  };
  report("local_conv2d", timed(step, 50, 5), "ms");
  distag_tensor_release(x);
  distag_tensor_release(weight);
}

}  // namespace

std::vector<Row> local_rows() {
  return {{"local_small_chain", small_chain}, {"local_elementwise_1M", elementwise}, {"local_mlp_step", mlp_step},
          {"local_matmul_512", matmul},       {"local_softmax_512x1024", softmax},   {"local_conv2d", conv2d}};
}

}  // namespace bench
