// Ops over dims, and ops that rearrange elements.

#include "capi/op_call.h"

using namespace distag;
using namespace distag::capi;

namespace distag::capi {

Dims need_dims(const int64_t* items, size_t count, const char* name) {
  check_array(items, count, name);
  return count == 0 ? Dims() : Dims(std::span<const int64_t>(items, count));
}

}  // namespace distag::capi

namespace {

distag_status reduce(const char* function, const ops::Op& op, distag_tensor* x, const int64_t* dims, size_t dim_count,
                     int32_t keepdim, distag_tensor** out_y, distag_error* err) {
  return unary_op(function, op, x, out_y, err, [=] {
    return ops::make_attributes(
        {{"dims", need_dims(dims, dim_count, "dims")}, {"keepdim", need_flag(keepdim, "keepdim")}});
  });
}

distag_status along(const char* function, const ops::Op& op, distag_tensor* x, int64_t dim, distag_tensor** out_y,
                    distag_error* err) {
  return unary_op(function, op, x, out_y, err, [dim] { return ops::make_attributes({{"dim", dim}}); });
}

}  // namespace

distag_status distag_sum(distag_tensor* x, const int64_t* dims, size_t dim_count, int32_t keepdim,
                         distag_tensor** out_y, distag_error* err) {
  return reduce(__func__, ops::kSum, x, dims, dim_count, keepdim, out_y, err);
}

distag_status distag_mean(distag_tensor* x, const int64_t* dims, size_t dim_count, int32_t keepdim,
                          distag_tensor** out_y, distag_error* err) {
  return reduce(__func__, ops::kMean, x, dims, dim_count, keepdim, out_y, err);
}

distag_status distag_max(distag_tensor* x, const int64_t* dims, size_t dim_count, int32_t keepdim,
                         distag_tensor** out_y, distag_error* err) {
  return reduce(__func__, ops::kMax, x, dims, dim_count, keepdim, out_y, err);
}

distag_status distag_argmax(distag_tensor* x, int64_t dim, distag_tensor** out_y, distag_error* err) {
  return along(__func__, ops::kArgmax, x, dim, out_y, err);
}

distag_status distag_softmax(distag_tensor* x, int64_t dim, distag_tensor** out_y, distag_error* err) {
  return along(__func__, ops::kSoftmax, x, dim, out_y, err);
}

distag_status distag_log_softmax(distag_tensor* x, int64_t dim, distag_tensor** out_y, distag_error* err) {
  return along(__func__, ops::kLogSoftmax, x, dim, out_y, err);
}

distag_status distag_transpose(distag_tensor* x, int64_t dim0, int64_t dim1, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kTranspose, x, out_y, err, [=] {
    return ops::make_attributes({{"dim0", dim0}, {"dim1", dim1}});
  });
}

distag_status distag_reshape(distag_tensor* x, const int64_t* shape, size_t ndim, distag_tensor** out_y,
                             distag_error* err) {
  return unary_op(__func__, ops::kReshape, x, out_y, err, [=] {
    return ops::make_attributes({{"shape", need_dims(shape, ndim, "shape")}});
  });
}

distag_status distag_slice(distag_tensor* x, int64_t dim, int64_t start, int64_t stop, int64_t step,
                           distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kSlice, x, out_y, err, [=] {
    return ops::make_attributes({{"dim", dim}, {"start", start}, {"stop", stop}, {"step", step}});
  });
}

distag_status distag_concat(distag_tensor* const* xs, size_t x_count, int64_t dim, distag_tensor** out_y,
                            distag_error* err) {
  clear(out_y);
  return guard(__func__, err, [=] {
    const Tensors inputs = need_tensors(xs, x_count, "xs");
    need_pointer(out_y, "out_y");
    apply_op(ops::kConcat, inputs, ops::make_attributes({{"dim", dim}}), out_y);
  });
}

distag_status distag_cast(distag_tensor* x, distag_dtype dtype, distag_tensor** out_y, distag_error* err) {
  return unary_op(__func__, ops::kCast, x, out_y, err, [dtype] {
    return ops::make_attributes({{"dtype", static_cast<Dtype>(dtype)}});
  });
}
