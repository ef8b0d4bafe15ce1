#include "precision/cases.h"

#include <cmath>

namespace distag::testing {
namespace {

using ops::Attributes;
using ops::make_attributes;

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// Above 0.5, for what has no value or no slope at 0.
Tensor positive(const Dims& shape) {
  Tensor x = precision_numbers(shape, 0, 1);
  for (int64_t i = 0; i < x.count(); ++i) {
    float& value = x.mutable_data_as<float>()[i];
    value = std::fabs(value) + 0.5F;
  }
  return x;
}

Tensor indices(const Dims& shape, int64_t below) {
  Tensor x = Tensor::empty(Dtype::kInt64, shape);
  auto* data = x.mutable_data_as<int64_t>();
  for (int64_t i = 0; i < x.count(); ++i) data[i] = i % below;
  return x;
}

Tensor flags(const Dims& shape) {
  Tensor x = Tensor::empty(Dtype::kBool, shape);
  auto* data = x.mutable_data_as<uint8_t>();
  for (int64_t i = 0; i < x.count(); ++i) data[i] = i % 3 == 0 ? 1 : 0;
  return x;
}

class Cases {
 public:
  Cases(int64_t size, const std::function<void(const PrecisionCase&)>& visit) : size_(size), visit_(visit) {}
  void set_adds_up(bool adds_up) { adds_up_ = adds_up; }
  void add(const char* op, Scale scale, double mean, Tensors inputs, Attributes attributes = {}) {
    visit_({op, size_, mean, std::move(inputs), std::move(attributes), scale, adds_up_});
  }

