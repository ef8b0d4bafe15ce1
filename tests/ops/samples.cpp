#include "ops/samples.h"

#include <limits>

#include "support/tensors.h"

namespace distag::testing {
namespace {

using ops::Attributes;
using ops::make_attributes;

// Different numbers of both signs, none near 0, in an order without a pattern.
Tensor numbers(const Dims& shape, int64_t seed = 1) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    int64_t mixed = ((i + seed) * 7919 + seed * 104729) % 1009;
    double value = 0.1 + static_cast<double>(mixed) / 700.0;
    tensor.mutable_data_as<double>()[i] = mixed % 2 == 0 ? value : -value;
  }
  return tensor;
}

Tensor positive(const Dims& shape, int64_t seed = 1) {
  Tensor tensor = numbers(shape, seed);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    double& value = tensor.mutable_data_as<double>()[i];
    value = std::fabs(value) + 0.2;
  }
  return tensor;
}

Tensor indices(const Dims& shape, const std::vector<int64_t>& values) { return tensor_of<int64_t>(shape, values); }

using Samples = std::vector<Sample>;

// Every way in which two shapes meet.
void add_binary(Samples& samples, const char* op, Tensor (*right)(const Dims&, int64_t)) {
  const std::pair<Dims, Dims> shapes[] = {
      {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 1, 4}, {3, 1}},    {{}, {2, 2}},           {{0, 3}, {3}},
      {{}, {}},         {{1}, {4}},    {{3, 1, 1}, {3, 2, 2}}, {{2, 3, 4}, {1, 3, 1}}, {{4}, {2, 4}}};
  for (const auto& [a, b] : shapes) samples.push_back({op, {numbers(a, 3), right(b, 5)}, {}});
  samples.push_back({op, {with_gaps(numbers({3, 2}, 3)), right({3, 2}, 5)}, {}});
  samples.push_back({op, {numbers({3, 2}, 3), with_gaps(right({2}, 5))}, {}});
}

void add_unary(Samples& samples, const char* op, Tensor (*input)(const Dims&, int64_t), const Attributes& attributes) {
  for (const Dims& shape : {Dims{}, Dims{7}, Dims{0, 2}, Dims{3, 4}, Dims{40}}) {
    samples.push_back({op, {input(shape, 11)}, attributes});
  }
  samples.push_back({op, {with_gaps(input({2, 3}, 11))}, attributes});
}

void add_reduction(Samples& samples, const char* op, bool takes_empty) {
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{-1}, Dims{1, 0}, Dims{2, 0}}) {
    for (bool keepdim : {false, true}) {
      samples.push_back({op, {numbers({2, 3, 4})}, make_attributes({{"dims", dims}, {"keepdim", keepdim}})});
    }
  }
  if (std::string(op) != "var" && std::string(op) != "std") {  // one element has no variance
    samples.push_back({op, {numbers({})}, {}});
    samples.push_back({op, {numbers({1, 3, 1})}, make_attributes({{"dims", Dims{0, 2}}})});
  }
  samples.push_back({op, {with_gaps(numbers({2, 3}))}, make_attributes({{"dims", Dims{1}}})});
  samples.push_back({op, {numbers({0, 3})}, make_attributes({{"dims", Dims{1}}})});
  if (takes_empty) samples.push_back({op, {numbers({0, 3})}, make_attributes({{"dims", Dims{0}}})});
}

void add_norms(Samples& samples) {
  for (const double p : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    for (const Dims& dims : {Dims{}, Dims{1}, Dims{0, -1}}) {
      samples.push_back({"norm", {numbers({2, 3, 4})}, make_attributes({{"p", p}, {"dims", dims}})});
    }
    samples.push_back({"norm", {with_gaps(numbers({2, 3}))}, make_attributes({{"p", p}, {"dims", Dims{0}}})});
  }
  samples.push_back({"std", {numbers({4, 3})}, make_attributes({{"dims", Dims{0}}, {"correction", 0.5}})});
  samples.push_back({"layer_norm", {numbers({2, 3, 6}), numbers({6}, 2), numbers({6}, 3)}, {}});
  samples.push_back(
      {"layer_norm", {numbers({2, 3, 6}), Tensor(), numbers({3, 6}, 3)}, make_attributes({{"normalized_dims", 2}})});
  samples.push_back({"layer_norm", {with_gaps(numbers({2, 6}))}, make_attributes({{"eps", 0.1}})});
  samples.push_back({"layer_norm", {numbers({0, 6}), numbers({6}, 2), numbers({6}, 3)}, {}});
}

