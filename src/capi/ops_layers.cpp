// Ops with a weight and a bias, and pooling.

#include "capi/op_call.h"

using namespace distag;
using namespace distag::capi;

namespace {

// Rows and columns.
Dims need_pair(const int64_t* pair, const char* name) {
  need_pointer(pair, name);
  return need_dims(pair, 2, name);
}

// Inputs of an op whose bias may be left out.
Tensors need_weighted(distag_tensor* x, distag_tensor* weight, distag_tensor* bias) {
  check_present({x, weight}, {"x", "weight"});
  Tensors inputs{need(x, "x").tensor(), need(weight, "weight").tensor()};
  if (distag_tensor* live = need_or_null(bias, "bias")) inputs.push_back(live->tensor());
  return inputs;
}

}  // namespace

distag_status distag_linear(distag_tensor* x, distag_tensor* weight, distag_tensor* bias, distag_tensor** out_y,
                            distag_error* err) {
  clear(out_y);
  return guard(__func__, err, [=] {
    const Tensors inputs = need_weighted(x, weight, bias);
    need_pointer(out_y, "out_y");
    apply_op(ops::kLinear, inputs, {}, out_y);
  });
}

distag_status distag_conv2d(distag_tensor* x, distag_tensor* weight, distag_tensor* bias, const int64_t* stride,
                            const int64_t* padding, distag_tensor** out_y, distag_error* err) {
  clear(out_y);
  return guard(__func__, err, [=] {
    const Tensors inputs = need_weighted(x, weight, bias);
    need_pointer(out_y, "out_y");
    const ops::Attributes attributes =
        ops::make_attributes({{"stride", need_pair(stride, "stride")}, {"padding", need_pair(padding, "padding")}});
    apply_op(ops::kConv2d, inputs, attributes, out_y);
  });
}

distag_status distag_max_pool2d(distag_tensor* x, const int64_t* kernel, const int64_t* stride, const int64_t* padding,
                                distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kMaxPool2d, x, out_y, err, [=] {
    return ops::make_attributes({{"kernel", need_pair(kernel, "kernel")},
                                 {"stride", need_pair(stride, "stride")},
                                 {"padding", need_pair(padding, "padding")}});
  });
}
