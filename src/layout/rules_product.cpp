// Rules of ops with a factor that two inputs share, and of layers: products, images, tables, norms.
#include <algorithm>

#include "layout/rule_maker.h"
#include "tensor/limits.h"

namespace distag::layout {
namespace {

// The dims of a matmul from the right: rows and columns, then batches. A 1-d side has no batches and one dim less.
struct MatmulSides {
  size_t left;
  size_t right;
  bool left_is_row;
  bool right_is_column;
  size_t left_batches() const { return left_is_row ? 0 : left - 2; }
  size_t right_batches() const { return right_is_column ? 0 : right - 2; }
};

// Broadcasts the batch dims of both sides; returns their shape and appends a factor for each.
Dims place_batches(RuleMaker& maker, const MatmulSides& sides, std::vector<int>& factors) {
  const size_t count = std::max(sides.left_batches(), sides.right_batches());
  Dims shape;
  shape.resize(count, 1);
  for (size_t side = 0; side < 2; ++side) {
    const size_t own = side == 0 ? sides.left_batches() : sides.right_batches();
    for (size_t d = 0; d < own; ++d) {
      int64_t& size = shape[count - own + d];
      const int64_t other = maker.shape(side)[d];
      if (size == 1) size = other;
      if (other != 1 && other != size) {
        maker.refuse("batches of {} and {} do not broadcast", to_string(maker.shape(0)), to_string(maker.shape(1)));
      }
    }
  }
  for (size_t d = 0; d < count; ++d) factors.push_back(maker.factor());
  for (size_t side = 0; side < 2; ++side) {
    const size_t own = side == 0 ? sides.left_batches() : sides.right_batches();
    for (size_t d = 0; d < own; ++d) {
      const size_t place = count - own + d;
      if (maker.shape(side)[d] == shape[place]) maker.place_input(side, d, factors[place]);
    }
  }
  return shape;
}

// Places a bias, which one member adds if the product is partial.
void place_bias(RuleMaker& maker, int factor) {
  if (!maker.has_input(2)) return;
  maker.place_input(2, 0, factor);
  maker.rule.added_once = 2;
}

}  // namespace

void matmul_rule(RuleMaker& maker) {
  const Dims& a = maker.shape(0);
  const Dims& b = maker.shape(1);
  if (a.empty() || b.empty())
    maker.refuse("both sides need at least one dim, not {} and {}", to_string(a), to_string(b));
  const MatmulSides sides{a.size(), b.size(), a.size() == 1, b.size() == 1};
  const size_t inner = sides.right_is_column ? 0 : b.size() - 2;
  if (a.back() != b[inner]) {
    maker.refuse("inner sizes {} and {} differ ({} x {})", a.back(), b[inner], to_string(a), to_string(b));
  }
  std::vector<int> factors;
  Dims shape = place_batches(maker, sides, factors);
  if (!sides.left_is_row) {
    shape.push_back(a[a.size() - 2]);
    factors.push_back(maker.factor());
    maker.place_input(0, a.size() - 2, factors.back());
  }
  if (!sides.right_is_column) {
    shape.push_back(b.back());
    factors.push_back(maker.factor());
    maker.place_input(1, b.size() - 1, factors.back());
  }
  const int sum = maker.sum_factor();
  maker.place_input(0, a.size() - 1, sum);
  maker.place_input(1, inner, sum);
  maker.add_output(shape);
  for (size_t d = 0; d < shape.size(); ++d) maker.place_output(d, factors[d]);
}

void linear_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const Dims& weight = maker.shape(1);
  const bool fits = !x.empty() && weight.size() == 2 && x.back() == weight[1] &&
                    (!maker.has_input(2) || maker.shape(2) == Dims{weight[0]});
  if (!fits) maker.refuse("x {} and weight {} do not fit: [.., in], [out, in] do", to_string(x), to_string(weight));
  Dims shape = x;
  shape[shape.size() - 1] = weight[0];
  maker.add_output(shape);
  for (size_t d = 0; d + 1 < x.size(); ++d) {
    const int row = maker.factor();
    maker.place_input(0, d, row);
    maker.place_output(d, row);
  }
  const int sum = maker.sum_factor();
  maker.place_input(0, x.size() - 1, sum);
  maker.place_input(1, 1, sum);
  const int column = maker.factor();
  maker.place_input(1, 0, column);
  maker.place_output(x.size() - 1, column);
  place_bias(maker, column);
}

