// Values: what calls carry.

#include <algorithm>

#include "capi/value.h"

using namespace distag;
using namespace distag::capi;

namespace {

// Makes a value by `make`.
template <typename Make>
distag_status create(const char* function, distag_value** out_value, distag_error* err, Make&& make) {
  clear(out_value);
  return guard(function, err, [out_value, &make] {
    need_pointer(out_value, "out_value");
    *out_value = make_value(make());
  });
}

// A list of numbers.
template <typename Number>
distag_status create_list(const char* function, const Number* items, size_t count, distag_value** out_value,
                          distag_error* err) {
  return create(function, out_value, err, [items, count] {
    check_copied_array(items, count, "items");
    Value::List list;
    list.reserve(count);
    for (size_t i = 0; i < count; ++i) list.emplace_back(items[i]);
    return Value::list(std::move(list));
  });
}

// Throws naming the first item that `fits` refuses.
template <typename Fits>
void check_items(const Value::List& list, const char* wanted, Fits&& fits) {
  const auto misfit = std::find_if_not(list.begin(), list.end(), fits);
  if (misfit == list.end()) return;
  refuse(Status::kInvalidArgument, "item {} of the list is {}, not {}", misfit - list.begin(),
         kind_name(misfit->kind()), wanted);
}

// Copies as many as there is room for.
template <typename Number, typename Read>
void copy_items(const Value::List& list, Number* items, size_t capacity, size_t* out_count, Read&& read) {
  std::transform(list.begin(), list.begin() + static_cast<ptrdiff_t>(std::min(capacity, list.size())), items, read);
  *out_count = list.size();
}

}  // namespace

void distag_value_retain(distag_value* value) { retain_handle(value); }
void distag_value_release(distag_value* value) { release_handle(value); }

distag_status distag_value_create_null(distag_value** out_value, distag_error* err) {
  return create(__func__, out_value, err, [] { return Value(); });
}

distag_status distag_value_create_bool(int32_t value, distag_value** out_value, distag_error* err) {
  return create(__func__, out_value, err, [value] { return Value(value != 0); });
}

distag_status distag_value_create_int64(int64_t value, distag_value** out_value, distag_error* err) {
  return create(__func__, out_value, err, [value] { return Value(value); });
}

distag_status distag_value_create_float64(double value, distag_value** out_value, distag_error* err) {
  return create(__func__, out_value, err, [value] { return Value(value); });
}

distag_status distag_value_create_text(const char* text, distag_value** out_value, distag_error* err) {
  return create(__func__, out_value, err, [text] { return Value::text(need_text(text, "text")); });
}

distag_status distag_value_create_bytes(const void* data, size_t size, distag_value** out_value, distag_error* err) {
  return create(__func__, out_value, err, [data, size] {
    const auto* bytes = static_cast<const std::byte*>(data);
    check_copied_array(bytes, size, "data");
    return Value::bytes(size == 0 ? Value::Bytes() : Value::Bytes(bytes, bytes + size));
  });
}

distag_status distag_value_create_list(distag_value* const* items, size_t count, distag_value** out_value,
                                       distag_error* err) {
  return create(__func__, out_value, err, [items, count] { return Value::list(need_values(items, count, "items")); });
}

distag_status distag_value_create_int64_list(const int64_t* items, size_t count, distag_value** out_value,
                                             distag_error* err) {
  return create_list(__func__, items, count, out_value, err);
}

distag_status distag_value_create_float64_list(const double* items, size_t count, distag_value** out_value,
                                               distag_error* err) {
  return create_list(__func__, items, count, out_value, err);
}

distag_status distag_value_create_map(const char* const* keys, distag_value* const* items, size_t count,
                                      distag_value** out_value, distag_error* err) {
  return create(__func__, out_value, err, [keys, items, count] {
    Values values = need_values(items, count, "items");
    check_array(keys, count, "keys");
    Value::Map entries;
    entries.reserve(count);
    for (size_t i = 0; i < count; ++i) entries.emplace_back(need_text_item(keys, i, "keys"), std::move(values[i]));
    return Value::map(std::move(entries));
  });
}

distag_value* distag_tensor_as_value(distag_tensor* tensor) { return tensor; }

distag_value_kind distag_value_get_kind(distag_value* value) {
  const distag_value* live = peek(value);
  return live == nullptr ? 0 : static_cast<distag_value_kind>(live->get().kind());
}

size_t distag_value_get_count(distag_value* value) {
  const distag_value* live = peek(value);
  return live == nullptr ? 0 : live->count();
}

