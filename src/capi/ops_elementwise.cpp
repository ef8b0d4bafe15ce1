// Ops of one or two tensors that take no settings, or one number.

#include "capi/op_call.h"

using namespace distag;
using namespace distag::capi;

distag_status distag_add(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kAdd, a, b, "a", "b", out_y, err);
}

distag_status distag_sub(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kSub, a, b, "a", "b", out_y, err);
}

distag_status distag_mul(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kMul, a, b, "a", "b", out_y, err);
}

distag_status distag_div(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kDiv, a, b, "a", "b", out_y, err);
}

distag_status distag_maximum(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kMaximum, a, b, "a", "b", out_y, err);
}

distag_status distag_eq(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kEq, a, b, "a", "b", out_y, err);
}

distag_status distag_matmul(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kMatmul, a, b, "a", "b", out_y, err);
}

distag_status distag_cross_entropy(distag_tensor* logits, distag_tensor* targets, distag_tensor** out_y,
                                   distag_error* err) {
  return binary_op(__func__, ops::kCrossEntropy, logits, targets, "logits", "targets", out_y, err);
}

distag_status distag_mse_loss(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  return binary_op(__func__, ops::kMseLoss, a, b, "a", "b", out_y, err);
}

distag_status distag_add_scalar(distag_tensor* x, double s, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kAddScalar, x, out_y, err, [s] { return ops::make_attributes({{"value", s}}); });
}

distag_status distag_mul_scalar(distag_tensor* x, double s, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kMulScalar, x, out_y, err, [s] { return ops::make_attributes({{"value", s}}); });
}

distag_status distag_neg(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kNeg, x, out_y, err);
}

distag_status distag_exp(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kExp, x, out_y, err);
}

distag_status distag_log(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kLog, x, out_y, err);
}

distag_status distag_sqrt(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kSqrt, x, out_y, err);
}

distag_status distag_tanh(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kTanh, x, out_y, err);
}

distag_status distag_sigmoid(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kSigmoid, x, out_y, err);
}

distag_status distag_relu(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kRelu, x, out_y, err);
}

distag_status distag_clone(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kClone, x, out_y, err);
}

distag_status distag_detach(distag_tensor* x, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kDetach, x, out_y, err);
}