void add_more_norms(Samples& samples) {
  samples.push_back({"rms_norm", {numbers({2, 3, 6}), numbers({6}, 2)}, {}});
  samples.push_back({"rms_norm", {numbers({2, 3, 4}), numbers({3, 4}, 2)}, make_attributes({{"normalized_dims", 2}})});
  samples.push_back({"rms_norm", {with_gaps(numbers({3, 5}))}, make_attributes({{"eps", 0.1}})});
  samples.push_back({"rms_norm", {numbers({0, 6}), numbers({6}, 2)}, {}});
  const auto groups = [](int64_t count) { return make_attributes({{"num_groups", count}}); };
  samples.push_back({"group_norm", {numbers({2, 4, 3}), numbers({4}, 2), numbers({4}, 3)}, groups(2)});
  samples.push_back({"group_norm", {with_gaps(numbers({2, 4, 3, 2})), Tensor(), numbers({4}, 3)}, groups(1)});
  samples.push_back({"group_norm", {numbers({3, 6})}, groups(2)});
  samples.push_back({"group_norm", {numbers({0, 4, 3}), numbers({4}, 2), numbers({4}, 3)}, groups(4)});
  const Attributes given = make_attributes({{"training", false}, {"eps", 0.01}});
  samples.push_back({"batch_norm", {numbers({4, 3, 2, 2}), numbers({3}, 2), numbers({3}, 3)}, {}});
  samples.push_back({"batch_norm", {with_gaps(numbers({5, 3}))}, {}});
  samples.push_back({"batch_norm", {numbers({0, 3, 2}), numbers({3}, 2), numbers({3}, 3)}, {}});
  for (const Dims& shape : {Dims{2, 3, 4}, Dims{4, 3}, Dims{0, 3}}) {
    samples.push_back(
        {"batch_norm", {numbers(shape), numbers({3}, 2), numbers({3}, 3), numbers({3}, 4), positive({3}, 5)}, given});
  }
  samples.push_back({"batch_norm", {numbers({2, 3, 4}), Tensor(), Tensor(), numbers({3}, 4), positive({3}, 5)}, given});
}

void add_attention(Samples& samples) {
  const char* op = "scaled_dot_product_attention";
  const Attributes causal = make_attributes({{"is_causal", true}});
  const Tensor mask = tensor_of<uint8_t>({3, 4}, {1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1});
  samples.push_back({op, {numbers({2, 2, 3, 5}), numbers({2, 2, 4, 5}, 2), numbers({2, 2, 4, 2}, 3)}, {}});
  samples.push_back({op, {numbers({2, 4, 5}), numbers({2, 4, 5}, 2), numbers({2, 4, 3}, 3)}, causal});
  samples.push_back({op, {with_gaps(numbers({3, 2})), numbers({4, 2}, 2), numbers({4, 3}, 3), mask}, {}});
  samples.push_back({op, {numbers({2, 3, 2}), numbers({2, 4, 2}, 2), numbers({2, 4, 3}, 3), mask}, causal});
  samples.push_back({op,
                     {numbers({2, 3, 2}), numbers({4, 2}, 2), numbers({1, 4, 3}, 3), numbers({3, 4}, 4)},
                     make_attributes({{"scale", 0.4}})});
  samples.push_back({op, {numbers({3, 2}), numbers({4, 2}, 2), numbers({2, 4, 3}, 3), numbers({3, 1}, 4)}, {}});
  samples.push_back({op, {numbers({0, 3, 2}), numbers({0, 4, 2}, 2), numbers({0, 4, 3}, 3)}, {}});
}