namespace {

int64_t window_size(const RuleMaker& maker, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                    int64_t dilation) {
  const int64_t free = maker.joined_size(size, 2 * padding) - dilation * (kernel - 1) - 1;
  if (stride < 1 || free < 0) maker.refuse("a window of {} does not fit a side of {}", kernel, size);
  return free / stride + 1;
}

// Images pass and, without groups, so do channels. `in_dim` and `out_dim` are the weight's dims for the channels of x
// and of the output.
void place_convolution(RuleMaker& maker, int64_t groups, size_t in_dim, size_t out_dim) {
  const int image = maker.factor();
  maker.place_input(0, 0, image);
  maker.place_output(0, image);
  if (groups > 1) return;
  const int in = maker.sum_factor();
  const int out = maker.factor();
  maker.place_input(0, 1, in);
  maker.place_input(1, in_dim, in);
  maker.place_input(1, out_dim, out);
  maker.place_output(1, out);
  place_bias(maker, out);
}

Dims repeated(size_t count, int64_t value) {
  Dims dims;
  dims.resize(count, value);
  return dims;
}

// The settings of a convolution. Each list has `sides` numbers.
struct Convolution {
  Dims stride, padding, dilation;
  int64_t groups;

  Convolution(const Attributes& attributes, size_t sides)
      : stride(get_dims(attributes, "stride", repeated(sides, 1))),
        padding(get_dims(attributes, "padding", repeated(sides, 0))),
        dilation(get_dims(attributes, "dilation", repeated(sides, 1))),
        groups(get_int(attributes, "groups", 1)) {}

  // Whether the numbers are valid and no size overflows. x also has a dim of images.
  bool has(const RuleMaker& maker, size_t sides) const {
    return stride.size() == sides && padding.size() == sides && dilation.size() == sides && are_in(stride, 1) &&
           are_in(padding, 0) && are_in(dilation, 1) && groups >= 1 && groups <= kMostOfSetting &&
           are_in(std::span<const int64_t>(maker.shape(0)).subspan(1), 0) && are_in(maker.shape(1), 0);
  }
  static bool are_in(std::span<const int64_t> numbers, int64_t least) {
    return std::all_of(numbers.begin(), numbers.end(),
                       [least](int64_t n) { return n >= least && n <= kMostOfSetting; });
  }
  int64_t side(const RuleMaker& maker, size_t d) const {
    return window_size(maker, maker.shape(0)[2 + d], maker.shape(1)[2 + d], stride[d], padding[d], dilation[d]);
  }
};

// The rule of conv1d and conv2d.
void convolution_rule(RuleMaker& maker, size_t sides) {
  const Convolution settings(maker.call().attributes, sides);
  const int64_t groups = settings.groups;
  const Dims& x = maker.shape(0);
  const Dims& weight = maker.shape(1);
  const bool fits = x.size() == 2 + sides && weight.size() == 2 + sides && settings.has(maker, sides) &&
                    weight[1] * groups == x[1] && weight[0] % groups == 0 &&
                    (!maker.has_input(2) || maker.shape(2) == Dims{weight[0]});
  if (!fits) maker.refuse("x {} and weight {} in {} groups do not fit", to_string(x), to_string(weight), groups);
  Dims shape{x[0], weight[0]};
  for (size_t d = 0; d < sides; ++d) shape.push_back(settings.side(maker, d));
  maker.add_output(shape);
  place_convolution(maker, groups, 1, 0);
}

void check_images(const RuleMaker& maker) {
  if (maker.shape(0).size() != 4) maker.refuse("x {}: [n, channels, h, w] is wanted", to_string(maker.shape(0)));
}

}  // namespace

