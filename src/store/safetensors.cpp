#include "store/safetensors.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "store/json.h"

namespace distag::store {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "elements are stored as they lie in memory");

struct Known {
  Dtype dtype;
  const char* name;
};
constexpr Known kKnown[] = {
    {Dtype::kFloat32, "F32"}, {Dtype::kFloat64, "F64"}, {Dtype::kInt64, "I64"}, {Dtype::kBool, "BOOL"}};
// Of others, which are refused by name.
constexpr const char* kOthers[] = {"F16", "BF16", "I32",     "I16",     "I8",      "U8", "U16",     "U32",
                                   "U64", "C64",  "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2"};

Dtype parse_dtype(const json& given, const std::string& file, const std::string& entry) {
  if (!given.is_string()) refuse(file, fmt::format("entry \"{}\" has no dtype", entry));
  const std::string name = given.get<std::string>();
  for (const Known& known : kKnown) {
    if (name == known.name) return known.dtype;
  }
  for (const char* other : kOthers) {
    if (name == other) {
      fail(Status::kUnsupported, "\"{}\": entry \"{}\" is of dtype {}: F32, F64, I64 and BOOL are read", file, entry,
           name);
    }
  }
  refuse(file, fmt::format("entry \"{}\" has an unknown dtype", entry));
}

uint64_t parse_count(const json& given, const std::string& file, const std::string& entry, const char* what) {
  if (!given.is_number_unsigned()) refuse(file, fmt::format("entry \"{}\" has no {}", entry, what));
  return given.get<uint64_t>();
}

Dims parse_shape(const json& given, const std::string& file, const std::string& entry) {
  if (!given.is_array() || given.size() > kMaxRank) {
    refuse(file, fmt::format("entry \"{}\" has no shape of at most {} dims", entry, kMaxRank));
  }
  Dims shape;
  for (const json& size : given) {
    const uint64_t count = parse_count(size, file, entry, "shape");
    if (count > INT64_MAX) refuse(file, fmt::format("entry \"{}\" has a dim that is too large", entry));
    shape.push_back(static_cast<int64_t>(count));
  }
  return shape;
}

StoredTensor parse_entry(const std::string& name, const json& given, const std::string& file) {
  if (!given.is_object() || given.size() != 3 || !given.contains("dtype") || !given.contains("shape") ||
      !given.contains("data_offsets")) {
    refuse(file, fmt::format("entry \"{}\" has other fields than dtype, shape and data_offsets", name));
  }
  StoredTensor tensor;
  tensor.name = name;
  tensor.dtype = parse_dtype(given["dtype"], file, name);
  tensor.shape = parse_shape(given["shape"], file, name);
  const json& place = given["data_offsets"];
  if (!place.is_array() || place.size() != 2) refuse(file, fmt::format("entry \"{}\" has no two data_offsets", name));
  tensor.begin = parse_count(place[0], file, name, "data_offsets");
  const uint64_t end = parse_count(place[1], file, name, "data_offsets");
  const auto size = bytes_of(tensor.shape, tensor.dtype);
  if (!size || end < tensor.begin || end - tensor.begin != *size) {
    refuse(file, fmt::format("the data_offsets of entry \"{}\" are not the size of its shape", name));
  }
  return tensor;
}

}  // namespace

uint64_t StoredTensor::size() const { return bytes_of(shape, dtype).value_or(0); }

std::optional<uint64_t> bytes_of(const Dims& shape, Dtype dtype) {
  uint64_t size = dtype_size(dtype);
  bool is_empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) is_empty = true;
    if (dim > 0 && __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) return std::nullopt;
  }
  if (size > uint64_t{1} << 62) return std::nullopt;
  return is_empty ? 0 : size;
}

const char* stored_name(Dtype dtype) {
  for (const Known& known : kKnown) {
    if (known.dtype == dtype) return known.name;
  }
  fail(Status::kUnsupported, "{} tensors are not stored", dtype_name(dtype));
}

std::string print_header(std::vector<StoredTensor>& tensors) {
  json header = json::object();
  header["__metadata__"] = {{"format", "pt"}, {"writer", "distag"}};
  uint64_t next = 0;
  for (StoredTensor& tensor : tensors) {
    tensor.begin = next;
    next += tensor.size();
    header[tensor.name] = {{"dtype", stored_name(tensor.dtype)},
                           {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {tensor.begin, next}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  if (size > kMostHeader) fail(Status::kInvalidArgument, "a header of {} bytes: at most {}", size, kMostHeader);
  text.insert(0, 8, '\0');
  std::memcpy(text.data(), &size, 8);
  return text;
}

uint64_t header_size(const std::byte* first_eight, uint64_t file_size, const std::string& file) {
  uint64_t size = 0;
  std::memcpy(&size, first_eight, 8);
  if (file_size < 8 || size > kMostHeader || size > file_size - 8) {
    refuse(file, "its header is larger than the file, or than 100 MB");
  }
  return size;
}

std::vector<StoredTensor> parse_header(std::string_view header, uint64_t data_size, const std::string& file) {
  const json parsed = parse_json(header, file);
  if (!parsed.is_object()) refuse(file, "its header is no map");
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : parsed.items()) {
    if (name != "__metadata__") tensors.push_back(parse_entry(name, entry, file));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.size() < b.size();
  });
  uint64_t next = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != next) refuse(file, fmt::format("entry \"{}\" lies behind a hole or over another", tensor.name));
    next += tensor.size();
  }
  if (next != data_size) refuse(file, fmt::format("it has {} bytes of elements and says {}", data_size, next));
  return tensors;
}

uint32_t crc32_of(uint32_t sum, const void* data, size_t size) {
  return crc32_gzip_refl(sum, static_cast<const unsigned char*>(data), size);
}

}  // namespace distag::store