 private:
  const int64_t size_;
  const std::function<void(const PrecisionCase&)>& visit_;
  bool adds_up_ = true;
};

// Ops that add up, and ops whose gradient does, of numbers around a mean.
void add_sums(Cases& cases, int64_t n, double mean) {
  const Tensor x = precision_numbers({n}, mean, 1);
  const Tensor y = precision_numbers({n}, mean, 2);
  const Tensor one = precision_numbers({1}, mean, 3);
  const Tensor columns = precision_numbers({n / 10, 10}, mean, 1);
  for (const char* op : {"sum", "mean", "cumsum", "var", "std", "norm", "logsumexp"})
    cases.add(op, Scale::kTerms, mean, {x});
  for (const char* op : {"sum", "mean", "var", "std", "norm"}) {
    cases.add(op, Scale::kTerms, mean, {columns}, make_attributes({{"dims", Dims{0}}}));
  }
  cases.add("cumsum", Scale::kTerms, mean, {columns}, make_attributes({{"dim", 0}}));
  for (const char* op : {"softmax", "log_softmax"}) cases.add(op, Scale::kLargest, mean, {x});
  cases.add("layer_norm", Scale::kLargest, mean,
            {columns.view({10, n / 10}, {n / 10, 1}, 0), precision_numbers({n / 10}, 1, 4),
             precision_numbers({n / 10}, 0, 5)});
  const Tensor rows = columns.view({10, n / 10}, {n / 10, 1}, 0);
  cases.add("rms_norm", Scale::kLargest, mean, {rows, precision_numbers({n / 10}, 1, 4)});
  cases.add("group_norm", Scale::kLargest, mean, {rows}, make_attributes({{"num_groups", 2}}));
  // Seeds differ within a channel: else its gradient is 0.
  cases.add("batch_norm", Scale::kLargest, mean, {columns.view({n / 50, 10, 5}, {50, 5, 1}, 0)});
  // No share is the exponential of 100.
  if (mean == 0) cases.add("kl_div", Scale::kTerms, 0, {x, y}, make_attributes({{"log_target", true}}));
  for (const char* op : {"mse_loss", "l1_loss", "huber_loss"}) cases.add(op, Scale::kTerms, mean, {x, y});
  cases.add("cross_entropy", Scale::kTerms, mean, {columns, indices({n / 10}, 10)});
  cases.add("nll_loss", Scale::kTerms, mean, {columns, indices({n / 10}, 10)});
  for (const char* op : {"add", "sub", "mul"}) cases.add(op, Scale::kTerms, mean, {x, one});
  cases.add("expand", Scale::kTerms, mean, {one}, make_attributes({{"shape", Dims{n}}}));
  cases.add("gather", Scale::kTerms, mean, {precision_numbers({7}, mean, 6), indices({n}, 7)},
            make_attributes({{"dim", 0}}));
  cases.add("index_select", Scale::kTerms, mean, {precision_numbers({7}, mean, 6), indices({n}, 7)});
  cases.add("index_add", Scale::kTerms, mean, {precision_numbers({7}, mean, 6), indices({n}, 7), x});
  cases.add("scatter_add", Scale::kTerms, mean, {precision_numbers({7}, mean, 6), indices({n}, 7), x},
            make_attributes({{"dim", 0}}));
  cases.add("embedding", Scale::kTerms, mean, {indices({n / 10}, 7), precision_numbers({7, 10}, mean, 6)});
}

void add_elementwise(Cases& cases, int64_t n) {
  const Tensor x = precision_numbers({n}, 0, 1);
  const Tensor y = precision_numbers({n}, 0, 2);
  for (const char* op : {"neg",  "exp",      "tanh",  "sigmoid",    "relu", "sin",     "cos",      "abs",   "square",
                         "silu", "softplus", "gelu",  "leaky_relu", "elu",  "erf",     "floor",    "round", "sign",
                         "any",  "all",      "clone", "detach",     "flip", "squeeze", "unsqueeze"}) {
    const bool takes_dim = std::string(op) == "squeeze" || std::string(op) == "unsqueeze";
    cases.add(op, Scale::kLargest, 0, {x}, takes_dim ? make_attributes({{"dim", 0}}) : Attributes());
  }
  const Tensor above = positive({n});
  for (const char* op : {"log", "sqrt", "rsqrt", "reciprocal"}) cases.add(op, Scale::kLargest, 0, {above});
  for (const char* op : {"div", "pow"}) cases.add(op, Scale::kLargest, 0, {above, above});
  cases.add("binary_cross_entropy_with_logits", Scale::kTerms, 0, {x, y});
  cases.add("clamp", Scale::kLargest, 0, {x}, make_attributes({{"min", -0.5}, {"max", 0.75}}));
  cases.add("add_scalar", Scale::kLargest, 0, {x}, make_attributes({{"value", 1.5}}));
  cases.add("mul_scalar", Scale::kLargest, 0, {x}, make_attributes({{"value", 1.5}}));
  for (const char* op : {"maximum", "minimum", "eq", "gt", "ge", "lt", "le", "ne", "logical_and", "logical_or"})
    cases.add(op, Scale::kLargest, 0, {x, y});
  for (const char* op : {"max", "amin", "argmax"}) cases.add(op, Scale::kLargest, 0, {x});
  for (const char* op : {"logical_not", "nonzero"}) cases.add(op, Scale::kLargest, 0, {x});
  cases.add("topk", Scale::kLargest, 0, {x}, make_attributes({{"k", n / 10}}));
  for (const char* op : {"sort", "min_with_indices", "max_with_indices"}) cases.add(op, Scale::kLargest, 0, {x});
  cases.add("one_hot", Scale::kLargest, 0, {indices({n / 10}, 10)}, make_attributes({{"num_classes", 10}}));
  cases.add("masked_fill", Scale::kLargest, 0, {x, flags({n})}, make_attributes({{"value", 0.5}}));
  cases.add("where", Scale::kLargest, 0, {flags({n}), x, y});
  cases.add("dropout", Scale::kLargest, 0, {x}, make_attributes({{"p", 0.25}, {"seed", 7}}));
}

void add_moves(Cases& cases, int64_t n) {
  const Tensor x = precision_numbers({n}, 0, 1);
  const Tensor matrix = x.view({n / 10, 10}, {10, 1}, 0);
  cases.add("transpose", Scale::kLargest, 0, {matrix}, make_attributes({{"dim0", 0}, {"dim1", 1}}));
  cases.add("permute", Scale::kLargest, 0, {matrix}, make_attributes({{"dims", Dims{1, 0}}}));
  cases.add("reshape", Scale::kLargest, 0, {matrix}, make_attributes({{"shape", Dims{-1}}}));
  cases.add("repeat", Scale::kTerms, 0, {x}, make_attributes({{"repeats", Dims{3}}}));
  cases.add("slice", Scale::kLargest, 0, {x}, make_attributes({{"start", 1}, {"step", 2}}));
  cases.add("split", Scale::kLargest, 0, {x}, make_attributes({{"sizes", Dims{1, n - 1}}}));
  for (const char* op : {"concat", "stack"}) cases.add(op, Scale::kLargest, 0, {x, x});
  cases.add("pad", Scale::kLargest, 0, {x}, make_attributes({{"before", 1}, {"value", 0.5}}));
  for (const char* op : {"tril", "triu"}) cases.add(op, Scale::kLargest, 0, {matrix});
  cases.add("cast", Scale::kLargest, 0, {x}, make_attributes({{"dtype", "bool"}}));
}

// Products are BLAS's, whose sums are its own: here they are of few terms, and what distag adds up (gradients of
// biases, images that share a weight, windows that share an element) is of many.
void add_products_and_images(Cases& cases, int64_t n) {
  const Tensor x = precision_numbers({n / 10, 10}, 0, 1);
  cases.add("matmul", Scale::kTerms, 0, {x, precision_numbers({10, 2}, 0, 2)});
  cases.add("linear", Scale::kTerms, 0, {x, precision_numbers({2, 10}, 0, 2), precision_numbers({2}, 0, 3)});
  const Tensor images = precision_numbers({n / 100, 1, 10, 10}, 0, 1);
  cases.add("conv2d", Scale::kTerms, 0, {images, precision_numbers({1, 1, 2, 2}, 0, 2), precision_numbers({1}, 0, 3)});
  cases.add("avg_pool2d", Scale::kTerms, 0, {images},
            make_attributes({{"kernel", Dims{3, 3}}, {"stride", Dims{1, 1}}}));
  cases.add("adaptive_avg_pool2d", Scale::kTerms, 0, {images}, make_attributes({{"output_size", Dims{3, 4}}}));
  const Tensor rows = images.view({n / 100, 1, 100}, {100, 100, 1}, 0);
  cases.add("conv1d", Scale::kTerms, 0, {rows, precision_numbers({1, 1, 3}, 0, 2), precision_numbers({1}, 0, 3)});
  cases.add("conv_transpose2d", Scale::kTerms, 0,
            {images, precision_numbers({1, 1, 2, 2}, 0, 2), precision_numbers({1}, 0, 3)});
  // The two shares of a mean are rounded together, so that a small one is less exact.
  cases.add("interpolate", Scale::kLargest, 0, {images},
            make_attributes({{"size", Dims{7, 13}}, {"mode", "bilinear"}}));
  const Tensor queries = x.view({n / 100, 10, 10}, {100, 10, 1}, 0);
  // The terms of its sums are weighed by a softmax, which is another one of numbers without signs.
  cases.add("scaled_dot_product_attention", Scale::kLargest, 0, {queries, queries, queries});
  cases.add("max_pool2d", Scale::kLargest, 0, {images},
            make_attributes({{"kernel", Dims{3, 3}}, {"stride", Dims{1, 1}}}));
}

void add_sources(Cases& cases, int64_t n) {
  const Dims shape{n};
  for (const char* op : {"zeros", "ones"}) cases.add(op, Scale::kLargest, 0, {}, make_attributes({{"shape", shape}}));
  cases.add("full", Scale::kLargest, 0, {}, make_attributes({{"shape", shape}, {"value", 0.1}}));
  cases.add("arange", Scale::kLargest, 0, {}, make_attributes({{"stop", static_cast<double>(n)}, {"step", 1.0}}));
  for (const char* op : {"rand", "randn"}) {
    cases.add(op, Scale::kLargest, 0, {}, make_attributes({{"shape", shape}, {"seed", 7}}));
  }
}

}  // namespace

Tensor precision_numbers(const Dims& shape, double mean, uint64_t seed) {
  Tensor x = Tensor::empty(Dtype::kFloat32, shape);
  float* data = x.mutable_data_as<float>();
  for (int64_t i = 0; i < x.count(); ++i) {
    const uint64_t bits = mixed((static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15U + seed * 0xD1B54A32D192ED03U);
    const double u = static_cast<double>(bits >> 11) * 0x1p-53;
    data[i] = static_cast<float>(mean + 1.7320508075688772 * (2 * u - 1));
  }
  return x;
}

void for_each_precision_case(int64_t size, const std::function<void(const PrecisionCase&)>& visit) {
  Cases cases(size, visit);
  for (double mean : {0.0, 100.0}) add_sums(cases, size, mean);
  add_products_and_images(cases, size);
  cases.set_adds_up(false);
  add_elementwise(cases, size);
  add_moves(cases, size);
  add_sources(cases, size);
}

}  // namespace distag::testing
