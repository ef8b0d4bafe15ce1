#include "spmd/op_key.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace distag::spmd {
namespace {

void add_number(std::string& key, uint64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  key.append(bytes, sizeof number);
}

void add_value(std::string& key, const Value& value) {
  key.push_back(static_cast<char>(value.kind()));
  switch (value.kind()) {
    case ValueKind::kBool:
      key.push_back(value.as_bool() ? '1' : '0');
      break;
    case ValueKind::kInt64:
      add_number(key, static_cast<uint64_t>(value.as_int64()));
      break;
    case ValueKind::kFloat64:
      add_number(key, std::bit_cast<uint64_t>(value.as_float64()));
      break;
    case ValueKind::kText:
      add_number(key, value.as_text().size());
      key += value.as_text();
      break;
    case ValueKind::kList:
      add_number(key, value.as_list().size());
      for (const Value& item : value.as_list()) add_value(key, item);
      break;
    default:  // no attribute is of another kind
      break;
  }
}

void add_attributes(std::string& key, const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    key.push_back('\0');
    key += name;
    key.push_back('=');
    add_value(key, value);
  }
}

template <typename Number>
std::optional<Value> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(Value(number)) : std::nullopt;
}

// "[1,1]"
std::optional<Value> list_in(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
  Value::List items;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto item = number_in<int64_t>(text.substr(0, comma));
    if (!item) return std::nullopt;
    items.push_back(*item);
    text = text.substr(std::min(comma + 1, text.size()));
  }
  return Value::list(std::move(items));
}

// A default value as a signature gives it. Empty: the signature says it in words, or names another attribute.
std::optional<Value> value_in(std::string_view text, ops::AttributeKind kind) {
  switch (kind) {
    case ops::AttributeKind::kInt64:
      return number_in<int64_t>(text);
    case ops::AttributeKind::kFloat64:
      return number_in<double>(text);
    case ops::AttributeKind::kBool:
      return text == "true" || text == "false" ? std::optional(Value(text == "true")) : std::nullopt;
    case ops::AttributeKind::kText:
      return Value::text(std::string(text));
    case ops::AttributeKind::kInt64List:
      return list_in(text);
    case ops::AttributeKind::kDtype:
      return std::nullopt;
  }
  return std::nullopt;
}

// The text behind " NAME = " in the signature.
std::string_view default_text(std::string_view signature, std::string_view name) {
  const std::string before = " " + std::string(name) + " = ";
  const size_t at = signature.find(before);
  if (at == std::string_view::npos) return {};
  const std::string_view text = signature.substr(at + before.size());
  return text.substr(0, std::min(text.find(", "), text.find(')')));
}

// A single form for values that a caller may give in several.
Value in_one_form(const Attributes& attributes, const ops::Signature::Attribute& declared, const Value& value) {
  if (declared.kind == ops::AttributeKind::kFloat64) return Value(value.as_float64());
  if (declared.kind != ops::AttributeKind::kDtype) return value;
  return Value(static_cast<int64_t>(get_dtype(attributes, declared.name, Dtype::kFloat32)));
}

}  // namespace

void add_spec(std::string& key, const layout::Spec& spec) {
  key.push_back(static_cast<char>(spec.rank()));
  for (size_t d = 0; d < spec.rank(); ++d) {
    key.push_back(static_cast<char>(spec.dim(d).size()));
    for (uint8_t axis : spec.dim(d)) key.push_back(static_cast<char>(axis));
  }
  add_number(key, spec.partial());
}

std::string key_of(const ops::Op& op, const Attributes& attributes) {
  std::string key = op.name;
  for (size_t i = 0; i < op.arguments.attribute_count(); ++i) {
    const ops::Signature::Attribute& declared = op.arguments.attribute(i);
    const std::string_view text = default_text(op.signature, declared.name);
    const Value* value = find_attribute(attributes, declared.name);
    if (value == nullptr) value = find_attribute(attributes, text);
    key.push_back('\0');
    if (value != nullptr) {
      add_value(key, in_one_form(attributes, declared, *value));
    } else if (const auto usual = value_in(text, declared.kind)) {
      add_value(key, *usual);
    } else {
      key += text;
    }
  }
  return key;
}

std::string key_of(const layout::OpCall& call) {
  std::string key;
  key.reserve(256);
  key += call.op;
  add_attributes(key, call.attributes);
  for (const layout::Operand& operand : call.inputs) {
    key.push_back(operand.is_defined ? (operand.is_parameter ? 'p' : 'x') : '-');
    if (!operand.is_defined) continue;
    key.push_back(static_cast<char>(operand.dtype));
    for (int64_t size : operand.shape) add_number(key, static_cast<uint64_t>(size));
    add_spec(key, operand.spec);
  }
  return key;
}

}  // namespace distag::spmd
