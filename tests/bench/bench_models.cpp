// Rows of local training steps: a small convolutional network, an optimizer on many numbers, a table of embeddings,
// attention.
#include <cmath>

#include "bench/step.h"

namespace bench {

namespace {

distag_tensor* indices(int64_t count, int64_t below) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = i * 7919 % below;
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* made = nullptr;
  distag_tensor_create(values.data(), values.size() * sizeof values[0], DISTAG_INT64, &count, 1, &made, &error);
  check(error, "indices");
  return made;
}

// An optimizer of parameters that it is given here, local.
class Optimizer {
 public:
  Optimizer(const char* kind, const std::vector<distag_tensor*>& parameters) {
    std::vector<distag_value*> values;
    for (distag_tensor* parameter : parameters) values.push_back(distag_tensor_as_value(parameter));
    distag_optimizer_create(nullptr, kind, values.data(), values.size(), &optimizer_, &error_);
    check(error_, "optimizer");
  }
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  ~Optimizer() { distag_optimizer_release(optimizer_); }

  // A backward pass, and a step on its gradients.
  void train(distag_tensor* loss) {
    distag_context* context = nullptr;
    distag_context_create(nullptr, &context, &error_);
    distag_backward(context, &loss, 1, nullptr, &error_);
    distag_optimizer_step(optimizer_, context, nullptr, &error_);
    check(error_, "train");
    distag_context_release(context);
  }

 private:
  distag_optimizer* optimizer_ = nullptr;
  distag_error error_ = DISTAG_ERROR_INIT;
};

void release(const std::vector<distag_tensor*>& tensors) {
  for (distag_tensor* tensor : tensors) distag_tensor_release(tensor);
}

// 6 and 16 maps of 5 x 5, each with relu and pooled by 2, then 400-120-84-10; batch 64 of 1 x 28 x 28, SGD.
void lenet() {
  const std::vector<distag_tensor*> weights = {parameter({6, 1, 5, 5}, 0.2, 1), parameter({16, 6, 5, 5}, 0.08, 2),
                                               parameter({120, 400}, 0.05, 3), parameter({84, 120}, 0.09, 4),
                                               parameter({10, 84}, 0.1, 5)};
  distag_tensor* x = uniform({64, 1, 28, 28}, false, 6);
  distag_tensor* y = indices(64, 10);
  Optimizer sgd("sgd", weights);
  const auto step = [&] {
    const int64_t ones[] = {1, 1}, twos[] = {2, 2}, none[] = {0, 0}, flat[] = {64, 400};
    Step s;
    distag_tensor* h = x;
    for (size_t i = 0; i < 2; ++i) {
      h = s.apply(distag_conv2d, h, weights[i], nullptr, static_cast<const int64_t*>(ones),
                  static_cast<const int64_t*>(i == 0 ? twos : none));
      h = s.apply(distag_max_pool2d, s.apply(distag_relu, h), static_cast<const int64_t*>(twos),
                  static_cast<const int64_t*>(twos), static_cast<const int64_t*>(none));
    }
    h = s.apply(distag_reshape, h, static_cast<const int64_t*>(flat), size_t{2});
    for (size_t i = 2; i < 5; ++i) {
      h = s.apply(distag_linear, h, weights[i], nullptr);
      if (i < 4) h = s.apply(distag_relu, h);
    }
    distag_tensor* loss = s.apply(distag_cross_entropy, h, y);
    s.done();
    sgd.train(loss);
  };
  report("lenet_step", timed(step, 60, 5), "ms");
  release(weights);
  distag_tensor_release(x);
  distag_tensor_release(y);
}

// Adam on 1,048,576 numbers, with the pass that makes their gradient.
void adam() {
  const std::vector<distag_tensor*> weights = {parameter({1 << 20}, 1, 1)};
  Optimizer optimizer("adam", weights);
  const auto step = [&] {
    Step s;
    distag_tensor* loss = s.sum(weights[0]);
    s.done();
    optimizer.train(loss);
  };
  report("adam_1M", timed(step, 100, 10), "ms");
  release(weights);
}

// 1,024 rows of a table of 20,000 x 64, and a step of SGD.
void embedding() {
  const std::vector<distag_tensor*> table = {parameter({20000, 64}, 1, 1)};
  distag_tensor* rows = indices(1024, 20000);
  Optimizer sgd("sgd", table);
  const auto step = [&] {
    Step s;
    distag_tensor* inputs[] = {rows, table[0]};
    distag_tensor* found = nullptr;
    distag_apply("embedding", inputs, 2, nullptr, 0, &found, 1, s.error());
    distag_tensor* loss = s.mean(s.apply(distag_mul, found, found));
    s.done();
    distag_tensor_release(found);
    sgd.train(loss);
  };
  report("embedding_step", timed(step, 60, 5), "ms");
  release(table);
  distag_tensor_release(rows);
}

// softmax(q k^T / 8) v for 32 heads of 128 x 64, and its gradients.
void attention() {
  distag_tensor* q = uniform({32, 128, 64}, true, 1);
  distag_tensor* k = uniform({32, 128, 64}, true, 2);
  distag_tensor* v = uniform({32, 128, 64}, true, 3);
  const auto step = [&] {
    Step s;
    distag_tensor* scores = s.apply(distag_matmul, q, s.apply(distag_transpose, k, int64_t{1}, int64_t{2}));
    distag_tensor* weights = s.apply(distag_softmax, s.apply(distag_mul_scalar, scores, 0.125), int64_t{-1});
    s.backward(s.sum(s.apply(distag_matmul, weights, v)));
  };
  report("attention_fwd_bwd", timed(step, 60, 5), "ms");
  release({q, k, v});
}

}  // namespace

std::vector<Row> model_rows() {
  return {{"lenet_step", lenet}, {"adam_1M", adam}, {"embedding_step", embedding}, {"attention_fwd_bwd", attention}};
}

}  // namespace bench
