#pragma once

#include <vector>

#include "base/random.h"
#include "ops/op.h"

namespace distag::testing {

// How the elements of a tensor lie in memory.
enum class Layout { kRowMajor, kStepped, kTransposed, kRowsRepeat, kAllRepeat };
inline constexpr Layout kLayouts[] = {Layout::kRowMajor, Layout::kStepped, Layout::kTransposed, Layout::kRowsRepeat,
                                      Layout::kAllRepeat};

// A tensor of that layout with the shape and dtype of x. Its values are those of x, but where a layout repeats
// elements (strides of 0) it repeats those of x that come first.
Tensor in_layout(const Tensor& x, Layout layout);

// Arguments for built-in ops as a stranger would send them: shapes that nearly fit, sizes of 0, 1 and odd ones, every
// dtype and layout, settings at the ends of what an int64 and a float64 hold.
class HostileArguments {
 public:
  explicit HostileArguments(uint64_t seed) : random_(seed) {}

  Tensors inputs(const ops::Signature& signature);
  ops::Attributes attributes(const ops::Signature& signature);

 private:
  uint64_t below(uint64_t bound) { return random_.next() % bound; }
  int64_t integer();
  double number();
  Dims dims();
  Dims shape();
  Dims index_shape(const Dims& first);
  Dims shape_like(const Dims& first);
  Tensor tensor(const Dims& shape, Dtype dtype);
  Value attribute(ops::AttributeKind kind);

  SeededRandom random_;
};

}  // namespace distag::testing