void conv2d_rule(RuleMaker& maker) {
  check_images(maker);
  convolution_rule(maker, 2);
}

void conv1d_rule(RuleMaker& maker) { convolution_rule(maker, 1); }

// The weight has the summed channels first.
void conv_transpose2d_rule(RuleMaker& maker) {
  check_images(maker);
  const Convolution settings(maker.call().attributes, 2);
  const int64_t groups = settings.groups;
  const Dims& x = maker.shape(0);
  const Dims& weight = maker.shape(1);
  const Dims more = get_dims(maker.call().attributes, "output_padding", Dims{0, 0});
  const bool fits = weight.size() == 4 && settings.has(maker, 2) && more.size() == 2 && Convolution::are_in(more, 0) &&
                    weight[0] == x[1] && x[1] % groups == 0 &&
                    (!maker.has_input(2) || maker.shape(2) == Dims{weight[1] * groups});
  if (!fits) maker.refuse("x {} and weight {} in {} groups do not fit", to_string(x), to_string(weight), groups);
  Dims shape{x[0], weight[1] * groups, 0, 0};
  for (size_t d = 0; d < 2; ++d) {
    if (more[d] >= settings.stride[d]) {
      maker.refuse("output_padding {} must be below the stride {}", to_string(more), to_string(settings.stride));
    }
    shape[2 + d] = (x[2 + d] - 1) * settings.stride[d] - 2 * settings.padding[d] +
                   settings.dilation[d] * (weight[2 + d] - 1) + more[d] + 1;
    if (x[2 + d] < 1 || shape[2 + d] < 1) maker.refuse("an image of {} has no elements", to_string(shape));
  }
  maker.add_output(shape);
  place_convolution(maker, groups, 0, 1);
}

