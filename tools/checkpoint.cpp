#include "checkpoint.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "escaped.h"
#include "files.h"
#include "handles.h"

namespace distag_tool {
namespace {

// Messages of the library contain names of entries, which are escaped here.
void check_told(const distag_error& error) {
  if (error.code == DISTAG_OK) return;
  throw std::runtime_error(escaped(std::string(distag_status_get_name(error.code)) + ": " + error.message, ""));
}

using Visit = std::function<void(const std::string& path, distag_value* item)>;

Value load(const std::string& directory) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* loaded = nullptr;
  distag_checkpoint_load(nullptr, directory.c_str(), nullptr, 0, &loaded, &error);
  check_told(error);
  return Value(loaded);
}

// Visits every value other than lists and maps themselves.
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

std::string raw_text_of(distag_value* item) {
  distag_error error = DISTAG_ERROR_INIT;
  const char* text = nullptr;
  distag_value_get_text(item, &text, &error);
  return text == nullptr ? "" : text;
}

std::string text_of(distag_value* item) {
  distag_error error = DISTAG_ERROR_INIT;
  int64_t number = 0;
  int32_t flag = 0;
  double real = 0;
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
      return "\"" + raw_text_of(item) + "\"";
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
  check_told(error);
  return info;
}

}  // namespace

int show_checkpoint(const std::string& directory) {
  const Value loaded = load(directory);
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  for_each(loaded.get(), "", [&](const std::string& path, distag_value* item) {
    if (distag_value_get_kind(item) != DISTAG_VALUE_TENSOR) {
      const bool is_text = distag_value_get_kind(item) == DISTAG_VALUE_TEXT;
      const std::string text = is_text ? "\"" + escaped(raw_text_of(item)) + "\"" : text_of(item);
      std::printf("%s = %s\n", escaped(path).c_str(), text.c_str());
      return;
    }
    const distag_tensor_info info = info_of(item);
    std::string shape;
    for (size_t i = 0; i < info.ndim; ++i) shape += (i == 0 ? "" : ", ") + std::to_string(info.shape[i]);
    std::printf("%s  %s [%s]  %zu bytes\n", escaped(path).c_str(), name_of(info.dtype), shape.c_str(), info.size);
    ++tensors;
    bytes += info.size;
  });
  std::printf("%" PRIu64 " tensors, %" PRIu64 " bytes\n", tensors, bytes);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int check_checkpoint(const std::string& directory) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_checkpoint_load(nullptr, directory.c_str(), nullptr, 0, nullptr, &error);  // loads nothing
  check_told(error);
  const bool has_sums = std::filesystem::exists(std::filesystem::path(directory) / "index.json");
  std::printf("%s\n", has_sums ? "whole: each piece is as it was saved"
                               : "whole, with no sums beside the elements to check them");
  return std::fflush(stdout) == 0 ? 0 : 1;
}

namespace {

using Json = nlohmann::ordered_json;

size_t size_of(distag_dtype dtype) {
  switch (dtype) {
    case DISTAG_FLOAT64:
    case DISTAG_INT64:
      return 8;
    case DISTAG_FLOAT32:
      return 4;
    default:
      return 1;
  }
}

const char* stored_name_of(distag_dtype dtype) {
  switch (dtype) {
    case DISTAG_FLOAT32:
      return "F32";
    case DISTAG_FLOAT64:
      return "F64";
    case DISTAG_INT64:
      return "I64";
    default:
      return "BOOL";
  }
}

// A tensor whose elements are read when needed, and freed with it.
struct Stored {
  std::string name;
  distag_tensor_info info;
  Tensor tensor;
};

// The contents of the file: tensors in file order, those with large elements first, as all writers do; and all other
// values as texts.
struct Content {
  std::vector<Stored> tensors;
  std::map<std::string, std::string> others;
};

Content content_of(const std::string& directory) {
  Content content;
  for_each(load(directory).get(), "", [&](const std::string& path, distag_value* item) {
    if (distag_value_get_kind(item) != DISTAG_VALUE_TENSOR) {
      content.others[path] = text_of(item);
      return;
    }
    distag_error error = DISTAG_ERROR_INIT;
    distag_tensor* tensor = nullptr;
    distag_value_get_tensor(item, &tensor, &error);
    check_told(error);
    distag_tensor_retain(tensor);
    content.tensors.push_back({path, info_of(item), Tensor(tensor)});
  });
  std::sort(content.tensors.begin(), content.tensors.end(), [](const Stored& a, const Stored& b) {
    const size_t size = size_of(a.info.dtype);
    return size != size_of(b.info.dtype) ? size > size_of(b.info.dtype) : a.name < b.name;
  });
  return content;
}

// The text includes the header's size before it, so that the elements begin at a multiple of 8.
std::string header_of(const Content& content) {
  Json header = Json::object();
  uint64_t end = 0;
  for (size_t i = 0; i < content.tensors.size(); ++i) {
    const auto& [name, info, tensor] = content.tensors[i];
    Json entry = {{"dtype", stored_name_of(info.dtype)}, {"shape", Json::array()}};
    for (size_t d = 0; d < info.ndim; ++d) entry["shape"].push_back(info.shape[d]);
    entry["data_offsets"] = {end, end + info.size};
    end += info.size;
    header.get_ref<Json::object_t&>().emplace_back(name, std::move(entry));
  }
  if (!content.others.empty()) header.get_ref<Json::object_t&>().emplace_back("__metadata__", content.others);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string size;
  for (int i = 0; i < 8; ++i) size.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  return size + text;
}

void check_names(const Content& content) {
  std::vector<std::string_view> names;
  for (const Stored& stored : content.tensors) names.push_back(stored.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    throw std::runtime_error("a file cannot hold two tensors of the name \"" + escaped(*twin) +
                             "\", as a key with a slash and nested keys give: save them under other keys");
  }
}

void write_elements(const Stored& stored, NewFile& out) {
  if (stored.info.size == 0) return;
  const void* elements = distag_tensor_get_data(stored.tensor.get());
  if (elements != nullptr) return out.write({static_cast<const char*>(elements), stored.info.size});
  distag_error error = DISTAG_ERROR_INIT;  // get_data gives no error
  std::vector<char> room(stored.info.size);
  distag_tensor_copy_data(stored.tensor.get(), room.data(), room.size(), &error);
  check_told(error);
  out.write({room.data(), room.size()});
}

size_t merge_into(const std::string& directory, NewFile& out) {
  Content content = content_of(directory);
  check_names(content);
  const std::string header = header_of(content);
  out.write(header);
  for (Stored& stored : content.tensors) {
    write_elements(stored, out);
    stored.tensor.reset();
  }
  return content.tensors.size();
}

}  // namespace

int merge_checkpoint(const std::string& directory, const std::string& file) {
  NewFile out(file);
  const size_t tensors = merge_into(directory, out);
  out.finish();
  std::printf("%zu tensors in %s\n", tensors, file.c_str());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace distag_tool
