#pragma once

#include <functional>
#include <random>
#include <string>

#include "autograd/autograd.h"
#include "ops/attributes.h"
#include "ops/op.h"

namespace distag::testing {

// A program of products, sums, norms, tables and losses that is the same for each seed, over leaves that the caller
// makes: with elements, or as shapes only.
class RandomProgram {
 public:
  struct Leaf {
    std::string name;
    Dims shape;
    bool is_trained;
    int64_t rows = 0;  // not 0: int64 below it
  };
  using MakeLeaf = std::function<Tensor(const Leaf&)>;

  RandomProgram(uint64_t seed, MakeLeaf make_leaf) : random_(seed), make_leaf_(std::move(make_leaf)) {}

  size_t below(size_t n) { return random_() % n; }

  // Returns the result, a single number. Stops adding leaves at `most_leaves`.
  Tensor run(size_t steps, size_t most_leaves) {
    const Dims shape{static_cast<int64_t>(3 << below(3)), static_cast<int64_t>(2 << below(3))};
    const bool is_trained = below(3) == 0;
    made_.push_back(leaf(shape, is_trained));
    // The weight of this layer is always trained.
    made_.push_back(apply("linear", {made_[0], leaf({4, shape[1]}, true)}));
    for (size_t i = 0; i < steps; ++i) made_.push_back(step(leaves_ < most_leaves));
    const size_t end = below(4);
    Tensor loss = any();
    const bool has_classes = end == 0 && leaves_ < most_leaves;
    if (end == 1) loss = apply("square", {loss});
    loss = has_classes ? classes_of(loss) : apply(end == 1 ? "sum" : "mean", {loss});
    // The loss depends on everything that was made.
    used_.resize(made_.size());
    for (size_t i = 1; i < made_.size(); ++i) {
      if (!used_[i]) loss = apply("add", {loss, apply("mean", {made_[i]})});
    }
    return loss;
  }

 private:
  static Tensor apply(const char* op, const Tensors& inputs, const ops::Attributes& attributes = {}) {
    return autograd::apply(*ops::find_op(op), inputs, attributes)[0];
  }
  static Tensor transposed(const Tensor& x) {
    return apply("transpose", {x}, ops::make_attributes({{"dim0", 0}, {"dim1", 1}}));
  }
  Tensor any() {
    const size_t number = 1 + below(made_.size() - 1);
    used_.resize(made_.size());
    used_[number] = true;
    return made_[number];
  }
  Tensor leaf(const Dims& shape, bool is_trained, int64_t rows = 0) {
    return make_leaf_({"l" + std::to_string(leaves_++), shape, is_trained, rows});
  }
  Tensor classes_of(const Tensor& x) { return apply("cross_entropy", {x, leaf({x.shape()[0]}, false, x.shape()[1])}); }
  // Results are bounded, so that numbers can be compared.
  Tensor step(bool may_add_leaf) {
    const Tensor x = any();
    const int64_t width = x.shape()[1];
    const bool is_trained = below(4) != 0;
    switch (below(may_add_leaf ? 16 : 9)) {
      case 0:
        return apply("tanh", {x});
      case 1: {
        const std::vector<bool> used = used_;
        const Tensor y = any();
        if (y.shape() != x.shape()) used_ = used;
        if (y.shape() != x.shape()) return apply("mul_scalar", {x}, ops::make_attributes({{"value", 0.5}}));
        return apply(below(2) == 0 ? "add" : "mul", {x, y});
      }
      case 2:
        return apply("softmax", {x});
      case 3:
        return transposed(x);
      case 4:
        return apply("mul", {x, apply("sigmoid", {x})});
      case 5:
        return apply("tanh", {apply("matmul", {x, transposed(x)})});
      case 6:
        return apply("log_softmax", {x});
      case 7:
        return apply("sub", {x, apply("sum", {x}, ops::make_attributes({{"dims", Dims{0}}, {"keepdim", true}}))});
      case 8:
        return apply("sub", {x, apply("max", {x}, ops::make_attributes({{"dims", Dims{1}}, {"keepdim", true}}))});
      case 9: {
        const int64_t out = 2 << below(3);
        const Tensor weight = leaf({out, width}, is_trained);
        const Tensor bias = below(2) == 0 ? leaf({out}, is_trained) : Tensor();
        return apply("tanh", {apply("linear", {x, weight, bias})});
      }
      case 10:
        return apply("add", {x, leaf({width}, is_trained)});
      case 11:
        return apply("layer_norm", {x, leaf({width}, is_trained)});
      // Some leaves that backward needs once more, and one that it does not need.
      case 12: {
        const Tensor square = apply("square", {x});
        return apply(
            "div", {leaf({width}, is_trained), apply("add_scalar", {square}, ops::make_attributes({{"value", 2.0}}))});
      }
      case 13:
        return apply("mul", {x, apply(below(2) == 0 ? "sigmoid" : "exp", {leaf({width}, is_trained)})});
      case 14:
        return apply("maximum", {x, leaf({width}, is_trained)});
      default: {
        const Tensor table = leaf({6, width}, is_trained);
        return apply("add", {x, apply("embedding", {leaf({x.shape()[0]}, false, 6), table})});
      }
    }
  }

  std::mt19937_64 random_;
  const MakeLeaf make_leaf_;
  size_t leaves_ = 0;
  Tensors made_;            // the input, then results of two dims
  std::vector<bool> used_;  // of these
};

}  // namespace distag::testing
