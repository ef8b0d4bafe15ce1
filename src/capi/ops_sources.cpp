// Ops that make a tensor without inputs.

#include "capi/op_call.h"

using namespace distag;
using namespace distag::capi;

namespace {

Dtype as_dtype(distag_dtype dtype) { return static_cast<Dtype>(dtype); }

distag_status fill(const char* function, const ops::Op& op, distag_dtype dtype, const int64_t* shape, size_t ndim,
                   distag_tensor** out_y, distag_error* err) {
  return source_op(function, op, out_y, err, [=] {
    return ops::make_attributes({{"shape", need_dims(shape, ndim, "shape")}, {"dtype", as_dtype(dtype)}});
  });
}

distag_status random(const char* function, const ops::Op& op, uint64_t seed, distag_dtype dtype, const int64_t* shape,
                     size_t ndim, distag_tensor** out_y, distag_error* err) {
  return source_op(function, op, out_y, err, [=] {
    // The attribute has the same 64 bits.
    return ops::make_attributes(
        {{"seed", static_cast<int64_t>(seed)}, {"shape", need_dims(shape, ndim, "shape")}, {"dtype", as_dtype(dtype)}});
  });
}

}  // namespace

distag_status distag_zeros(distag_dtype dtype, const int64_t* shape, size_t ndim, distag_tensor** out_y,
                           distag_error* err) {
  return fill(__func__, ops::kZeros, dtype, shape, ndim, out_y, err);
}

distag_status distag_ones(distag_dtype dtype, const int64_t* shape, size_t ndim, distag_tensor** out_y,
                          distag_error* err) {
  return fill(__func__, ops::kOnes, dtype, shape, ndim, out_y, err);
}

distag_status distag_full(double value, distag_dtype dtype, const int64_t* shape, size_t ndim, distag_tensor** out_y,
                          distag_error* err) {
  return source_op(__func__, ops::kFull, out_y, err, [=] {
    return ops::make_attributes(
        {{"value", value}, {"shape", need_dims(shape, ndim, "shape")}, {"dtype", as_dtype(dtype)}});
  });
}

distag_status distag_arange(double start, double stop, double step, distag_dtype dtype, distag_tensor** out_y,
                            distag_error* err) {
  return source_op(__func__, ops::kArange, out_y, err, [=] {
    return ops::make_attributes({{"start", start}, {"stop", stop}, {"step", step}, {"dtype", as_dtype(dtype)}});
  });
}

distag_status distag_rand(uint64_t seed, distag_dtype dtype, const int64_t* shape, size_t ndim, distag_tensor** out_y,
                          distag_error* err) {
  return random(__func__, ops::kRand, seed, dtype, shape, ndim, out_y, err);
}

distag_status distag_randn(uint64_t seed, distag_dtype dtype, const int64_t* shape, size_t ndim, distag_tensor** out_y,
                           distag_error* err) {
  return random(__func__, ops::kRandn, seed, dtype, shape, ndim, out_y, err);
}
