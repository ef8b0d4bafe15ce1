#include "ops/op.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/builtins.h"

namespace distag::ops {
namespace {

#define DISTAG_OP_ADDRESS(op) &op,
constexpr const Op* kBuiltins[] = {DISTAG_BUILTIN_OPS(DISTAG_OP_ADDRESS)};
#undef DISTAG_OP_ADDRESS

// The kinds of values that an attribute accepts, and their description.
struct KindRule {
  const char* text;
  ValueKind kind;
  ValueKind other;
};

const KindRule& rule_of(AttributeKind kind) {
  static constexpr KindRule kRules[] = {
      {"an int64", ValueKind::kInt64, ValueKind::kInt64},
      {"a float64", ValueKind::kFloat64, ValueKind::kInt64},
      {"a bool", ValueKind::kBool, ValueKind::kBool},
      {"a text", ValueKind::kText, ValueKind::kText},
      {"a list of at most 16 int64", ValueKind::kList, ValueKind::kList},
      {"a dtype (its name or number)", ValueKind::kText, ValueKind::kInt64},
  };
  return kRules[static_cast<size_t>(kind)];
}

bool fits(const Value& value, const KindRule& rule) {
  if (value.kind() != rule.kind && value.kind() != rule.other) return false;
  if (value.kind() != ValueKind::kList) return true;
  const auto is_number = [](const Value& item) { return item.kind() == ValueKind::kInt64; };
  return value.as_list().size() <= kMaxRank && std::all_of(value.as_list().begin(), value.as_list().end(), is_number);
}

void check_inputs(const Op& op, Inputs inputs) {
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

void check_arguments(const Op& op, Inputs inputs, const Attributes& attributes) {
  check_inputs(op, inputs);
  for (const auto& [name, value] : attributes) {
    const Signature::Attribute* declared = find_declared(op.arguments, name);
    if (declared == nullptr) {
      fail(Status::kNotFound, "{}: no attribute \"{}\"; signature {}", op.name, name, op.signature);
    }
    if (value.is_null() && !declared->is_required) continue;
    const KindRule& rule = rule_of(declared->kind);
    if (!fits(value, rule)) {
      fail(Status::kInvalidArgument, "{}: attribute \"{}\" must be {}, not {}", op.name, name, rule.text,
           kind_name(value.kind()));
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
