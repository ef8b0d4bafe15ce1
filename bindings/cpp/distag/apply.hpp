// Ops by their names.
#ifndef DISTAG_APPLY_HPP
#define DISTAG_APPLY_HPP

#include "tensor.hpp"

namespace distag {

// An attribute of an op: its name and its value.
class attribute {
 public:
  attribute(const char* name, bool value) noexcept : name_(name), kind_(kBool), int_(value ? 1 : 0) {}
  attribute(const char* name, int value) noexcept : name_(name), kind_(kInt), int_(value) {}
  attribute(const char* name, std::int64_t value) noexcept : name_(name), kind_(kInt), int_(value) {}
  attribute(const char* name, std::optional<std::int64_t> value) noexcept
      : name_(name), kind_(value ? kInt : kLeftOut), int_(value.value_or(0)) {}
  attribute(const char* name, double value) noexcept : name_(name), kind_(kFloat), float_(value) {}
  attribute(const char* name, const char* value) noexcept : name_(name), kind_(kText), text_(value) {}
  attribute(const char* name, ints value) noexcept : name_(name), kind_(kInts), ints_(value) {}
  attribute(const char* name, dtype value) noexcept : attribute(name, static_cast<std::int64_t>(value)) {}

  const char* name() const noexcept { return name_; }
  bool is_left_out() const noexcept { return kind_ == kLeftOut; }
  distag_status create(distag_value** out_value, distag_error* err) const {
    switch (kind_) {
      case kBool:
        return distag_value_create_bool(static_cast<std::int32_t>(int_), out_value, err);
      case kInt:
        return distag_value_create_int64(int_, out_value, err);
      case kFloat:
        return distag_value_create_float64(float_, out_value, err);
      case kText:
        return distag_value_create_text(text_, out_value, err);
      case kInts:
      case kLeftOut:
        break;
    }
    return distag_value_create_int64_list(ints_.data(), ints_.size(), out_value, err);
  }

 private:
  enum kind { kBool, kInt, kFloat, kText, kInts, kLeftOut };
  const char* name_;
  kind kind_;
  std::int64_t int_ = 0;
  double float_ = 0;
  const char* text_ = nullptr;
  ints ints_;
};

// The attributes of an op: {{"dim", 1}, {"keepdim", true}}, or a std::vector of them.
class attributes {
 public:
  attributes() noexcept = default;
  attributes(std::initializer_list<attribute> items) noexcept : attributes(items.begin(), items.size()) {}
  attributes(const std::vector<attribute>& items) noexcept : attributes(items.data(), items.size()) {}

  const attribute* begin() const noexcept { return data_; }
  const attribute* end() const noexcept { return data_ + size_; }
  std::size_t size() const noexcept { return size_; }

 private:
  attributes(const attribute* data, std::size_t size) noexcept : data_(data), size_(size) {}

  const attribute* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

// Inputs of an op as an array of handles.
struct inputs {
  inputs(std::initializer_list<distag_tensor*> items) noexcept : inputs(items.begin(), items.size()) {}
  inputs(tensors items) noexcept : inputs(items.data(), items.size()) {}
  inputs(distag_tensor* const* items, std::size_t count) noexcept : data(items), size(count) {}
  distag_tensor* const* data;
  std::size_t size;
};

inline distag_value* create_attributes(const attributes& given, outcome& err) {
  constexpr std::size_t kMost = 16;
  const char* keys[kMost] = {};
  distag_value *items[kMost] = {}, *map = nullptr;
  std::size_t count = 0;
  if (given.size() > kMost) return err.fail(errc::invalid_argument, "no op has that many attributes"), nullptr;
  distag_status status = DISTAG_OK;
  for (const attribute& each : given) {
    if (each.is_left_out()) continue;
    keys[count] = each.name();
    if (status == DISTAG_OK) status = each.create(&items[count], err.raw());
    ++count;
  }
  if (status == DISTAG_OK) status = distag_value_create_map(keys, items, count, &map, err.raw());
  for (std::size_t i = 0; i < count; ++i) distag_value_release(items[i]);
  err.check(status);
  return map;
}

inline void apply(const char* op, inputs given, const attributes& with, std::uint32_t flags, distag_tensor** outputs,
                  std::size_t count, outcome& err) {
  distag_value* map = nullptr;
  if (with.size() != 0 && (map = create_attributes(with, err)) == nullptr) return;
  const distag_status status = distag_apply(op, given.data, given.size, map, flags, outputs, count, err.raw());
  distag_value_release(map);
  err.check(status);
}

inline tensor apply_one(const char* op, inputs given, const attributes& with, outcome& err) {
  tensor made;
  apply(op, given, with, 0, made.put(), 1, err);
  return made;
}

inline std::vector<tensor> apply_many(const char* op, inputs given, const attributes& with, std::size_t count,
                                      outcome& err, std::uint32_t flags = 0) {
  std::vector<tensor> made(count);
  apply(op, given, with, flags, reinterpret_cast<distag_tensor**>(made.data()), count, err);
  if (err.failed()) made.clear();
  return made;
}

}  // namespace detail

// Runs any op by its name: the ops of ops.hpp, and those of a newer library. An empty tensor is an input left out.
inline std::vector<tensor> apply(const char* op, tensors inputs, const attributes& with = {},
                                 std::size_t output_count = 1, outcome err = {}) {
  return detail::apply_many(op, inputs, with, output_count, err);
}
inline std::vector<tensor> apply(const char* op, tensors inputs, const attributes& with, status& err) {
  return apply(op, inputs, with, 1, outcome(err));
}
// The same, with nothing recorded.
inline std::vector<tensor> apply_no_grad(const char* op, tensors inputs, const attributes& with = {},
                                         std::size_t output_count = 1, outcome err = {}) {
  return detail::apply_many(op, inputs, with, output_count, err, DISTAG_APPLY_NO_GRAD);
}

}  // namespace distag

#include "operators.hpp"

#endif
