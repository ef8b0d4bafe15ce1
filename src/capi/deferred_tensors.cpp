// Tensors without memory: how the host says what their elements will be.

#include "base/host_callback.h"
#include "base/host_code.h"
#include "base/lead.h"
#include "capi/op_call.h"
#include "capi/struct_check.h"
#include "ops/initialisers.h"
#include "spmd/trace.h"

using namespace distag;
using namespace distag::capi;

namespace {

// Host code that writes the elements.
class SourceInitialiser final : public Initialiser {
 public:
  SourceInitialiser(distag_box_source source, HostData data, Dtype dtype)
      : source_(source), data_(std::move(data)), dtype_(dtype) {}

  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    const ReserveScope scope(nullptr);
    const NoLead no_lead;
    const size_t size = static_cast<size_t>(element_count(extent)) * dtype_size(dtype_);
    distag_error err = DISTAG_ERROR_INIT;
    const distag_status status =
        call_host([&] { return source_(data_.get(), offset.data(), extent.data(), offset.size(), out, size, &err); });
    if (status != DISTAG_OK) {
      throw callback_error(status, err,
                           fmt::format("the source of a deferred tensor, asked for the box {} at {}", to_string(extent),
                                       to_string(offset)));
    }
    check_bools(out, size, dtype_);
  }

 private:
  const distag_box_source source_;
  const HostData data_;
  const Dtype dtype_;
};

// Convention 5: what does not belong to the initialiser is refused, not ignored.
void check_fields(const distag_deferred_options& options) {
  const bool is_random = options.init == DISTAG_INIT_RAND || options.init == DISTAG_INIT_RANDN;
  const bool is_source = options.init == DISTAG_INIT_SOURCE;
  const bool is_shape = options.init == DISTAG_INIT_SHAPE;
  if (is_source && options.source == nullptr) refuse_null("source");
  if (!is_source && options.source != nullptr) {
    refuse(Status::kInvalidArgument, "source is given, but init is not DISTAG_INIT_SOURCE");
  }
  if (!is_random && (options.seed != 0 || options.scale != 0)) {
    refuse(Status::kInvalidArgument, "seed and scale are of DISTAG_INIT_RAND and _RANDN: leave them 0 here");
  }
  if ((is_source || is_shape) && options.shift != 0) {
    refuse(Status::kInvalidArgument, "shift is not of {}: leave it 0 here",
           is_shape ? "DISTAG_INIT_SHAPE" : "DISTAG_INIT_SOURCE");
  }
}

std::shared_ptr<const Initialiser> make_initialiser(const distag_deferred_options& options, HostData data, Dtype dtype,
                                                    const Dims& shape) {
  if (options.init == DISTAG_INIT_SOURCE) {
    return std::make_shared<SourceInitialiser>(options.source, std::move(data), dtype);
  }
  if (options.init != DISTAG_INIT_RAND && options.init != DISTAG_INIT_RANDN) {
    return ops::full_initialiser(dtype, options.shift);
  }
  ops::RandomElements elements;
  if (options.init == DISTAG_INIT_RANDN) elements.distribution = ops::Distribution::kNormal;
  elements.seed = options.seed;
  if (options.scale != 0) elements.scale = options.scale;
  elements.shift = options.shift;
  return ops::random_initialiser(dtype, shape, elements);
}

// The members of options that say what to destroy: also if the options are refused.
GivenData data_of(const distag_deferred_options* options) {
  if (!is_readable(options, sizeof(distag_deferred_options))) return GivenData(nullptr, nullptr);
  return GivenData(options->user_data, options->destroy);
}

}  // namespace

distag_status distag_tensor_create_deferred(distag_dtype dtype, const int64_t* shape, size_t ndim,
                                            const distag_deferred_options* options, distag_tensor** out_tensor,
                                            distag_error* err) {
  GivenData data = data_of(options);
  clear(out_tensor);
  return guard(__func__, err, [&] {
    need_pointer(out_tensor, "out_tensor");
    const distag_deferred_options given = read_struct(options, "distag_deferred_options");
    need_enumerator(given.init, DISTAG_INIT_SHAPE, "init", "DISTAG_INIT_FULL, _RAND, _RANDN, _SOURCE, _SHAPE");
    check_fields(given);
    const Dims dims = need_dims(shape, ndim, "shape");
    const auto type = static_cast<Dtype>(dtype);
    element_count(dims, checked_dtype_size(type));
    if (given.init == DISTAG_INIT_SHAPE) {
      *out_tensor = make_tensor(spmd::make_shape_only(type, dims));
      return;
    }
    *out_tensor = make_tensor(Tensor::deferred(type, dims, make_initialiser(given, std::move(data), type, dims)));
  });
}
