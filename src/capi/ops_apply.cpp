// Any op by name, and what the built-in ones are.

#include <algorithm>

#include "capi/op_call.h"
#include "capi/sharding_op.h"
#include "capi/struct_check.h"

using namespace distag;
using namespace distag::capi;

namespace {

const ops::Op& need_op(const char* name) {
  const std::string text = need_text(name, "op");
  const ops::Op* op = ops::find_op(text);
  if (op == nullptr) {
    refuse(Status::kNotFound, "there is no op \"{}\"; distag_get_op tells all there are", text);
  }
  return *op;
}

// NULL only where the signature says so. An argument that is no input of the op is left to its own check.
Tensors need_inputs(const ops::Op* op, distag_tensor* const* inputs, size_t count) {
  check_copied_array(inputs, count, "inputs");
  Tensors tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const bool may_be_null = op != nullptr && op->arguments.is_optional(i);
    const bool is_left_out = inputs[i] == nullptr && may_be_null;
    tensors.push_back(is_left_out ? Tensor() : need_item(inputs, i, "inputs").tensor());
  }
  return tensors;
}

ops::Attributes need_attributes(distag_value* attributes) {
  const distag_value* live = need_or_null(attributes, "attributes");
  if (live == nullptr || live->get().is_null()) return {};
  if (live->get().kind() != ValueKind::kMap) {
    refuse(Status::kInvalidArgument, "attributes are {}, not a map", kind_name(live->get().kind()));
  }
  return live->get().as_map();
}

}  // namespace

namespace distag::capi {

void give_tensors(Tensors tensors, distag_tensor** out, size_t count, const std::string& op) {
  if (tensors.size() != count) {
    refuse(Status::kInvalidArgument, "{} gives {} outputs, not {}", op, tensors.size(), count);
  }
  std::vector<Ref<distag_tensor>> made;
  made.reserve(count);
  for (Tensor& tensor : tensors) made.push_back(Ref<distag_tensor>::take(make_tensor(std::move(tensor))));
  for (size_t i = 0; i < count; ++i) out[i] = made[i].give();
}

}  // namespace distag::capi

distag_status distag_apply(const char* op, distag_tensor* const* inputs, size_t input_count, distag_value* attributes,
                           uint32_t flags, distag_tensor** out_outputs, size_t output_count, distag_error* err) {
  if (out_outputs != nullptr) std::fill_n(out_outputs, output_count, nullptr);
  return guard(__func__, err, [=] {
    const bool is_sharding = op != nullptr && is_sharding_op(op);
    const Tensors tensors = need_inputs(op == nullptr ? nullptr : ops::find_op(op), inputs, input_count);
    const ops::Op* found = is_sharding ? nullptr : &need_op(op);
    const ops::Attributes settings = need_attributes(attributes);
    check_array(out_outputs, output_count, "out_outputs");
    need_known_bits(flags, DISTAG_APPLY_NO_GRAD, "flags");
    const bool record = (flags & DISTAG_APPLY_NO_GRAD) == 0;
    try {
      give_tensors(is_sharding ? Tensors{apply_sharding_op(tensors, settings, record)}
                               : autograd::apply(*found, tensors, settings, record),
                   out_outputs, output_count, op);
    } catch (Error& error) {
      if (!error.message().starts_with(std::string(op) + ": ")) error.add_context(op);
      throw;
    }
  });
}

size_t distag_get_op_count(void) { return ops::builtins().size(); }

distag_status distag_get_op(size_t index, distag_op_info* out_op, distag_error* err) {
  return guard(__func__, err, [=] {
    check_filled_struct(out_op, sizeof(distag_op_info), "distag_op_info", offsetof(distag_op_info, summary));
    distag_op_info info{};
    fill_struct(out_op, info);
    const auto all = ops::builtins();
    if (index >= all.size()) refuse(Status::kNotFound, "there is no op {}, only {} in all", index, all.size());
    const ops::Op& op = *all[index];
    info.min_inputs = op.arguments.min_inputs();
    info.max_inputs = op.arguments.max_inputs();
    info.attribute_count = static_cast<uint32_t>(op.arguments.attribute_count());
    info.name = op.name;
    info.attribute_names = op.arguments.attribute_names();
    info.signature = op.signature;
    info.summary = op.summary;
    fill_struct(out_op, info);
  });
}
