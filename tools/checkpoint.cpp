#include "checkpoint.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "handles.h"

namespace distag_tool {
namespace {

using Visit = std::function<void(const std::string& path, distag_value* item)>;

Value load(const std::string& directory) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* loaded = nullptr;
  distag_checkpoint_load(nullptr, directory.c_str(), nullptr, 0, &loaded, &error);
  check(error);
  return Value(loaded);
}

// Everything in a value but lists and maps themselves.
void for_each(distag_value* value, const std::string& path, const Visit& visit) {
  const auto kind = distag_value_get_kind(value);
  if (kind != DISTAG_VALUE_MAP && kind != DISTAG_VALUE_LIST) return visit(path, value);
  for (size_t i = 0; i < distag_value_get_count(value); ++i) {
    const std::string key = kind == DISTAG_VALUE_MAP ? distag_value_get_key(value, i) : std::to_string(i);
    for_each(distag_value_get_item(value, i), path.empty() ? key : path + "/" + key, visit);
  }
}

const char* name_of(distag_dtype dtype) {
  switch (dtype) {
    case DISTAG_FLOAT32:
      return "float32";
    case DISTAG_FLOAT64:
      return "float64";
    case DISTAG_INT64:
      return "int64";
    default:
      return "bool";
  }
}

std::string text_of(distag_value* item) {
  distag_error error = DISTAG_ERROR_INIT;
  int64_t number = 0;
  int32_t flag = 0;
  double real = 0;
  const char* text = nullptr;
  switch (distag_value_get_kind(item)) {
    case DISTAG_VALUE_INT64:
      distag_value_get_int64(item, &number, &error);
      return std::to_string(number);
    case DISTAG_VALUE_FLOAT64: {
      char digits[32];
      distag_value_get_float64(item, &real, &error);
      std::snprintf(digits, sizeof digits, "%.17g", real);
      return digits;
    }
    case DISTAG_VALUE_BOOL:
      distag_value_get_bool(item, &flag, &error);
      return flag != 0 ? "true" : "false";
    case DISTAG_VALUE_TEXT:
      distag_value_get_text(item, &text, &error);
      return "\"" + std::string(text == nullptr ? "" : text) + "\"";
    case DISTAG_VALUE_BYTES:
      return "bytes";
    default:
      return "null";
  }
}

distag_tensor_info info_of(distag_value* item) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* tensor = nullptr;
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  distag_value_get_tensor(item, &tensor, &error);
  distag_tensor_get_info(tensor, &info, &error);
  check(error);
  return info;
}

}  // namespace

int show_checkpoint(const std::string& directory) {
  const Value loaded = load(directory);
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  for_each(loaded.get(), "", [&](const std::string& path, distag_value* item) {
    if (distag_value_get_kind(item) != DISTAG_VALUE_TENSOR) {
      std::printf("%s = %s\n", path.c_str(), text_of(item).c_str());
      return;
    }
    const distag_tensor_info info = info_of(item);
    std::string shape;
    for (size_t i = 0; i < info.ndim; ++i) shape += (i == 0 ? "" : ", ") + std::to_string(info.shape[i]);
    std::printf("%s  %s [%s]  %zu bytes\n", path.c_str(), name_of(info.dtype), shape.c_str(), info.size);
    ++tensors;
    bytes += info.size;
  });
  std::printf("%" PRIu64 " tensors, %" PRIu64 " bytes\n", tensors, bytes);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int check_checkpoint(const std::string& directory) {
  const Value loaded = load(directory);
  uint64_t tensors = 0;
  for_each(loaded.get(), "", [&](const std::string&, distag_value* item) {
    if (distag_value_get_kind(item) != DISTAG_VALUE_TENSOR) return;
    distag_error error = DISTAG_ERROR_INIT;
    distag_tensor* tensor = nullptr;
    std::vector<char> elements(info_of(item).size);
    distag_value_get_tensor(item, &tensor, &error);
    distag_tensor_copy_data(tensor, elements.data(), elements.size(), &error);
    check(error);
    ++tensors;
  });
  std::printf("%" PRIu64 " tensors, each piece as it was saved\n", tensors);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace distag_tool
