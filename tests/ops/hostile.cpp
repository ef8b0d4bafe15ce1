#include "ops/hostile.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ops/attributes.h"
#include "ops/views.h"

namespace distag::testing {
namespace {

Dims reversed(const Dims& dims) {
  Dims result = dims;
  std::reverse(result.begin(), result.end());
  return result;
}

// The same elements, the first dim of which is the one that lies without gaps.
Tensor column_major(const Tensor& x) {
  Tensor turned = x.view(reversed(x.shape()), reversed(x.strides()), x.offset()).clone();
  return turned.view(x.shape(), reversed(turned.strides()), 0);
}

// With gaps between the elements of its last dim.
Tensor stepped(const Tensor& x) {
  if (x.rank() == 0) return x.clone();
  Dims shape = x.shape();
  shape[shape.size() - 1] *= 2;
  Tensor wide = ops::zero_tensor(x.dtype(), shape);
  Tensor part = ops::sliced(wide, x.rank() - 1, x.count() > 0 ? 1 : 0, x.shape().back(), 2);
  ops::write_part(wide, part, x);
  return part;
}

Tensor repeating(const Tensor& x, size_t first_kept) {
  Tensor copy = x.clone();
  Dims strides = copy.strides();
  for (size_t i = 0; i < std::min(first_kept, strides.size()); ++i) strides[i] = 0;
  return copy.view(copy.shape(), strides, 0);
}

}  // namespace

Tensor in_layout(const Tensor& x, Layout layout) {
  switch (layout) {
    case Layout::kRowMajor:
      return x.clone();
    case Layout::kStepped:
      return stepped(x);
    case Layout::kTransposed:
      return column_major(x);
    case Layout::kRowsRepeat:
      return repeating(x, 1);
    case Layout::kAllRepeat:
      return repeating(x, kMaxRank);
  }
  return x;
}

// Either beyond what any address space holds, or so small that a test run does not notice.
int64_t HostileArguments::integer() {
  constexpr int64_t kInteresting[] = {
      INT64_MIN, INT64_MIN + 1, -(int64_t{1} << 40), int64_t{1} << 47, int64_t{1} << 62, INT64_MAX - 1, INT64_MAX};
  return below(8) == 0 ? kInteresting[below(std::size(kInteresting))] : static_cast<int64_t>(below(9)) - 3;
}

double HostileArguments::number() {
  constexpr double kInteresting[] = {0.0,     -0.0,   0.5,  1e300,  -1e300,   -INFINITY,         NAN, INFINITY, 0x1p63,
                                     -0x1p63, 9.2e18, 4e18, 5e-324, -0x1p-80, 9007199254740993.0};
  return below(2) == 0 ? kInteresting[below(std::size(kInteresting))] : static_cast<double>(below(9)) - 3;
}

Dims HostileArguments::dims() {
  Dims result;
  const bool is_pair = below(2) == 0;
  for (uint64_t i = is_pair ? 2 : below(5); i > 0; --i) {
    result.push_back(is_pair ? static_cast<int64_t>(below(4)) : integer());
  }
  return result;
}

Dims HostileArguments::shape() {
  Dims result;
  const bool is_deep = below(20) == 0;
  for (uint64_t i = is_deep ? kMaxRank : below(2) == 0 ? 4 : below(5); i > 0; --i) {
    result.push_back(static_cast<int64_t>(is_deep ? (below(64) + 24) / 25 : below(6)));
  }
  return result;
}

// Like the first input in most of its dims, since strangers seldom fit each other.
Dims HostileArguments::shape_like(const Dims& first) {
  Dims result = first;
  if (!result.empty() && below(2) == 0) {
    int64_t* gone = result.begin() + below(result.size());
    std::copy(gone + 1, result.end(), gone);
    result.pop_back();
  }
  if (!result.empty() && below(2) == 0) result[below(result.size())] = static_cast<int64_t>(below(4));
  return result;
}

// As indices into the first input, or classes for its rows, would have.
Dims HostileArguments::index_shape(const Dims& first) {
  if (below(2) == 0) return Dims{static_cast<int64_t>(below(5))};
  Dims result;
  for (size_t i = 0; i < first.size(); ++i) {
    if (i != std::min<size_t>(1, first.size() - 1)) result.push_back(first[i]);
  }
  return result;
}

Tensor HostileArguments::tensor(const Dims& shape, Dtype dtype) {
  Tensor x = Tensor::empty(dtype, shape);
  std::byte* bytes = x.mutable_data();
  const size_t item_size = dtype_size(dtype);
  // Floats of all kinds; of most integers only the lowest byte, so that they may be indices.
  const bool is_wild = dtype == Dtype::kInt64 && below(8) == 0;
  for (size_t i = 0; i < x.byte_size(); ++i) {
    const bool is_low = i % item_size == 0;
    const uint64_t low = dtype == Dtype::kBool ? below(2) : below(4);
    bytes[i] = static_cast<std::byte>(is_floating(dtype) ? below(256) : is_low ? low : 0);
  }
  if (is_wild && x.count() > 0) {
    constexpr int64_t kWild[] = {INT64_MIN, INT64_MAX, -1, int64_t{1} << 62, 0};
    for (int64_t i = 0; i < x.count(); ++i) x.mutable_data_as<int64_t>()[i] = kWild[below(std::size(kWild))];
  }
  return below(2) == 0 ? x : in_layout(x, kLayouts[below(std::size(kLayouts))]);
}

Value HostileArguments::attribute(ops::AttributeKind kind) {
  static constexpr const char* kTexts[] = {"mean", "sum", "none", "float32", "float64", "int64", "bool", "", "x"};
  if (below(15) == 0) return Value();
  switch (kind) {
    case ops::AttributeKind::kInt64:
      return Value(integer());
    case ops::AttributeKind::kFloat64:
      return below(4) == 0 ? Value(integer()) : Value(number());
    case ops::AttributeKind::kBool:
      return Value(below(2) == 0);
    case ops::AttributeKind::kText:
      return Value::text(kTexts[below(std::size(kTexts))]);
    case ops::AttributeKind::kInt64List:
      return ops::Setting("", dims()).value();
    case ops::AttributeKind::kDtype:
      return below(2) == 0 ? Value(integer()) : Value::text(kTexts[below(std::size(kTexts))]);
  }
  return Value();
}

Tensors HostileArguments::inputs(const ops::Signature& signature) {
  const uint64_t most = std::min<uint64_t>(signature.max_inputs(), 4);
  const uint64_t count = signature.min_inputs() + below(most - signature.min_inputs() + 1);
  const auto common = static_cast<Dtype>(1 + below(2));
  Tensors inputs;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t kind = below(6);
    const Dtype dtype = below(2) == 0 ? common : static_cast<Dtype>(1 + below(4));
    if (kind == 2 && i > 0 && inputs[0] && inputs[0].rank() > 0) {
      inputs.push_back(tensor(index_shape(inputs[0].shape()), Dtype::kInt64));
    } else if (kind == 0) {
      inputs.push_back(below(3) == 0 ? Tensor() : tensor(shape(), dtype));
    } else if (i == 0 || !inputs[0]) {
      inputs.push_back(tensor(shape(), dtype));
    } else {
      inputs.push_back(kind == 1 ? inputs[0] : tensor(shape_like(inputs[0].shape()), dtype));
    }
  }
  return inputs;
}

ops::Attributes HostileArguments::attributes(const ops::Signature& signature) {
  ops::Attributes attributes;
  for (size_t i = 0; i < signature.attribute_count(); ++i) {
    const auto& declared = signature.attribute(i);
    if (!declared.is_required && below(3) == 0) continue;
    attributes.emplace_back(declared.name, attribute(declared.kind));
  }
  return attributes;
}

}  // namespace distag::testing