distag_value* distag_value_get_item(distag_value* value, size_t index) {
  return guard_or<distag_value*>(nullptr, [value, index]() -> distag_value* {
    distag_value* live = peek(value);
    return live == nullptr ? nullptr : live->item(index);
  });
}

const char* distag_value_get_key(distag_value* value, size_t index) {
  const distag_value* live = peek(value);
  if (live == nullptr || live->get().kind() != ValueKind::kMap || index >= live->count()) return nullptr;
  return live->get().as_map()[index].first.c_str();
}

distag_value* distag_value_get_entry(distag_value* value, const char* key) {
  return guard_or<distag_value*>(nullptr, [value, key]() -> distag_value* {
    distag_value* live = peek(value);
    if (live == nullptr || key == nullptr || live->get().kind() != ValueKind::kMap) return nullptr;
    const Value::Map& map = live->get().as_map();
    const std::string_view wanted(key);
    const auto found =
        std::lower_bound(map.begin(), map.end(), wanted,
                         [](const auto& entry, std::string_view searched) { return entry.first < searched; });
    if (found == map.end() || found->first != wanted) return nullptr;
    return live->item(static_cast<size_t>(found - map.begin()));
  });
}

distag_status distag_value_get_bool(distag_value* value, int32_t* out_value, distag_error* err) {
  clear(out_value);
  return guard(__func__, err, [value, out_value] {
    const distag_value& live = need(value, "value");
    need_pointer(out_value, "out_value");
    *out_value = live.get().as_bool() ? 1 : 0;
  });
}

distag_status distag_value_get_int64(distag_value* value, int64_t* out_value, distag_error* err) {
  clear(out_value);
  return guard(__func__, err, [value, out_value] {
    const distag_value& live = need(value, "value");
    need_pointer(out_value, "out_value");
    *out_value = live.get().as_int64();
  });
}

distag_status distag_value_get_float64(distag_value* value, double* out_value, distag_error* err) {
  clear(out_value);
  return guard(__func__, err, [value, out_value] {
    const distag_value& live = need(value, "value");
    need_pointer(out_value, "out_value");
    *out_value = live.get().as_float64();
  });
}

distag_status distag_value_get_text(distag_value* value, const char** out_text, distag_error* err) {
  clear(out_text);
  return guard(__func__, err, [value, out_text] {
    const distag_value& live = need(value, "value");
    need_pointer(out_text, "out_text");
    *out_text = live.get().as_text().c_str();
  });
}

distag_status distag_value_get_bytes(distag_value* value, const void** out_data, size_t* out_size, distag_error* err) {
  clear(out_data);
  clear(out_size);
  return guard(__func__, err, [value, out_data, out_size] {
    const distag_value& live = need(value, "value");
    need_pointer(out_data, "out_data");
    need_pointer(out_size, "out_size");
    const Value::Bytes& bytes = live.get().as_bytes();
    *out_data = bytes.data();
    *out_size = bytes.size();
  });
}

distag_status distag_value_get_tensor(distag_value* value, distag_tensor** out_tensor, distag_error* err) {
  clear(out_tensor);
  return guard(__func__, err, [value, out_tensor] {
    distag_value& live = need(value, "value");
    need_pointer(out_tensor, "out_tensor");
    live.get().as_tensor();  // throws for another kind
    *out_tensor = static_cast<distag_tensor*>(live.twin());
  });
}

distag_status distag_value_copy_int64s(distag_value* value, int64_t* items, size_t capacity, size_t* out_count,
                                       distag_error* err) {
  clear(out_count);
  return guard(__func__, err, [=] {
    const Value& live = need(value, "value").get();
    check_array(items, capacity, "items");
    need_pointer(out_count, "out_count");
    const Value::List& list = live.as_list();
    check_items(list, "an int64", [](const Value& item) { return item.kind() == ValueKind::kInt64; });
    copy_items(list, items, capacity, out_count, [](const Value& item) { return item.as_int64(); });
  });
}

distag_status distag_value_copy_float64s(distag_value* value, double* items, size_t capacity, size_t* out_count,
                                         distag_error* err) {
  clear(out_count);
  return guard(__func__, err, [=] {
    const Value& live = need(value, "value").get();
    check_array(items, capacity, "items");
    need_pointer(out_count, "out_count");
    const Value::List& list = live.as_list();
    check_items(list, "a float64", [](const Value& item) {
      return item.kind() == ValueKind::kFloat64 || item.kind() == ValueKind::kInt64;
    });
    copy_items(list, items, capacity, out_count, [](const Value& item) { return item.as_float64(); });
  });
}