void interpolate_rule(RuleMaker& maker) {
  check_images(maker);
  const Dims size = get_dims(maker.call().attributes, "size");
  if (size.size() != 2 || size[0] < 1 || size[1] < 1) {
    maker.refuse("size {} must be two numbers above 0", to_string(size));
  }
  maker.add_output({maker.shape(0)[0], maker.shape(0)[1], size[0], size[1]});
  maker.rule.is_linear = true;
  for (size_t d = 0; d < 2; ++d) {
    const int factor = maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
}

void pool2d_rule(RuleMaker& maker) {
  check_images(maker);
  const Attributes& attributes = maker.call().attributes;
  const Dims& x = maker.shape(0);
  const Dims kernel = get_dims(attributes, "kernel");
  const Dims stride = get_dims(attributes, "stride", kernel);
  const Dims padding = get_dims(attributes, "padding", Dims{0, 0});
  const auto is_pair = [](const Dims& pair, int64_t least) {
    return pair.size() == 2 && Convolution::are_in(pair, least);
  };
  if (!is_pair(kernel, 1) || !is_pair(stride, 1) || !is_pair(padding, 0)) {
    maker.refuse("kernel {}, stride {} and padding {} are pairs up to {}, padding from 0 and the others from 1",
                 to_string(kernel), to_string(stride), to_string(padding), kMostOfSetting);
  }
  if (padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2) {
    maker.refuse("padding {} is more than half of the kernel {}", to_string(padding), to_string(kernel));
  }
  const bool chooses = maker.call().op == "max_pool2d" && x[0] > 0 && x[1] > 0;
  if (chooses && (x[2] == 0 || x[3] == 0)) maker.refuse("{} has no elements to choose from", to_string(x));
  maker.add_output({x[0], x[1], window_size(maker, x[2], kernel[0], stride[0], padding[0], 1),
                    window_size(maker, x[3], kernel[1], stride[1], padding[1], 1)});
  for (size_t d = 0; d < 2; ++d) {
    const int factor = maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
}

void adaptive_pool2d_rule(RuleMaker& maker) {
  check_images(maker);
  const Dims output = get_dims(maker.call().attributes, "output_size");
  if (output.size() != 2 || output[0] < 1 || output[1] < 1) {
    maker.refuse("output_size {} must be two numbers above 0", to_string(output));
  }
  for (size_t d = 0; d < 2; ++d) {
    const int64_t most = std::max(kMostAdaptiveOutputs, maker.shape(0)[2 + d]);
    if (output[d] > most) maker.refuse("output_size {} is above {} along dim {}", to_string(output), most, 2 + d);
  }
  if (maker.shape(0)[2] == 0 || maker.shape(0)[3] == 0) {
    maker.refuse("{} has no elements to average", to_string(maker.shape(0)));
  }
  maker.add_output({maker.shape(0)[0], maker.shape(0)[1], output[0], output[1]});
  for (size_t d = 0; d < 2; ++d) {
    const int factor = maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
}

// All dims of x pass except the last ones; those are merged, and are cut alike in weight and bias.
void layer_norm_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const int64_t whole = get_int(maker.call().attributes, "normalized_dims", 1);
  if (whole < 1 || whole > static_cast<int64_t>(x.size())) {
    maker.refuse("normalized_dims {} of a tensor of {} dims", whole, x.size());
  }
  const Dims tail(std::span<const int64_t>(x).last(static_cast<size_t>(whole)));
  for (size_t i = 1; i < 3; ++i) {
    if (!maker.has_input(i) || maker.shape(i) == tail) continue;
    maker.refuse("weight and bias {} do not fit the dims {}", to_string(maker.shape(i)), to_string(tail));
  }
  maker.add_output(x);
  maker.rule.merged_numbers = 3;  // count, mean and sum of squares
  for (size_t d = 0; d < x.size(); ++d) {
    const bool is_normalized = d + tail.size() >= x.size();
    const int factor = is_normalized ? maker.merged_factor() : maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
    for (size_t i = 1; is_normalized && i < 3; ++i) {
      if (maker.has_input(i)) maker.place_input(i, d + tail.size() - x.size(), factor);
    }
  }
}

// Members return the rows of the table that they hold, and zeros for others, so the results add up.
void embedding_rule(RuleMaker& maker) {
  const Dims& index = maker.shape(0);
  const Dims& table = maker.shape(1);
  if (table.size() != 2) maker.refuse("weight {}: [rows, columns] is wanted", to_string(table));
  Dims shape = index;
  shape.push_back(table[1]);
  maker.add_output(shape);
  for (size_t d = 0; d < index.size(); ++d) {
    const int factor = maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
  const int column = maker.factor();
  maker.place_input(1, 1, column);
  maker.place_output(index.size(), column);
  maker.place_input(1, 0, maker.sum_factor());
  maker.rule.form = LocalForm::kTableRows;
}

// Cuts rows as in an embedding. Bools do not add up, so their dim is whole.
void cut_rows_of(RuleMaker& maker, size_t dim) {
  if (maker.input(0).dtype == Dtype::kBool) return;
  maker.place_input(0, dim, maker.sum_factor());
  maker.rule.form = LocalForm::kTableRows;
  maker.rule.table = 0;
  maker.rule.table_dim = dim;
}

// The index passes along the dim in which it selects; along other dims both inputs pass if their sizes agree.
void gather_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const Dims& index = maker.shape(1);
  const size_t dim = maker.dim_attribute("dim", 0, x.size());
  if (index.size() != x.size()) {
    maker.refuse("index {} and x {} differ in their number of dims", to_string(index), to_string(x));
  }
  maker.add_output(index);
  for (size_t d = 0; d < x.size(); ++d) {
    if (d != dim && index[d] != x[d]) continue;
    const int factor = maker.factor();
    maker.place_input(1, d, factor);
    maker.place_output(d, factor);
    if (d != dim) maker.place_input(0, d, factor);
  }
  cut_rows_of(maker, dim);
}

void index_select_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const size_t dim = maker.dim_attribute("dim", 0, x.size());
  if (maker.shape(1).size() != 1) maker.refuse("index {}: one dim is wanted", to_string(maker.shape(1)));
  Dims shape = x;
  shape[dim] = maker.shape(1)[0];
  maker.add_output(shape);
  for (size_t d = 0; d < x.size(); ++d) {
    const int factor = maker.factor();
    if (d == dim) maker.place_input(1, 0, factor);
    if (d != dim) maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
  cut_rows_of(maker, dim);
}

// The dim along which it adds is whole in x, index and source.
void index_add_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const size_t dim = maker.dim_attribute("dim", 0, x.size());
  Dims wanted = x;
  if (maker.shape(1).size() == 1) wanted[dim] = maker.shape(1)[0];
  if (maker.shape(1).size() != 1 || maker.shape(2) != wanted) {
    maker.refuse("index {} and source {} do not fit {}", to_string(maker.shape(1)), to_string(maker.shape(2)),
                 to_string(x));
  }
  maker.add_output(x);
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == dim) continue;
    const int factor = maker.factor();
    maker.place_input(0, d, factor);
    maker.place_input(2, d, factor);
    maker.place_output(d, factor);
  }
}

