#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/context.h"
#include "base/error.h"
#include "ops/op.h"
#include "support/expect.h"
#include "support/leaves.h"

// Short words for tests of recorded graphs.
namespace distag::testing {

inline Tensor apply(const char* op, std::vector<Tensor> inputs) {
  return autograd::apply(*ops::find_op(op), inputs, {})[0];
}

inline std::vector<double> values(const Tensor& tensor) {
  std::vector<double> result(static_cast<size_t>(tensor.count()));
  tensor.copy_to(result.data());
  return result;
}

inline std::vector<double> gradient(Context& context, const Tensor& leaf) {
  const std::shared_ptr<const Gradients> all = context.gradients();
  const Tensor* found = all->find(leaf);
  return found == nullptr ? std::vector<double>{} : values(*found);
}

// A custom op y = x that counts how many of its applications are alive.
class CountedOp {
 public:
  Tensor operator()(const Tensor& x) {
    auto token = std::make_shared<Token>(alive_);
    autograd::CustomOp op;
    op.name = "counted";
    op.forward = [token](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
    op.backward = [token](Tensors gradients, size_t) { return gradients; };
    return autograd::apply_custom(std::move(op), std::vector<Tensor>{x}, 1)[0];
  }
  int alive() const { return *alive_; }

 private:
  struct Token {
    explicit Token(std::shared_ptr<std::atomic<int>> c) : count(std::move(c)) { ++*count; }
    ~Token() { --*count; }
    std::shared_ptr<std::atomic<int>> count;
  };
  std::shared_ptr<std::atomic<int>> alive_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace distag::testing
