#include "spmd/result_dtypes.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/whole_bounds.h"

namespace distag::spmd {
namespace {

struct DtypeCall {
  const ops::Op& op;
  std::span<const Tensor> inputs;
  const ops::Attributes& attributes;

  Dtype dtype(size_t i) const { return inputs[i].dtype(); }
  bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
  [[noreturn]] void refuse(Dtype given) const {
    fail(Status::kUnsupported, "{}: dtype {} is not supported: cast it first", op.name, dtype_name(given));
  }
  void need(size_t i, Dtype wanted) const {
    if (!has(i) || dtype(i) == wanted) return;
    fail(Status::kInvalidArgument, "{}: input {} is {}, not of dtype {}", op.name, i, describe(inputs[i]),
         dtype_name(wanted));
  }
  Dtype floating(Dtype given) const { return is_floating(given) ? given : (refuse(given), given); }
  Dtype number(Dtype given) const { return given != Dtype::kBool ? given : (refuse(given), given); }
};

Dtype as_float(Dtype dtype) { return is_floating(dtype) ? dtype : Dtype::kFloat32; }
Dtype as_number(Dtype dtype) { return dtype == Dtype::kBool ? Dtype::kInt64 : dtype; }

Dtype kept(const DtypeCall& call) { return call.dtype(0); }
Dtype floats(const DtypeCall& call) { return as_float(call.dtype(0)); }
Dtype numbers(const DtypeCall& call) { return as_number(call.dtype(0)); }
Dtype truths(const DtypeCall&) { return Dtype::kBool; }
Dtype places(const DtypeCall&) { return Dtype::kInt64; }
Dtype only_floats(const DtypeCall& call) { return call.floating(call.dtype(0)); }
Dtype only_numbers(const DtypeCall& call) { return call.number(call.dtype(0)); }

// Numbers, and one in the attributes that must fit their dtype.
Dtype with_scalar(const DtypeCall& call) {
  ops::check_fits(call.op.name, only_numbers(call), get_float(call.attributes, "value", 0));
  return kept(call);
}
Dtype padded(const DtypeCall& call) {
  ops::check_fits(call.op.name, kept(call), get_float(call.attributes, "value", 0));
  return kept(call);
}
Dtype clamped(const DtypeCall& call) {
  if (!is_floating(call.dtype(0))) ops::get_whole_bounds(call.op.name, call.attributes);
  return numbers(call);
}
Dtype masked(const DtypeCall& call) {
  call.need(1, Dtype::kBool);
  return padded(call);
}

Dtype pair(const DtypeCall& call) { return ops::result_dtype(call.inputs[0], call.inputs[1]); }
Dtype pair_of_numbers(const DtypeCall& call) { return call.number(pair(call)); }
Dtype pair_as_numbers(const DtypeCall& call) { return as_number(pair(call)); }
Dtype pair_as_floats(const DtypeCall& call) { return as_float(pair(call)); }
Dtype pair_of_floats(const DtypeCall& call) { return call.floating(pair(call)); }
Dtype chosen(const DtypeCall& call) {
  call.need(0, Dtype::kBool);
  return ops::result_dtype(call.inputs[1], call.inputs[2]);
}

Dtype promoted(const DtypeCall& call) {
  Dtype dtype = Dtype::kBool;
  for (const Tensor& input : call.inputs) {
    if (input) dtype = promote(dtype, input.dtype());
  }
  return dtype;
}
Dtype product(const DtypeCall& call) { return call.number(promoted(call)); }
// A bias is cast to the result's dtype.
Dtype convolution(const DtypeCall& call) { return call.floating(promote(call.dtype(0), call.dtype(1))); }

// All inputs must have one floating dtype.
Dtype alike(const DtypeCall& call) {
  for (size_t i = 1; i < call.inputs.size(); ++i) call.need(i, call.dtype(0));
  return only_floats(call);
}
Dtype floats_alike(const DtypeCall& call) {
  only_floats(call);
  return alike(call);
}
Dtype attention(const DtypeCall& call) {
  only_floats(call);
  for (size_t i = 1; i < 3; ++i) call.need(i, call.dtype(0));
  if (call.has(3) && call.dtype(3) != Dtype::kBool) call.need(3, call.dtype(0));
  return kept(call);
}

Dtype class_loss(const DtypeCall& call) {
  call.need(1, Dtype::kInt64);
  return only_floats(call);
}
Dtype of_table(const DtypeCall& call) {
  call.need(0, Dtype::kInt64);
  return call.dtype(1);
}
Dtype of_places(const DtypeCall& call) {
  call.need(1, Dtype::kInt64);
  return kept(call);
}
Dtype added_at_places(const DtypeCall& call) {
  only_numbers(call);
  call.need(1, Dtype::kInt64);
  call.need(2, call.dtype(0));
  return kept(call);
}
Dtype of_classes(const DtypeCall& call) {
  call.need(0, Dtype::kInt64);
  return Dtype::kInt64;
}
Dtype cast(const DtypeCall& call) { return get_dtype(call.attributes, "dtype", Dtype::kFloat32); }

struct Entry {
  std::string_view op;
  Dtype (*give)(const DtypeCall& call);
};

// Ops that are not listed give the dtype of their first input.
constexpr Entry kEntries[] = {
    {"exp", floats},
    {"log", floats},
    {"sqrt", floats},
    {"tanh", floats},
    {"sigmoid", floats},
    {"sin", floats},
    {"cos", floats},
    {"rsqrt", floats},
    {"reciprocal", floats},
    {"clamp", clamped},
    {"silu", floats},
    {"gelu", floats},
    {"elu", floats},
    {"softplus", floats},
    {"erf", floats},
    {"leaky_relu", floats},
    {"softmax", floats},
    {"logsumexp", floats},
    {"log_softmax", floats},
    {"mean", only_floats},
    {"var", only_floats},
    {"std", only_floats},
    {"norm", only_floats},
    {"interpolate", only_floats},
    {"avg_pool2d", only_floats},
    {"adaptive_avg_pool2d", only_floats},
    {"dropout", only_floats},
    {"abs", numbers},
    {"square", numbers},
    {"floor", numbers},
    {"round", numbers},
    {"sign", numbers},
    {"sum", numbers},
    {"cumsum", numbers},
    {"relu", only_numbers},
    {"neg", only_numbers},
    {"max_pool2d", only_numbers},
    {"sort", only_numbers},
    {"topk", only_numbers},
    {"eq", truths},
    {"ne", truths},
    {"gt", truths},
    {"ge", truths},
    {"lt", truths},
    {"le", truths},
    {"logical_and", truths},
    {"logical_or", truths},
    {"logical_not", truths},
    {"any", truths},
    {"all", truths},
    {"add", pair},
    {"mul", pair},
    {"maximum", pair},
    {"minimum", pair},
    {"mse_loss", pair_of_floats},
    {"l1_loss", pair_of_floats},
    {"huber_loss", pair_of_floats},
    {"kl_div", pair_of_floats},
    {"binary_cross_entropy_with_logits", pair_of_floats},
    {"add_scalar", with_scalar},
    {"mul_scalar", with_scalar},
    {"pad", padded},
    {"masked_fill", masked},
    {"argmax", places},
    {"sub", pair_of_numbers},
    {"pow", pair_as_numbers},
    {"div", pair_as_floats},
    {"where", chosen},
    {"concat", promoted},
    {"stack", promoted},
    {"matmul", product},
    {"linear", product},
    {"conv1d", convolution},
    {"conv2d", convolution},
    {"conv_transpose2d", convolution},
    {"layer_norm", alike},
    {"rms_norm", floats_alike},
    {"group_norm", floats_alike},
    {"batch_norm", floats_alike},
    {"scaled_dot_product_attention", attention},
    {"cross_entropy", class_loss},
    {"nll_loss", class_loss},
    {"embedding", of_table},
    {"gather", of_places},
    {"index_select", of_places},
    {"index_add", added_at_places},
    {"scatter_add", added_at_places},
    {"one_hot", of_classes},
    {"cast", cast},
};

bool gives_places(std::string_view op) {
  return op == "sort" || op == "topk" || op == "min_with_indices" || op == "max_with_indices";
}

}  // namespace

std::vector<Dtype> result_dtypes(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                                 size_t count) {
  const DtypeCall call{op, inputs, attributes};
  const auto* const entry =
      std::find_if(std::begin(kEntries), std::end(kEntries), [&op](const Entry& each) { return each.op == op.name; });
  std::vector<Dtype> dtypes(count, entry == std::end(kEntries) ? kept(call) : entry->give(call));
  if (gives_places(op.name)) dtypes.back() = Dtype::kInt64;
  return dtypes;
}

}  // namespace distag::spmd
