#pragma once

#include <span>
#include <string>
#include <utility>

#include "autograd/autograd.h"
#include "capi/value.h"
#include "ops/attributes.h"
#include "ops/builtins.h"

namespace distag::capi {

// Shared by the C functions of ops: handles in, one new handle out, recorded.

// A list of dims of the caller.
Dims need_dims(const int64_t* items, size_t count, const char* name);

// Gives the outputs of `op` to the caller: exactly `count`, all or none.
void give_tensors(Tensors tensors, distag_tensor** out, size_t count, const std::string& op);

inline void apply_op(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                     distag_tensor** out_y) {
  *out_y = make_tensor(std::move(autograd::apply(op, inputs, attributes).front()));
}

template <typename MakeAttributes>
distag_status unary_op(const char* function, const ops::Op& op, distag_tensor* x, distag_tensor** out_y,
                       distag_error* err, MakeAttributes&& make_attributes) {
  clear(out_y);
  return guard(function, err, [&] {
    const Tensor& input = need(x, "x").tensor();
    need_pointer(out_y, "out_y");
    apply_op(op, {&input, 1}, make_attributes(), out_y);
  });
}

inline distag_status unary_op(const char* function, const ops::Op& op, distag_tensor* x, distag_tensor** out_y,
                              distag_error* err) {
  return unary_op(function, op, x, out_y, err, [] { return ops::Attributes(); });
}

inline distag_status binary_op(const char* function, const ops::Op& op, distag_tensor* a, distag_tensor* b,
                               const char* a_name, const char* b_name, distag_tensor** out_y, distag_error* err) {
  clear(out_y);
  return guard(function, err, [&] {
    check_present({a, b}, {a_name, b_name});
    const Tensor inputs[] = {need(a, a_name).tensor(), need(b, b_name).tensor()};
    need_pointer(out_y, "out_y");
    apply_op(op, inputs, {}, out_y);
  });
}

// An op that makes a tensor without inputs.
template <typename MakeAttributes>
distag_status source_op(const char* function, const ops::Op& op, distag_tensor** out_y, distag_error* err,
                        MakeAttributes&& make_attributes) {
  clear(out_y);
  return guard(function, err, [&] {
    need_pointer(out_y, "out_y");
    apply_op(op, {}, make_attributes(), out_y);
  });
}

}  // namespace distag::capi
