#include "spmd/op_key.h"

#include <bit>
#include <cstring>

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

void add_spec(std::string& key, const layout::Spec& spec) {
  key.push_back(static_cast<char>(spec.rank()));
  for (size_t d = 0; d < spec.rank(); ++d) {
    key.push_back(static_cast<char>(spec.dim(d).size()));
    for (uint8_t axis : spec.dim(d)) key.push_back(static_cast<char>(axis));
  }
  add_number(key, spec.partial());
}

}  // namespace

void add_attributes(std::string& key, const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    key.push_back('\0');
    key += name;
    key.push_back('=');
    add_value(key, value);
  }
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
