#pragma once

#include <initializer_list>
#include <string>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/op.h"
#include "support/expect.h"
#include "support/tensors.h"

namespace distag::testing {

// The only output of an op, as an application without history gives it.
inline Tensor run(const char* name, const Tensors& inputs, std::initializer_list<ops::Setting> settings = {}) {
  const ops::Op* op = ops::find_op(name);
  if (op == nullptr) throw Error(Status::kNotFound, name);
  ops::Attributes attributes = ops::make_attributes(settings);
  ops::check_arguments(*op, inputs, attributes);
  return op->forward(inputs, attributes, nullptr).at(0);
}

inline Tensor floats(const Dims& shape, const std::vector<float>& values) { return tensor_of(shape, values); }
inline Tensor doubles(const Dims& shape, const std::vector<double>& values) { return tensor_of(shape, values); }
inline Tensor integers(const Dims& shape, const std::vector<int64_t>& values) { return tensor_of(shape, values); }
inline Tensor flags(const Dims& shape, const std::vector<uint8_t>& values) { return tensor_of(shape, values); }

inline std::vector<float> floats_of(const Tensor& x) { return values_of<float>(x); }
inline std::vector<int64_t> integers_of(const Tensor& x) { return values_of<int64_t>(x); }
inline std::vector<uint8_t> flags_of(const Tensor& x) { return values_of<uint8_t>(x); }

}  // namespace distag::testing