void add_elementwise(Samples& samples) {
  for (const char* op : {"add", "sub", "mul", "maximum", "minimum"}) add_binary(samples, op, numbers);
  add_binary(samples, "div", positive);
  samples.push_back({"pow", {positive({2, 3}, 3), numbers({3}, 5)}, {}});
  samples.push_back({"pow", {positive({}, 3), numbers({2, 1}, 5)}, {}});
  const Tensor mask = tensor_of<uint8_t>({2, 3}, {1, 0, 1, 0, 0, 1});
  const Attributes filling = make_attributes({{"value", -2.5}});
  for (const Dims& shape : {Dims{2, 3}, Dims{3}, Dims{}, Dims{4, 2, 3}, Dims{2, 1}}) {
    samples.push_back({"masked_fill", {numbers(shape, 3), mask}, filling});
  }
  samples.push_back({"masked_fill", {with_gaps(numbers({2, 3}, 3)), with_gaps(mask)}, filling});
  samples.push_back({"masked_fill", {numbers({0, 3}, 3), tensor_of<uint8_t>({}, {1})}, filling});
  for (const char* op : {"neg", "exp", "tanh", "sigmoid", "relu", "clone"}) add_unary(samples, op, numbers, {});
  for (const char* op : {"log", "sqrt", "rsqrt", "reciprocal"}) add_unary(samples, op, positive, {});
  for (const char* op : {"sin", "cos", "abs", "square", "silu", "softplus", "gelu", "leaky_relu", "elu", "erf", "floor",
                         "round", "sign"}) {
    add_unary(samples, op, numbers, {});
  }
  add_unary(samples, "clamp", numbers, make_attributes({{"min", -0.53}, {"max", 0.71}}));
  add_unary(samples, "leaky_relu", numbers, make_attributes({{"negative_slope", 0.3}}));
  add_unary(samples, "elu", numbers, make_attributes({{"alpha", 2.0}}));
  for (const char* op : {"add_scalar", "mul_scalar"}) {
    add_unary(samples, op, numbers, make_attributes({{"value", -1.5}}));
  }
  add_unary(samples, "cast", numbers, make_attributes({{"dtype", Dtype::kFloat64}}));
}

void add_products(Samples& samples) {
  const std::pair<Dims, Dims> shapes[] = {{{2, 3}, {3, 4}},
                                          {{3}, {3}},
                                          {{2, 3}, {3}},
                                          {{3}, {3, 4}},
                                          {{5, 2, 3}, {3, 4}},
                                          {{5, 2, 3}, {5, 3, 4}},
                                          {{2, 1, 2, 3}, {4, 3, 2}},
                                          {{0, 3}, {3, 2}},
                                          {{2, 0}, {0, 3}},
                                          {{2, 3}, {4, 3, 2}},
                                          {{2, 2, 3}, {3}},
                                          {{3}, {2, 3, 4}},
                                          {{1, 1}, {1, 1}},
                                          {{2, 2, 0}, {0, 3}}};
  for (const auto& [a, b] : shapes) samples.push_back({"matmul", {numbers(a, 3), numbers(b, 5)}, {}});
  samples.push_back({"matmul", {with_gaps(numbers({2, 3}, 3)), with_gaps(numbers({3, 2}, 5))}, {}});
  samples.push_back({"linear", {numbers({5, 3}), numbers({4, 3}, 2), numbers({4}, 3)}, {}});
  samples.push_back({"linear", {numbers({2, 5, 3}), numbers({4, 3}, 2), Tensor()}, {}});
  samples.push_back({"linear", {numbers({3}), with_gaps(numbers({4, 3}, 2)), with_gaps(numbers({4}, 3))}, {}});
  samples.push_back({"linear", {numbers({0, 3}), numbers({4, 3}, 2), numbers({4}, 3)}, {}});
  samples.push_back({"linear", {numbers({2, 0}), numbers({4, 0}, 2), numbers({4}, 3)}, {}});
}

void add_shapes(Samples& samples) {
  samples.push_back({"transpose", {numbers({2, 3, 4})}, make_attributes({{"dim0", 0}, {"dim1", -1}})});
  samples.push_back({"transpose", {numbers({})}, make_attributes({{"dim0", 0}, {"dim1", -1}})});
  samples.push_back({"reshape", {numbers({2, 6})}, make_attributes({{"shape", Dims{4, -1}}})});
  samples.push_back({"reshape", {with_gaps(numbers({2, 6}))}, make_attributes({{"shape", Dims{3, 4}}})});
  samples.push_back({"reshape", {numbers({1, 1})}, make_attributes({{"shape", Dims{}}})});
  samples.push_back(
      {"slice", {numbers({3, 7})}, make_attributes({{"dim", 1}, {"start", 1}, {"stop", 6}, {"step", 2}})});
  samples.push_back({"slice", {numbers({3, 7})}, make_attributes({{"dim", 0}, {"start", 5}})});
  samples.push_back({"concat", {numbers({2, 3}), numbers({2, 1}), numbers({2, 0})}, make_attributes({{"dim", 1}})});
  samples.push_back({"concat", {with_gaps(numbers({2, 3}))}, {}});
}

