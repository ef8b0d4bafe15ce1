#include "store/safetensors.h"

#include <fmt/ranges.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <tuple>

#include "base/linked_function.h"
#include "store/arena.h"
#include "store/json.h"

namespace distag::store {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "elements are stored as they lie in memory");

struct Known {
  Dtype dtype;
  const char* name;
};
constinit const LinkedFunction<decltype(crc32_gzip_refl)> crc32{"crc32_gzip_refl", &crc32_gzip_refl};

constexpr Known kKnown[] = {
    {Dtype::kFloat32, "F32"}, {Dtype::kFloat64, "F64"}, {Dtype::kInt64, "I64"}, {Dtype::kBool, "BOOL"}};
constexpr OtherDtype kOthers[] = {
    {"F16", 16, Dtype::kFloat32},    {"BF16", 16, Dtype::kFloat32},   {"F8_E4M3", 8, Dtype::kFloat32},
    {"F8_E5M2", 8, Dtype::kFloat32}, {"F8_E8M0", 8, Dtype::kFloat32}, {"F6_E2M3", 6, Dtype::kFloat32},
    {"F6_E3M2", 6, Dtype::kFloat32}, {"F4", 4, Dtype::kFloat32},      {"C64", 64, Dtype::kFloat32},
    {"I32", 32, Dtype::kInt64},      {"I16", 16, Dtype::kInt64},      {"I8", 8, Dtype::kInt64},
    {"U64", 64, Dtype::kInt64},      {"U32", 32, Dtype::kInt64},      {"U16", 16, Dtype::kInt64},
    {"U8", 8, Dtype::kInt64}};

void parse_dtype(const std::string& name, const std::string& file, StoredTensor& tensor) {
  for (const Known& known : kKnown) {
    if (name != known.name) continue;
    tensor.dtype = known.dtype;
    return;
  }
  tensor.other = find_other_dtype(name);
  if (tensor.other == nullptr) refuse(file, fmt::format("entry \"{}\" has an unknown dtype", tensor.name));
  tensor.dtype = tensor.other->nearest;
}

