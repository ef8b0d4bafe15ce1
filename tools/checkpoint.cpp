#include "checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
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

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kAtOnce = size_t{64} << 20;  // bytes that are read before the memory of tensors is given back

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

// The text of the index, which a save replaces; empty for a file of others.
std::string index_of(const std::string& directory) {
  std::ifstream file(std::filesystem::path(directory) / "index.json", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// With its size in front, so that the elements begin at a multiple of 8.
std::string header_of(distag_value* loaded) {
  Json header = Json::object();
  Json others = Json::object();
  uint64_t end = 0;
  for_each(loaded, "", [&](const std::string& path, distag_value* item) {
    if (distag_value_get_kind(item) != DISTAG_VALUE_TENSOR) {
      others[path] = text_of(item);
      return;
    }
    const distag_tensor_info info = info_of(item);
    Json entry = {{"dtype", stored_name_of(info.dtype)}, {"shape", Json::array()}};
    for (size_t i = 0; i < info.ndim; ++i) entry["shape"].push_back(info.shape[i]);
    entry["data_offsets"] = {end, end + info.size};
    end += info.size;
    if (header.contains(path)) throw std::runtime_error("two tensors have the name \"" + path + "\"");
    header[path] = entry;
  });
  if (!others.empty()) header["__metadata__"] = others;
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string size;
  for (int i = 0; i < 8; ++i) size.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  return size + text;
}

// A file that takes its name once it is whole, and leaves nothing before.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path), part_(path + ".part"), fd_(open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail(errno == EEXIST ? "another merge writes it, or was killed: remove it" : std::strerror(errno));
  }
  ~NewFile() {
    close(fd_);
    if (!is_whole_) unlink(part_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const char* bytes, size_t size) {
    while (size > 0) {
      const ssize_t written = ::write(fd_, bytes, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(errno == EFBIG ? "it may not be so long (ulimit -f)" : std::strerror(errno));
      bytes += written;
      size -= static_cast<size_t>(written);
    }
  }
  void finish() {
    if (fsync(fd_) != 0) fail(std::strerror(errno));
    std::filesystem::rename(part_, path_);
    is_whole_ = true;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("cannot write " + part_ + ": " + why);
  }

  const std::string path_;
  const std::string part_;
  const int fd_;
  bool is_whole_ = false;
};

// Writes the tensors from number `first` on, until there is enough in memory. The number of the next one.
size_t write_some(const Value& loaded, size_t first, NewFile& out) {
  size_t number = 0;
  size_t next = first;
  size_t bytes = 0;
  for_each(loaded.get(), "", [&](const std::string&, distag_value* item) {
    if (distag_value_get_kind(item) != DISTAG_VALUE_TENSOR || number++ != next || bytes > kAtOnce) return;
    distag_error error = DISTAG_ERROR_INIT;
    distag_tensor* tensor = nullptr;
    std::vector<char> elements(info_of(item).size);
    distag_value_get_tensor(item, &tensor, &error);
    distag_tensor_copy_data(tensor, elements.data(), elements.size(), &error);
    check(error);
    out.write(elements.data(), elements.size());
    bytes += elements.size();
    ++next;
  });
  return next;
}

size_t merge_into(const std::string& directory, NewFile& out) {
  const std::string index = index_of(directory);
  std::string header;
  size_t tensors = 0;
  for (size_t before = SIZE_MAX; before != tensors;) {
    const Value loaded = load(directory);
    const std::string seen = header_of(loaded.get());
    const bool is_same = index_of(directory) == index && (header.empty() || header == seen);
    if (!is_same) throw std::runtime_error(directory + " was saved anew meanwhile: try again");
    if (header.empty()) out.write(seen.data(), seen.size());
    header = seen;
    before = tensors;
    tensors = write_some(loaded, tensors, out);
  }
  return tensors;
}

}  // namespace

int merge_checkpoint(const std::string& directory, const std::string& file) {
  signal(SIGXFSZ, SIG_IGN);  // a file that may not be that long is an error
  NewFile out(file);
  const size_t tensors = merge_into(directory, out);
  out.finish();
  std::printf("%zu tensors in %s\n", tensors, file.c_str());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace distag_tool