void add_more_shapes(Samples& samples) {
  samples.push_back({"permute", {numbers({2, 3, 4})}, make_attributes({{"dims", Dims{2, 0, -2}}})});
  samples.push_back({"expand", {numbers({2, 1})}, make_attributes({{"shape", Dims{4, 2, 3}}})});
  samples.push_back({"expand", {numbers({})}, make_attributes({{"shape", Dims{2, 0}}})});
  samples.push_back({"squeeze", {with_gaps(numbers({2, 1, 3}))}, make_attributes({{"dim", 1}})});
  samples.push_back({"squeeze", {numbers({2, 3})}, make_attributes({{"dim", 1}})});
  samples.push_back({"unsqueeze", {with_gaps(numbers({2, 3}))}, make_attributes({{"dim", -1}})});
  samples.push_back({"stack", {numbers({2, 3}), with_gaps(numbers({2, 3}, 2))}, make_attributes({{"dim", 1}})});
  samples.push_back({"stack", {numbers({})}, make_attributes({{"dim", -1}})});
  samples.push_back({"split", {numbers({6, 2})}, make_attributes({{"sizes", Dims{1, 0, 3, 2}}})});
  samples.push_back({"split", {with_gaps(numbers({2, 5}))}, make_attributes({{"sizes", Dims{2, 3}}, {"dim", -1}})});
  samples.push_back({"flip", {numbers({3, 2})}, make_attributes({{"dims", Dims{0}}})});
  samples.push_back({"flip", {with_gaps(numbers({3, 2}))}, {}});
  samples.push_back({"flip", {numbers({3, 0})}, {}});
  samples.push_back({"pad", {numbers({2, 3})}, make_attributes({{"before", 1}, {"after", 2}, {"value", 0.5}})});
  samples.push_back({"pad", {with_gaps(numbers({2, 3}))}, make_attributes({{"dim", 0}, {"after", 1}})});
  samples.push_back({"pad", {numbers({2, 0})}, make_attributes({{"before", 1}, {"after", 2}})});
  for (int64_t diagonal : {-9, -1, 0, 1, 9}) {
    for (const char* op : {"tril", "triu"}) {
      samples.push_back({op, {numbers({2, 4, 5})}, make_attributes({{"diagonal", diagonal}})});
      samples.push_back({op, {with_gaps(numbers({5, 3}))}, make_attributes({{"diagonal", diagonal}})});
    }
  }
  for (const char* op : {"tril", "triu"}) samples.push_back({op, {numbers({3, 0})}, {}});
  for (int64_t dim : {0, 1, 2}) samples.push_back({"cumsum", {numbers({2, 3, 2})}, make_attributes({{"dim", dim}})});
  samples.push_back({"cumsum", {with_gaps(numbers({3, 2}))}, {}});
  samples.push_back({"cumsum", {numbers({7, 5})}, {}});
  samples.push_back({"cumsum", {numbers({})}, {}});
}

void add_choices(Samples& samples) {
  Tensor condition = tensor_of<uint8_t>({2, 3}, {1, 0, 1, 0, 0, 2});
  samples.push_back({"where", {condition, numbers({2, 3}), numbers({3}, 2)}, {}});
  samples.push_back({"where", {tensor_of<uint8_t>({2, 1}, {1, 0}), numbers({}), numbers({2, 2}, 2)}, {}});
  Tensor index = indices({3, 2}, {4, 0, 1, 1, 2, 3});
  samples.push_back({"gather", {numbers({3, 5}), index}, make_attributes({{"dim", 1}})});
  samples.push_back({"gather", {with_gaps(numbers({5, 2})), index}, make_attributes({{"dim", 0}})});
  samples.push_back({"gather", {numbers({3, 5}), indices({2, 2}, {4, 0, 1, 1})}, make_attributes({{"dim", 1}})});
  samples.push_back({"gather", {numbers({3, 5}), indices({3, 0}, {})}, make_attributes({{"dim", 1}})});
  samples.push_back(
      {"gather", {numbers({2, 3, 4}), indices({2, 1, 3}, {2, 0, 2, 1, 1, 0})}, make_attributes({{"dim", 1}})});
  samples.push_back({"index_select", {numbers({5, 3}), indices({4}, {0, 4, 0, 2})}, {}});
  samples.push_back(
      {"index_select", {with_gaps(numbers({2, 3, 2})), indices({2}, {2, 2})}, make_attributes({{"dim", 1}})});
  samples.push_back({"index_select", {numbers({2, 3}), indices({0}, {})}, {}});
  samples.push_back({"embedding", {indices({2, 2}, {5, 0, 5, 1}), numbers({6, 3})}, {}});
  samples.push_back({"embedding", {indices({}, {2}), with_gaps(numbers({6, 3}))}, {}});
}

