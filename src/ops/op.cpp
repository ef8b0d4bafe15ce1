#include "ops/op.h"

#include <bit>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/builtins.h"

namespace distag::ops {
namespace {

#define DISTAG_OP_ADDRESS(op) &op,
constexpr const Op* kBuiltins[] = {DISTAG_BUILTIN_OPS(DISTAG_OP_ADDRESS)};
#undef DISTAG_OP_ADDRESS

const char* kind_text(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt64:
      return "an int64";
    case AttributeKind::kFloat64:
      return "a float64";
    case AttributeKind::kBool:
      return "a bool";
    case AttributeKind::kText:
      return "a text";
    case AttributeKind::kInt64List:
      return "a list of at most 16 int64";
    case AttributeKind::kDtype:
      return "a dtype (its name or number)";
  }
  return "unknown";
}

bool is_dims(const Value& value) {
  if (value.kind() != ValueKind::kList || value.as_list().size() > kMaxRank) return false;
  for (const Value& item : value.as_list()) {
    if (item.kind() != ValueKind::kInt64) return false;
  }
  return true;
}

bool fits(const Value& value, AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt64:
      return value.kind() == ValueKind::kInt64;
    case AttributeKind::kFloat64:
      return value.kind() == ValueKind::kFloat64 || value.kind() == ValueKind::kInt64;
    case AttributeKind::kBool:
      return value.kind() == ValueKind::kBool;
    case AttributeKind::kText:
      return value.kind() == ValueKind::kText;
    case AttributeKind::kInt64List:
      return is_dims(value);
    case AttributeKind::kDtype:
      return value.kind() == ValueKind::kText || value.kind() == ValueKind::kInt64;
  }
  return false;
}

void check_inputs(const Op& op, std::span<const Tensor> inputs) {
  const Signature& signature = op.arguments;
  if (inputs.size() < signature.min_inputs() || inputs.size() > signature.max_inputs()) {
    fail(Status::kInvalidArgument, "{}: {} inputs do not fit its signature {}", op.name, inputs.size(), op.signature);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] && !signature.is_optional(i)) {
      fail(Status::kInvalidArgument, "{}: input {} is missing; signature {}", op.name, i, op.signature);
    }
  }
}

const Signature::Attribute* find_declared(const Signature& signature, std::string_view name) {
  for (size_t i = 0; i < signature.attribute_count(); ++i) {
    if (name == signature.attribute(i).name) return &signature.attribute(i);
  }
  return nullptr;
}

void check_required(const Op& op, const Attributes& attributes) {
  for (size_t i = 0; i < op.arguments.attribute_count(); ++i) {
    const Signature::Attribute& declared = op.arguments.attribute(i);
    if (declared.is_required && find_attribute(attributes, declared.name) == nullptr) {
      fail(Status::kInvalidArgument, "{}: attribute \"{}\" is missing; signature {}", op.name, declared.name,
           op.signature);
    }
  }
}

}  // namespace

std::span<const Op* const> builtins() { return kBuiltins; }

const Op* find_op(std::string_view name) {
  for (const Op* op : kBuiltins) {
    if (name == op->name) return op;
  }
  return nullptr;
}

void check_arguments(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes) {
  check_inputs(op, inputs);
  for (const auto& [name, value] : attributes) {
    const Signature::Attribute* declared = find_declared(op.arguments, name);
    if (declared == nullptr) {
      fail(Status::kNotFound, "{}: no attribute \"{}\"; signature {}", op.name, name, op.signature);
    }
    if (value.is_null() && !declared->is_required) continue;
    if (!fits(value, declared->kind)) {
      fail(Status::kInvalidArgument, "{}: attribute \"{}\" must be {}, not a {}", op.name, name,
           kind_text(declared->kind), kind_name(value.kind()));
    }
  }
  check_required(op, attributes);
}

void check_needed(const Op& op, uint64_t needed) {
  const uint64_t refused = needed & op.constant;
  if (refused == 0) return;
  fail(Status::kInvalidArgument, "{}: input {} requires grad, but has no gradient: detach it; signature {}", op.name,
       std::countr_zero(refused), op.signature);
}

}  // namespace distag::ops
