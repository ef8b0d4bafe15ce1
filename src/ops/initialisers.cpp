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

class RandomInitialiser final : public Initialiser {
 public:
  RandomInitialiser(Dtype dtype, const Dims& shape, const RandomElements& elements)
      : dtype_(dtype), shape_(shape), elements_(elements) {}

  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    std::byte* next = out;
    for_each_run(extent, shape_, offset, [this, &next](uint64_t first, int64_t count) {
      fill_random(elements_.distribution, dtype_, next, count, elements_.seed, first);
      next += static_cast<size_t>(count) * dtype_size(dtype_);
    });
    scale_and_shift(out, element_count(extent));
  }

 private:
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
  op.forward({}, attributes, nullptr);  // throws for an invalid dtype
  return std::make_shared<RandomInitialiser>(dtype, shape, elements);
}

}  // namespace distag::ops