void add_sums_at_indices(Samples& samples) {
  const Tensor index = indices({4}, {2, 0, 2, 1});
  samples.push_back({"index_add", {numbers({3, 2}), index, numbers({4, 2}, 2)}, {}});
  samples.push_back({"index_add",
                     {with_gaps(numbers({2, 3, 2})), index, with_gaps(numbers({2, 4, 2}, 2))},
                     make_attributes({{"dim", -2}})});
  samples.push_back({"index_add", {numbers({3}), indices({0}, {}), numbers({0}, 2)}, {}});
  samples.push_back({"index_add", {numbers({3, 0}), index, numbers({4, 0}, 2)}, {}});
  const Tensor places = indices({2, 3}, {0, 2, 0, 1, 1, 0});
  samples.push_back({"scatter_add", {numbers({2, 3}), places, numbers({2, 3}, 2)}, make_attributes({{"dim", 1}})});
  samples.push_back({"scatter_add",
                     {with_gaps(numbers({4, 3})), places, with_gaps(numbers({3, 5}, 2))},
                     make_attributes({{"dim", 0}})});
  samples.push_back({"scatter_add", {numbers({3, 5}), places, numbers({2, 4}, 2)}, make_attributes({{"dim", -1}})});
  samples.push_back({"scatter_add", {numbers({2}), indices({0}, {}), numbers({3}, 2)}, make_attributes({{"dim", 0}})});
  samples.push_back({"topk", {numbers({3, 5})}, make_attributes({{"k", 2}})});
  samples.push_back(
      {"topk", {with_gaps(numbers({4, 3}))}, make_attributes({{"k", 3}, {"dim", 0}, {"largest", false}})});
  samples.push_back({"topk", {numbers({2, 3, 2})}, make_attributes({{"k", 3}, {"dim", 1}})});
  samples.push_back({"topk", {numbers({2, 3})}, make_attributes({{"k", 0}})});
  for (int64_t dim : {0, -1}) {
    samples.push_back({"sort", {numbers({4, 3})}, make_attributes({{"dim", dim}, {"descending", dim == 0}})});
  }
  samples.push_back({"sort", {with_gaps(numbers({2, 5}))}, {}});
  samples.push_back({"sort", {numbers({0, 3})}, {}});
  samples.push_back({"sort", {numbers({})}, {}});
  samples.push_back({"topk", {numbers({})}, make_attributes({{"k", 1}})});
  for (const char* op : {"min_with_indices", "max_with_indices"}) {
    for (int64_t dim : {0, 1, -1}) samples.push_back({op, {numbers({4, 3, 2})}, make_attributes({{"dim", dim}})});
    samples.push_back({op, {with_gaps(numbers({3, 5}))}, make_attributes({{"dim", 0}, {"keepdim", true}})});
    samples.push_back({op, {numbers({0, 3})}, {}});
    samples.push_back({op, {numbers({})}, {}});
  }
}

void add_softmaxes(Samples& samples) {
  for (const char* op : {"softmax", "log_softmax"}) {
    for (int64_t dim : {0, 1, -1}) samples.push_back({op, {numbers({3, 4, 2})}, make_attributes({{"dim", dim}})});
    samples.push_back({op, {numbers({2, 40})}, {}});
    samples.push_back({op, {numbers({})}, {}});
    samples.push_back({op, {numbers({0, 3})}, {}});
    samples.push_back({op, {with_gaps(numbers({2, 3}))}, {}});
  }
}