// nullopt also for elements that do not end at a whole byte.
std::optional<uint64_t> size_of(const StoredTensor& tensor) {
  if (tensor.other == nullptr) return bytes_of(tensor.shape, tensor.dtype);
  auto bits = bytes_of(tensor.shape, Dtype::kBool);
  if (!bits || __builtin_mul_overflow(*bits, tensor.other->bits, &*bits) || *bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

using OnTensor = std::function<void(const StoredTensor&)>;

// Gives the tensors of a header while it is parsed, and refuses the first byte that is not allowed there.
class HeaderReader final : public Handler {
 public:
  HeaderReader(uint64_t data_size, const std::string& file, const OnTensor& on_tensor)
      : Handler(file), data_size_(data_size), on_tensor_(on_tensor) {}
  // Checks what only all of them together show.
  void finish() {
    refuse_twins(metadata_, std::identity());
    refuse_twins(places_, &Place::name);
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::tie(a.begin, a.size, a.name) < std::tie(b.begin, b.size, b.name);
    });
    uint64_t next = 0;
    for (const Place& place : places_) {
      if (place.begin != next) {
        refuse(file(), fmt::format("entry \"{}\" lies behind a hole or over another", place.name));
      }
      next += place.size;
    }
    if (next != data_size_) {
      refuse(file(), fmt::format("it has {} bytes of elements and says {}", data_size_, next));
    }
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (at_ == At::kShape && tensor_.shape.size() < kMaxRank) {
      if (number > INT64_MAX) refuse_entry("has a dim that is too large");
      tensor_.shape.push_back(static_cast<int64_t>(number));
    } else if (at_ == At::kPlace && place_count_ < 2) {
      place_[place_count_++] = number;
    } else {
      refuse_here();
    }
    return true;
  }
  bool string(string_t& text) override {
    if (at_ == At::kMetadataText) return go(At::kMetadata);
    if (at_ != At::kDtype) refuse_here();
    parse_dtype(text, file(), tensor_);
    return go(At::kFields);
  }
  bool start_object(size_t) override {
    if (at_ == At::kBegin) return go(At::kNames);
    if (at_ == At::kMetadataBegin) return go(At::kMetadata);
    if (at_ != At::kEntry) refuse_here();
    return go(At::kFields);
  }
  bool key(string_t& name) override {
    if (at_ == At::kMetadata) {
      metadata_.push_back(names_.copy_text(name));
      return go(At::kMetadataText);
    }
    if (at_ == At::kFields) return begin_field(name);
    if (name == "__metadata__") {
      if (has_metadata_) refuse(file(), "the key \"__metadata__\" is there twice");
      has_metadata_ = true;
      return go(At::kMetadataBegin);
    }
    if (name.find('\0') != std::string::npos) refuse(file(), "the name of an entry has a zero byte");
    tensor_ = StoredTensor();
    tensor_.name = std::move(name);
    fields_ = 0;
    place_count_ = 0;
    return go(At::kEntry);
  }
  bool start_array(size_t) override {
    if (at_ == At::kShapeBegin) return go(At::kShape);
    if (at_ != At::kPlaceBegin) refuse_here();
    return go(At::kPlace);
  }
  bool end_array() override {
    if (at_ == At::kPlace && place_count_ != 2) refuse_here();
    return go(At::kFields);
  }
  bool end_object() override {
    if (at_ == At::kFields) end_entry();
    return go(At::kNames);
  }

 protected:
  bool other() override { refuse_here(); }

 private:
  // The next token that is expected.
  enum class At {
    kBegin,
    kNames,
    kMetadataBegin,
    kMetadata,
    kMetadataText,
    kEntry,
    kFields,
    kDtype,
    kShapeBegin,
    kShape,
    kPlaceBegin,
    kPlace
  };
  enum Field : unsigned { kHasDtype = 1, kHasShape = 2, kHasPlace = 4 };
  struct Place {
    std::string_view name;
    uint64_t begin;
    uint64_t size;
  };

  bool go(At next) {
    at_ = next;
    return true;
  }
  bool begin_field(const std::string& name) {
    const bool is_dtype = name == "dtype";
    const bool is_shape = name == "shape";
    const unsigned field = is_dtype ? kHasDtype : is_shape ? kHasShape : name == "data_offsets" ? kHasPlace : 0U;
    if ((fields_ & field) != 0) refuse_entry("has a field twice");
    if (field == 0) refuse_here();
    fields_ |= field;
    return go(is_dtype ? At::kDtype : is_shape ? At::kShapeBegin : At::kPlaceBegin);
  }
  void end_entry() {
    if (fields_ != (kHasDtype | kHasShape | kHasPlace)) refuse_here();
    const auto size = size_of(tensor_);
    if (!size || place_[1] < place_[0] || place_[1] - place_[0] != *size) {
      refuse_entry("has data_offsets that are not the size of its shape");
    }
    if (place_[1] > data_size_) refuse_entry("lies behind the end of the file");
    tensor_.begin = place_[0];
    places_.push_back({names_.copy_text(tensor_.name), tensor_.begin, *size});
    on_tensor_(tensor_);
  }
  template <typename List, typename NameOf>
  void refuse_twins(List& list, NameOf name_of) {
    std::ranges::sort(list, {}, name_of);
    const auto twin = std::ranges::adjacent_find(list, {}, name_of);
    if (twin == list.end()) return;
    refuse(file(), fmt::format("the key \"{}\" is there twice", std::invoke(name_of, *twin).substr(0, 80)));
  }
  [[noreturn]] void refuse_entry(const std::string& reason) {
    refuse(file(), fmt::format("entry \"{}\" {}", tensor_.name.substr(0, 80), reason));
  }
  [[noreturn]] void refuse_here() {
    switch (at_) {
      case At::kDtype:
        refuse_entry("has no dtype");
      case At::kShapeBegin:
      case At::kShape:
        refuse_entry(fmt::format("has no shape of at most {} dims", kMaxRank));
      case At::kPlaceBegin:
      case At::kPlace:
        refuse_entry("has no two data_offsets");
      case At::kEntry:
      case At::kFields:
        refuse_entry("has other fields than dtype, shape and data_offsets");
      case At::kBegin:
      case At::kNames:
        refuse(file(), "its header is no map");
      case At::kMetadataBegin:
      case At::kMetadata:
      case At::kMetadataText:
        break;
    }
    refuse(file(), "its __metadata__ is no map of texts");
  }

  const uint64_t data_size_;
  const OnTensor& on_tensor_;
  At at_ = At::kBegin;
  StoredTensor tensor_;  // the latest
  unsigned fields_ = 0;  // of it
  uint64_t place_[2] = {};
  size_t place_count_ = 0;
  bool has_metadata_ = false;
  Arena names_;
  std::deque<Place> places_;  // of all tensors
  std::deque<std::string_view> metadata_;
};

}  // namespace

uint64_t StoredTensor::size() const { return size_of(*this).value_or(0); }

const OtherDtype* find_other_dtype(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kOthers), std::end(kOthers), [&](const OtherDtype& other) { return name == other.name; });
  return found == std::end(kOthers) ? nullptr : found;
}

std::optional<uint64_t> bytes_of(std::span<const int64_t> shape, Dtype dtype) {
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

// In the order of the tensors, as other writers do.
std::string print_header(std::vector<StoredTensor>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt","writer":"distag"})";
  uint64_t next = 0;
  for (StoredTensor& tensor : tensors) {
    tensor.begin = next;
    next += tensor.size();
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json(tensor.name).dump(),
                        tensor.other == nullptr ? stored_name(tensor.dtype) : tensor.other->name,
                        fmt::join(tensor.shape, ","), tensor.begin, next);
  }
  text += '}';
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

void parse_header(std::string_view header, uint64_t data_size, const std::string& file, const OnTensor& on_tensor) {
  if (header.empty() || header[0] != '{') refuse(file, "its header is no map");
  HeaderReader reader(data_size, file, on_tensor);
  walk_json(header, file, reader);
  reader.finish();
}

uint32_t crc32_of(uint32_t sum, const void* data, size_t size) {
  return crc32(sum, static_cast<const unsigned char*>(data), size);
}

}  // namespace distag::store
