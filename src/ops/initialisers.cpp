#include "ops/initialisers.h"

#include <algorithm>

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"

namespace distag::ops {
namespace {

class FullInitialiser final : public Initialiser {
 public:
  explicit FullInitialiser(Tensor element) : element_(std::move(element)) {}
  void fill(const Dims&, const Dims& extent, std::byte* out) const override {
    dispatch(element_.dtype(), [&]<typename T>(T) {
      std::fill_n(reinterpret_cast<T*>(out), element_count(extent), *element_.data_as<T>());
    });
  }

 private:
  const Tensor element_;  // held
};

// Elements of a box that lie one after the other in the whole, and how many such runs there are.
struct Runs {
  size_t outer_dims;  // of the box, that a run has one index of
  int64_t length;
};

Runs runs_of(const Dims& whole, const Dims& extent) {
  Runs runs{extent.size(), 1};
  while (runs.outer_dims > 0) {
    const size_t dim = --runs.outer_dims;
    runs.length *= extent[dim];
    if (extent[dim] != whole[dim]) break;
  }
  return runs;
}

class RandomInitialiser final : public Initialiser {
 public:
  RandomInitialiser(Dtype dtype, const Dims& shape, const RandomElements& elements)
      : dtype_(dtype), shape_(shape), strides_(row_major_strides(shape)), elements_(elements) {}

  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    const Runs runs = runs_of(shape_, extent);
    const int64_t count = element_count(extent);
    Dims at = offset;
    std::byte* next = out;
    for (int64_t done = 0; done < count; done += runs.length) {
      fill_random(elements_.distribution, dtype_, next, runs.length, elements_.seed, index_of(at));
      next += static_cast<size_t>(runs.length) * dtype_size(dtype_);
      step(at, offset, extent, runs.outer_dims);
    }
    scale_and_shift(out, count);
  }

 private:
  uint64_t index_of(const Dims& at) const {
    uint64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) index += static_cast<uint64_t>(at[d]) * static_cast<uint64_t>(strides_[d]);
    return index;
  }

  // The next index of the first `dims` dims of the box, row-major.
  static void step(Dims& at, const Dims& offset, const Dims& extent, size_t dims) {
    for (size_t d = dims; d-- > 0;) {
      if (++at[d] < offset[d] + extent[d]) return;
      at[d] = offset[d];
    }
  }

  void scale_and_shift(std::byte* out, int64_t count) const {
    dispatch_floating("rand", dtype_, [&]<typename T>(T) {
      auto* data = reinterpret_cast<T*>(out);
      const T scale = static_cast<T>(elements_.scale);
      const T shift = static_cast<T>(elements_.shift);
      if (elements_.scale != 1) {
        for (int64_t i = 0; i < count; ++i) data[i] *= scale;
      }
      if (elements_.shift != 0) {
        for (int64_t i = 0; i < count; ++i) data[i] += shift;
      }
    });
  }

  const Dtype dtype_;
  const Dims shape_;
  const Dims strides_;
  const RandomElements elements_;
};

}  // namespace

std::shared_ptr<const Initialiser> full_initialiser(Dtype dtype, double value) {
  const Attributes attributes = make_attributes({{"value", value}, {"shape", Dims()}, {"dtype", dtype}});
  return std::make_shared<FullInitialiser>(kFull.forward({}, attributes, nullptr).front().hold());
}

std::shared_ptr<const Initialiser> random_initialiser(Dtype dtype, const Dims& shape, const RandomElements& elements) {
  const Attributes attributes = make_attributes({{"shape", Dims()}, {"dtype", dtype}});
  const Op& op = elements.distribution == Distribution::kUniform ? kRand : kRandn;
  op.forward({}, attributes, nullptr);  // throws for the dtype
  return std::make_shared<RandomInitialiser>(dtype, shape, elements);
}

}  // namespace distag::ops