// Dims pass if x, index and source agree.
void scatter_add_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const Dims& index = maker.shape(1);
  const Dims& source = maker.shape(2);
  const size_t dim = maker.dim_attribute("dim", 0, x.size());
  bool fits = index.size() == x.size() && source.size() == x.size();
  for (size_t d = 0; d < x.size() && fits; ++d) fits = index[d] <= source[d] && (d == dim || index[d] <= x[d]);
  if (!fits) {
    maker.refuse("index {} and source {} do not fit {}", to_string(index), to_string(source), to_string(x));
  }
  maker.add_output(x);
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == dim || index[d] != x[d] || source[d] != x[d]) continue;
    const int factor = maker.factor();
    for (size_t i = 0; i < 3; ++i) maker.place_input(i, d, factor);
    maker.place_output(d, factor);
  }
}

void one_hot_rule(RuleMaker& maker) {
  Dims shape = maker.shape(0);
  shape.push_back(get_int(maker.call().attributes, "num_classes", 0));
  maker.add_output(shape);
  for (size_t d = 0; d + 1 < shape.size(); ++d) {
    const int factor = maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
}

namespace {

// Values and indices have the same spec; the dim from which elements are chosen is whole.
void place_chosen(RuleMaker& maker, const Dims& shape, size_t dim) {
  maker.add_output(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d == dim) continue;
    const int factor = maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
  maker.add_output(shape);
  maker.rule.outputs[1] = maker.rule.outputs[0];
}

}  // namespace

void topk_rule(RuleMaker& maker) {
  Dims shape = maker.shape(0);
  if (shape.empty()) return place_chosen(maker, shape, 0);
  const size_t dim = maker.dim_attribute("dim", -1, shape.size());
  const int64_t k = get_int(maker.call().attributes, "k", 0);
  if (k < 0 || k > shape[dim]) maker.refuse("k {} is not from 0 to {}", k, shape[dim]);
  shape[dim] = k;
  place_chosen(maker, shape, dim);
}

void sort_rule(RuleMaker& maker) {
  const Dims& shape = maker.shape(0);
  place_chosen(maker, shape, shape.empty() ? 0 : maker.dim_attribute("dim", -1, shape.size()));
}

namespace {

// All dims pass except the one along which the op works.
void along_dim_rule(RuleMaker& maker, bool merges) {
  const Dims& x = maker.shape(0);
  maker.add_output(x);
  if (x.empty()) return;
  const size_t dim = maker.dim_attribute("dim", -1, x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == dim && !merges) continue;
    const int factor = d == dim ? maker.merged_factor() : maker.factor();
    maker.place_input(0, d, factor);
    maker.place_output(d, factor);
  }
}

}  // namespace

// Merges the largest element and the sum of exponentials.
void softmax_rule(RuleMaker& maker) {
  along_dim_rule(maker, true);
  maker.rule.merged_numbers = 2;
}

// Merges the largest element, the sum of the exponentials that are 1, and the sum of all others.
void log_softmax_rule(RuleMaker& maker) {
  along_dim_rule(maker, true);
  maker.rule.merged_numbers = 3;
}

void cumsum_rule(RuleMaker& maker) { along_dim_rule(maker, false); }

}  // namespace distag::layout