void add_losses(Samples& samples) {
  for (const char* reduction : {"mean", "sum", "none"}) {
    Attributes attributes = make_attributes({{"reduction", reduction}});
    Tensor targets = indices({4}, {0, 2, 1, 2});
    samples.push_back({"cross_entropy", {numbers({4, 3}), targets}, attributes});
    samples.push_back({"cross_entropy", {numbers({4, 3}), targets, positive({3})}, attributes});
    samples.push_back({"cross_entropy", {numbers({2, 3, 2}), indices({2, 2}, {0, 2, 1, 2})}, attributes});
    samples.push_back({"cross_entropy", {numbers({3}), indices({}, {1})}, attributes});
    samples.push_back({"cross_entropy",
                       {with_gaps(numbers({4, 3})), targets},
                       make_attributes({{"reduction", reduction}, {"ignore_index", 2}})});
    samples.push_back({"nll_loss", {numbers({4, 3}), targets, positive({3})}, attributes});
    samples.push_back({"nll_loss", {with_gaps(numbers({2, 3, 2})), indices({2, 2}, {0, 2, 1, 2})}, attributes});
    samples.push_back({"huber_loss",
                       {numbers({3, 4}), numbers({4}, 2)},
                       make_attributes({{"reduction", reduction}, {"delta", 0.7}})});
    samples.push_back({"kl_div", {numbers({3, 4}), positive({4}, 2)}, attributes});
    samples.push_back({"kl_div",
                       {with_gaps(numbers({2, 3})), numbers({2, 3}, 2)},
                       make_attributes({{"reduction", reduction}, {"log_target", true}})});
    for (const char* op : {"mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits"}) {
      samples.push_back({op, {numbers({3, 4}), numbers({3, 4}, 2)}, attributes});
      samples.push_back({op, {numbers({3, 4}), numbers({4}, 2)}, attributes});
      samples.push_back({op, {numbers({}), numbers({}, 2)}, attributes});
    }
  }
}

Attributes window(const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
  return make_attributes({{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}});
}

void add_images(Samples& samples) {
  Tensor x = numbers({2, 4, 5, 6});
  Tensor bias = numbers({6}, 3);
  samples.push_back({"conv2d", {x, numbers({6, 4, 3, 3}, 2), bias}, {}});
  samples.push_back({"conv2d", {x, numbers({6, 4, 3, 3}, 2), Tensor()}, window({2, 2}, {1, 1}, {1, 1}, 1)});
  samples.push_back({"conv2d", {x, numbers({6, 4, 3, 3}, 2), bias}, window({1, 2}, {2, 1}, {2, 1}, 1)});
  samples.push_back({"conv2d", {x, numbers({6, 2, 3, 2}, 2), bias}, window({1, 1}, {1, 0}, {1, 1}, 2)});
  samples.push_back({"conv2d", {x, numbers({6, 4, 1, 1}, 2), bias}, {}});
  samples.push_back({"conv2d", {with_gaps(x), with_gaps(numbers({6, 4, 1, 1}, 2))}, window({2, 3}, {0, 0}, {1, 1}, 1)});
  samples.push_back({"conv2d", {numbers({0, 4, 5, 6}), numbers({6, 4, 3, 3}, 2), bias}, {}});
  for (bool counts : {false, true}) {
    samples.push_back({"avg_pool2d",
                       {with_gaps(x)},
                       make_attributes({{"kernel", Dims{3, 2}},
                                        {"stride", Dims{1, 2}},
                                        {"padding", Dims{1, 1}},
                                        {"count_include_pad", counts}})});
  }
  samples.push_back({"avg_pool2d", {x}, make_attributes({{"kernel", Dims{2, 3}}})});
  samples.push_back({"avg_pool2d", {numbers({0, 4, 5, 6})}, make_attributes({{"kernel", Dims{2, 2}}})});
  for (const Dims& size : {Dims{2, 3}, Dims{3, 4}, Dims{1, 1}, Dims{7, 6}}) {
    samples.push_back(
        {"adaptive_avg_pool2d", {size[0] == 3 ? with_gaps(x) : x}, make_attributes({{"output_size", size}})});
  }
  samples.push_back({"adaptive_avg_pool2d", {numbers({0, 4, 5, 6})}, make_attributes({{"output_size", Dims{2, 2}}})});
  samples.push_back({"max_pool2d", {x}, make_attributes({{"kernel", Dims{2, 2}}})});
  samples.push_back({"max_pool2d",
                     {with_gaps(x)},
                     make_attributes({{"kernel", Dims{3, 2}}, {"stride", Dims{1, 2}}, {"padding", Dims{1, 1}}})});
}

