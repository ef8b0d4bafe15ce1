#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace distag::ops {

// The kinds of an attribute: int64, float64 (accepts an int64 too), bool, text, int64[] (a list), dtype (its name or
// its number). Null stands for the default if there is one.
enum class AttributeKind : uint8_t { kInt64, kFloat64, kBool, kText, kInt64List, kDtype };

// The arguments of an op, parsed at compile time from its signature text, which has this form:
// "name(tensor x, tensor? bias, tensor... xs, int64 dim = -1, int64[] dims = []) -> tensor, tensor"
class Signature {
 public:
  static constexpr size_t kMaxInputs = 8;
  static constexpr size_t kMaxAttributes = 8;

  struct Attribute {
    const char* name = nullptr;
    AttributeKind kind = AttributeKind::kInt64;
    bool is_required = false;
  };

  constexpr explicit Signature(const char* text) {
    std::string_view rest(text);
    size_t open = rest.find('(');
    for (size_t k = 0; k < open; ++k) op_name_[k] = rest[k];
    size_t close = rest.find(')');
    std::string_view arguments = rest.substr(open + 1, close - open - 1);
    while (!arguments.empty()) {
      size_t comma = arguments.find(", ");
      add(arguments.substr(0, comma));
      arguments = comma == std::string_view::npos ? std::string_view() : arguments.substr(comma + 2);
    }
  }
  Signature(const Signature&) = delete;  // attribute names point into it
  Signature& operator=(const Signature&) = delete;

  constexpr const char* op_name() const { return op_name_.data(); }
  constexpr uint32_t min_inputs() const { return min_inputs_; }
  constexpr uint32_t max_inputs() const { return max_inputs_; }  // UINT32_MAX: any number
  // Whether input i may be undefined.
  constexpr bool is_optional(size_t i) const { return i < kMaxInputs && optional_[i]; }
  constexpr size_t attribute_count() const { return attribute_count_; }
  constexpr const Attribute& attribute(size_t i) const { return attributes_[i]; }
  constexpr const char* const* attribute_names() const { return names_.data(); }  // has attribute_count() items

 private:
  static constexpr size_t kMaxName = 24;
  static constexpr size_t kMaxOpName = 40;

  constexpr void add(std::string_view argument) {
    size_t space = argument.find(' ');
    std::string_view type = argument.substr(0, space);
    if (type == "tensor...") {
      max_inputs_ = UINT32_MAX;
      min_inputs_ += 1;
    } else if (type == "tensor" || type == "tensor?") {
      optional_[max_inputs_++] = type.back() == '?';
      if (type.back() != '?') min_inputs_ = max_inputs_;
    } else {
      add_attribute(kind_of(type), argument.substr(space + 1));
    }
  }

  constexpr void add_attribute(AttributeKind kind, std::string_view declaration) {
    size_t end = declaration.find(' ');
    std::string_view name = declaration.substr(0, end);
    size_t i = attribute_count_++;
    for (size_t k = 0; k < name.size(); ++k) name_bytes_[i][k] = name[k];
    names_[i] = name_bytes_[i].data();
    attributes_[i] = {name_bytes_[i].data(), kind, end == std::string_view::npos};
  }

  // A word that is not a kind makes this no constant expression, so the program does not compile.
  static constexpr AttributeKind kind_of(std::string_view type) {
    if (type == "int64") return AttributeKind::kInt64;
    if (type == "float64") return AttributeKind::kFloat64;
    if (type == "bool") return AttributeKind::kBool;
    if (type == "text") return AttributeKind::kText;
    if (type == "int64[]") return AttributeKind::kInt64List;
    if (type == "dtype") return AttributeKind::kDtype;
    throw "unknown kind of attribute";
  }

  std::array<char, kMaxOpName> op_name_{};
  uint32_t min_inputs_ = 0;
  uint32_t max_inputs_ = 0;
  std::array<bool, kMaxInputs> optional_{};
  size_t attribute_count_ = 0;
  std::array<Attribute, kMaxAttributes> attributes_{};
  std::array<const char*, kMaxAttributes> names_{};
  std::array<std::array<char, kMaxName>, kMaxAttributes> name_bytes_{};
};

}  // namespace distag::ops
