#include "store/safetensors.h"

#include <fmt/ranges.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/linked_function.h"
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

// Fills the tensors of a header while it is parsed, and refuses the first byte that is not allowed there.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  HeaderReader(size_t header_size, uint64_t data_size, const std::string& file)
      : most_(header_size / kLeastEntry + 1), data_size_(data_size), file_(file) {}
  std::vector<StoredTensor> take() {
    refuse_twins(metadata_.size(), [this](size_t i) { return metadata_key(i); });
    refuse_twins(tensors_.size(), [this](size_t i) -> std::string_view { return tensors_[i].name; });
    return std::move(tensors_);
  }

  bool null() override { refuse_here(); }
  bool boolean(bool) override { refuse_here(); }
  bool number_integer(number_integer_t) override { refuse_here(); }
  bool number_float(number_float_t, const string_t&) override { refuse_here(); }
  bool binary(binary_t&) override { refuse_here(); }
  bool number_unsigned(number_unsigned_t number) override {
    if (at_ == At::kShape && shape().size() < kMaxRank) {
      if (number > INT64_MAX) refuse_entry("has a dim that is too large");
      shape().push_back(static_cast<int64_t>(number));
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
    parse_dtype(text, file_, tensors_.back());
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
      metadata_.push_back(static_cast<uint32_t>(metadata_keys_.size()));
      metadata_keys_ += name;
      return go(At::kMetadataText);
    }
    if (at_ == At::kFields) return begin_field(name);
    if (name == "__metadata__") {
      if (has_metadata_) refuse(file_, "the key \"__metadata__\" is there twice");
      has_metadata_ = true;
      return go(At::kMetadataBegin);
    }
    if (tensors_.size() == tensors_.capacity()) tensors_.reserve(std::min(most_, 2 * tensors_.size() + 16));
    tensors_.emplace_back().name = std::move(name);
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
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    refuse(file_, fmt::format("its text is no JSON at byte {}", position));
  }

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
  static constexpr size_t kLeastEntry = 52;  // "":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},

  Dims& shape() { return tensors_.back().shape; }
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
    StoredTensor& tensor = tensors_.back();
    const auto size = size_of(tensor);
    if (!size || place_[1] < place_[0] || place_[1] - place_[0] != *size) {
      refuse_entry("has data_offsets that are not the size of its shape");
    }
    if (place_[1] > data_size_) refuse_entry("lies behind the end of the file");
    tensor.begin = place_[0];
  }
  std::string_view metadata_key(size_t i) const {
    const size_t end = i + 1 < metadata_.size() ? metadata_[i + 1] : metadata_keys_.size();
    return std::string_view(metadata_keys_).substr(metadata_[i], end - metadata_[i]);
  }
  template <typename NameOf>
  void refuse_twins(size_t count, NameOf name_of) {
    std::vector<uint32_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = static_cast<uint32_t>(i);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
    const auto twin = std::adjacent_find(order.begin(), order.end(),
                                         [&](uint32_t a, uint32_t b) { return name_of(a) == name_of(b); });
    if (twin != order.end()) {
      refuse(file_, fmt::format("the key \"{}\" is there twice", name_of(*twin).substr(0, 80)));
    }
  }
  [[noreturn]] void refuse_entry(const std::string& reason) {
    refuse(file_, fmt::format("entry \"{}\" {}", tensors_.back().name.substr(0, 80), reason));
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
        refuse(file_, "its header is no map");
      case At::kMetadataBegin:
      case At::kMetadata:
      case At::kMetadataText:
        break;
    }
    refuse(file_, "its __metadata__ is no map of texts");
  }

  const size_t most_;  // the most entries that fit into a header of this size
  const uint64_t data_size_;
  const std::string& file_;
  At at_ = At::kBegin;
  std::vector<StoredTensor> tensors_;
  std::string metadata_keys_;       // one after the other
  std::vector<uint32_t> metadata_;  // the start of each
  bool has_metadata_ = false;
  unsigned fields_ = 0;  // of the entry
  uint64_t place_[2] = {};
  size_t place_count_ = 0;
};

}  // namespace

uint64_t StoredTensor::size() const { return size_of(*this).value_or(0); }

const OtherDtype* find_other_dtype(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kOthers), std::end(kOthers), [&](const OtherDtype& other) { return name == other.name; });
  return found == std::end(kOthers) ? nullptr : found;
}

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

std::vector<StoredTensor> parse_header(std::string_view header, uint64_t data_size, const std::string& file) {
  if (header.empty() || header[0] != '{') refuse(file, "its header is no map");
  HeaderReader reader(header.size(), data_size, file);
  walk_json(header, file, reader);
  std::vector<StoredTensor> tensors = reader.take();
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.size() != b.size() ? a.size() < b.size() : a.name < b.name;
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
  return crc32(sum, static_cast<const unsigned char*>(data), size);
}

}  // namespace distag::store