void add_more_images(Samples& samples) {
  const Tensor rows = numbers({2, 4, 7});
  const auto line = [](int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
    return window(Dims{stride}, Dims{padding}, Dims{dilation}, groups);
  };
  samples.push_back({"conv1d", {rows, numbers({6, 4, 3}, 2), numbers({6}, 3)}, {}});
  samples.push_back({"conv1d", {with_gaps(rows), numbers({6, 2, 3}, 2), Tensor()}, line(2, 3, 2, 2)});
  samples.push_back({"conv1d", {rows, with_gaps(numbers({6, 4, 1}, 2))}, line(3, 0, 1, 1)});
  samples.push_back({"conv1d", {numbers({0, 4, 7}), numbers({6, 4, 3}, 2), numbers({6}, 3)}, {}});
  const Tensor x = numbers({2, 4, 3, 2});
  Attributes transposed = window({2, 3}, {1, 0}, {2, 1}, 2);
  transposed.insert(transposed.begin() + 2, make_attributes({{"output_padding", Dims{1, 2}}})[0]);
  samples.push_back({"conv_transpose2d", {x, numbers({4, 3, 3, 2}, 2), numbers({3}, 3)}, {}});
  samples.push_back({"conv_transpose2d", {with_gaps(x), numbers({4, 3, 2, 3}, 2), Tensor()}, transposed});
  samples.push_back({"conv_transpose2d", {x, numbers({4, 2, 1, 1}, 2)}, window({2, 1}, {0, 0}, {1, 1}, 1)});
  samples.push_back({"conv_transpose2d", {numbers({0, 4, 3, 2}), numbers({4, 3, 3, 2}, 2), numbers({3}, 3)}, {}});
  for (const Dims& size : {Dims{5, 4}, Dims{1, 1}, Dims{2, 3}}) {
    const Tensor images = size[0] == 2 ? with_gaps(x) : x;
    samples.push_back({"interpolate", {images}, make_attributes({{"size", size}})});
    for (const bool corners : {false, true}) {
      samples.push_back({"interpolate",
                         {images},
                         make_attributes({{"size", size}, {"mode", "bilinear"}, {"align_corners", corners}})});
    }
  }
  samples.push_back({"interpolate", {numbers({0, 4, 3, 2})}, make_attributes({{"size", Dims{2, 2}}})});
}

void add_repeats(Samples& samples) {
  for (const Dims& repeats : {Dims{2, 3}, Dims{1, 1}, Dims{3, 1, 2}, Dims{2, 0}, Dims{2, 1, 3, 2}}) {
    samples.push_back({"repeat", {numbers({2, 3})}, make_attributes({{"repeats", repeats}})});
  }
  samples.push_back({"repeat", {with_gaps(numbers({3, 2}))}, make_attributes({{"repeats", Dims{1, 2}}})});
  samples.push_back({"repeat", {numbers({})}, make_attributes({{"repeats", Dims{2}}})});
  samples.push_back({"repeat", {numbers({})}, make_attributes({{"repeats", Dims{}}})});
  samples.push_back({"repeat", {numbers({0, 3})}, make_attributes({{"repeats", Dims{2, 2}}})});
}

}  // namespace

std::vector<Sample> gradient_samples() {
  Samples samples;
  add_elementwise(samples);
  add_reduction(samples, "sum", true);
  add_reduction(samples, "mean", false);
  add_reduction(samples, "max", false);
  add_reduction(samples, "amin", false);
  add_reduction(samples, "logsumexp", false);
  add_reduction(samples, "var", false);
  add_reduction(samples, "std", false);
  add_reduction(samples, "norm", true);
  add_norms(samples);
  add_more_norms(samples);
  add_attention(samples);
  add_products(samples);
  add_shapes(samples);
  add_more_shapes(samples);
  add_choices(samples);
  add_sums_at_indices(samples);
  add_softmaxes(samples);
  add_losses(samples);
  add_images(samples);
  add_more_images(samples);
  add_repeats(samples);
  for (double p : {0.0, 0.3, 1.0}) add_unary(samples, "dropout", numbers, make_attributes({{"p", p}, {"seed", 7}}));
  samples.push_back({"dropout", {numbers({3, 5, 2})}, make_attributes({{"seed", -1}})});
  return samples;
}

}  // namespace distag::testing
