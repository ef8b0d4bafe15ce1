#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tensor/utf8.h"
#include "values_generated.h"
#include "wire/arrived_reference.h"
#include "wire/decoder.h"

namespace distag::wire {
namespace {

// A tensor of at most this size gets memory of its own, so that it does not keep a whole frame.
constexpr size_t kCopiedBytes = 4096;

struct Bytes {
  const std::byte* data = nullptr;
  size_t size = 0;
  const Frame* frame = nullptr;  // nullptr: in the tail
};

Bytes take(DecodeState& state, const protocol::Piece& piece, const char* what) {
  Bytes bytes;
  switch (piece.lane()) {
    case protocol::Lane::Tail:
      if (!state.payload.take_from_tail(piece.size(), &bytes.data)) {
        malformed("a {} of {} bytes reaches past the end of the header frame", what, piece.size());
      }
      break;
    case protocol::Lane::Frame:
      bytes.frame = state.payload.take_frame();
      if (bytes.frame == nullptr) malformed("the payload frame of a {} is missing", what);
      if (bytes.frame->size() != piece.size()) {
        malformed("a {} has {} bytes, its payload frame {}", what, piece.size(), bytes.frame->size());
      }
      bytes.data = bytes.frame->data();
      break;
    default:
      malformed("a {} in lane {}", what, static_cast<unsigned>(piece.lane()));
  }
  bytes.size = static_cast<size_t>(piece.size());
  return bytes;
}

Dtype decode_dtype(protocol::Dtype dtype) {
  switch (dtype) {
    case protocol::Dtype::Float32:
      return Dtype::kFloat32;
    case protocol::Dtype::Float64:
      return Dtype::kFloat64;
    case protocol::Dtype::Int64:
      return Dtype::kInt64;
    case protocol::Dtype::Bool:
      return Dtype::kBool;
    case protocol::Dtype::None:
      break;
  }
  malformed("a tensor of dtype {}", static_cast<unsigned>(dtype));
}

Dims decode_shape(const flatbuffers::Vector<int64_t>* shape, size_t item_size, uint64_t* byte_size) {
  Dims dims;
  if (shape != nullptr && shape->size() > kMaxRank) {
    malformed("a tensor of rank {}, more than {}", shape->size(), kMaxRank);
  }
  if (shape != nullptr) check_aligned(shape->Data(), alignof(int64_t));
  // Sizes of 0 count as 1 in the check, as in element_count.
  int64_t bytes = static_cast<int64_t>(item_size);
  bool is_empty = false;
  for (unsigned i = 0; shape != nullptr && i < shape->size(); ++i) {
    int64_t size = shape->Get(i);
    if (size < 0) malformed("a tensor with a size of {}", size);
    if (size == 0) is_empty = true;
    if (__builtin_mul_overflow(bytes, size == 0 ? 1 : size, &bytes)) {
      malformed("a tensor with more elements than memory can hold");
    }
    dims.push_back(size);
  }
  *byte_size = is_empty ? 0 : static_cast<uint64_t>(bytes);
  return dims;
}

void check_bools(const std::byte* data, size_t size) {
  unsigned seen = 0;
  for (size_t i = 0; i < size; ++i) seen |= static_cast<unsigned>(data[i]);
  if (seen > 1) malformed("a bool tensor holds a byte that is neither 0 nor 1");
}

// Loans of other dtypes are copied: the sender could still change them. Floating point numbers stay valid, but an index
// that was checked could then lead out of a table.
bool must_copy(const Frame& frame, Dtype dtype) {
  return frame.is_loan() && dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64;
}

Tensor decode_tensor(DecodeState& state, const protocol::Tensor& table) {
  Dtype dtype = decode_dtype(table.dtype());
  size_t item_size = dtype_size(dtype);
  uint64_t byte_size = 0;
  Dims shape = decode_shape(table.shape(), item_size, &byte_size);
  if (byte_size != table.data()->size()) {
    malformed("a tensor {}{} of {} bytes has {} bytes of payload", dtype_name(dtype), to_string(shape), byte_size,
              table.data()->size());
  }
  Bytes bytes = take(state, *table.data(), "tensor");
  bool is_aligned = reinterpret_cast<uintptr_t>(bytes.data) % item_size == 0;
  if (bytes.frame == nullptr || bytes.size <= kCopiedBytes || !is_aligned || must_copy(*bytes.frame, dtype)) {
    Tensor tensor = Tensor::empty(dtype, shape);
    if (bytes.size != 0) std::memcpy(tensor.mutable_data(), bytes.data, bytes.size);
    if (dtype == Dtype::kBool) check_bools(tensor.data(), bytes.size);
    return tensor;
  }
  if (dtype == Dtype::kBool) check_bools(bytes.data, bytes.size);
  std::shared_ptr<const void> owner = bytes.frame->owner();
  Task release = [owner = std::move(owner)] {};
  BufferRef buffer = bytes.frame->is_loan() ? Buffer::adopt_protected(bytes.data, bytes.size, std::move(release))
                                            : Buffer::adopt(bytes.data, bytes.size, std::move(release));
  return Tensor::over(std::move(buffer), dtype, shape, row_major_strides(shape));
}

Value decode_text_value(DecodeState& state, const protocol::Text& table) {
  Bytes bytes = take(state, *table.data(), "text");
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  if (!is_valid_utf8(text)) malformed("a text is not valid UTF-8");
  if (text.find('\0') != std::string::npos) malformed("a text holds a zero byte");
  return Value::text(std::move(text));
}

Value decode_int64_list(DecodeState& state, const protocol::Int64List& table) {
  if (table.data()->size() % sizeof(int64_t) != 0) malformed("an int64 list of {} bytes", table.data()->size());
  Bytes bytes = take(state, *table.data(), "list of int64");
  Value::List items;
  items.reserve(bytes.size / sizeof(int64_t));
  for (size_t at = 0; at < bytes.size; at += sizeof(int64_t)) {
    int64_t number = 0;
    std::memcpy(&number, bytes.data + at, sizeof number);
    items.emplace_back(number);
  }
  return Value::list(std::move(items));
}

void check_depth(size_t depth) {
  if (depth > kMaxValueDepth) malformed("values nest more than {} deep", kMaxValueDepth);
}

Value decode_list(DecodeState& state, const protocol::List& table, size_t depth) {
  check_depth(depth);
  Value::List items;
  size_t count = table.items() == nullptr ? 0 : table.items()->size();
  state.spend(count * sizeof(uint32_t));
  items.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    items.push_back(
        decode_value(state, static_cast<uint8_t>(table.items_type()->Get(i)), table.items()->Get(i), depth + 1));
  }
  return Value::list(std::move(items));
}

Value decode_map(DecodeState& state, const protocol::Map& table, size_t depth) {
  check_depth(depth);
  Value::Map entries;
  size_t count = table.entries() == nullptr ? 0 : table.entries()->size();
  state.spend(count * sizeof(uint32_t));
  entries.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const protocol::Entry& entry = *table.entries()->Get(i);
    std::string key = decode_text(state, entry.key(), SIZE_MAX, "key");
    if (!entries.empty() && key <= entries.back().first) malformed("the keys of a map are not sorted and unique");
    Value value = decode_value(state, static_cast<uint8_t>(entry.value_type()), entry.value(), depth + 1);
    entries.emplace_back(std::move(key), std::move(value));
  }
  return Value::map(std::move(entries));
}

Value decode_reference(const protocol::Reference& table) {
  auto reference = std::make_shared<ArrivedReference>();
  reference->value = {table.value()->maker(), table.value()->counter()};
  reference->owner = table.owner();
  reference->owner_rank = table.owner_rank();
  if (!reference->value || reference->owner == 0) malformed("a reference without a value or an owner");
  if (reference->owner_rank < 0) malformed("a reference to a value of rank {}", reference->owner_rank);
  if (table.fork() != nullptr) {
    reference->fork = {table.fork()->maker(), table.fork()->counter()};
    if (!reference->fork) malformed("a fork without a maker");
  }
  return Value(std::shared_ptr<ExternalValue>(std::move(reference)));
}

}  // namespace

std::string decode_text(DecodeState& state, const flatbuffers::String* text, size_t limit, const char* what) {
  if (text == nullptr) return {};
  if (text->size() > limit) malformed("a {} of {} bytes, more than {}", what, text->size(), limit);
  state.spend(text->size());
  std::string_view view(text->c_str(), text->size());
  if (!is_valid_utf8(view)) malformed("a {} is not valid UTF-8", what);
  if (view.find('\0') != std::string_view::npos) malformed("a {} holds a zero byte", what);
  return std::string(view);
}

namespace {

bool has_payload(protocol::Value type) {
  return type == protocol::Value::Text || type == protocol::Value::Bytes || type == protocol::Value::Tensor ||
         type == protocol::Value::Int64List;
}

}  // namespace

size_t decode_work(uint8_t type, const void* table, Loans loans) {
  // A false size is detected by decoding; here it must only not make the sum overflow.
  auto size_of = [](const protocol::Piece& piece) {
    return static_cast<size_t>(std::min<uint64_t>(piece.size(), uint64_t{1} << 40));
  };
  size_t work = 0;
  switch (table == nullptr ? protocol::Value::NONE : static_cast<protocol::Value>(type)) {
    case protocol::Value::Text:
      return size_of(*static_cast<const protocol::Text*>(table)->data());
    case protocol::Value::Bytes:
      return size_of(*static_cast<const protocol::Bytes*>(table)->data());
    case protocol::Value::Int64List:
      return size_of(*static_cast<const protocol::Int64List*>(table)->data());
    case protocol::Value::Tensor: {
      const auto& tensor = *static_cast<const protocol::Tensor*>(table);
      const bool is_copied =
          loans == Loans::kOdd || (loans != Loans::kNone && tensor.dtype() == protocol::Dtype::Int64);
      return is_copied || tensor.dtype() == protocol::Dtype::Bool ? size_of(*tensor.data()) : 0;
    }
    case protocol::Value::List: {
      const auto& list = *static_cast<const protocol::List*>(table);
      for (unsigned i = 0; list.items() != nullptr && i < list.items()->size(); ++i) {
        work += decode_work(static_cast<uint8_t>(list.items_type()->Get(i)), list.items()->Get(i), loans);
      }
      return work;
    }
    case protocol::Value::Map: {
      const auto& map = *static_cast<const protocol::Map*>(table);
      for (unsigned i = 0; map.entries() != nullptr && i < map.entries()->size(); ++i) {
        const protocol::Entry& entry = *map.entries()->Get(i);
        work += decode_work(static_cast<uint8_t>(entry.value_type()), entry.value(), loans);
      }
      return work;
    }
    default:
      return 0;
  }
}

// `depth` is the depth of a list or map found here: 1 at the top.
Value decode_value(DecodeState& state, uint8_t type, const void* table, size_t depth) {
  if (table == nullptr) malformed("a value is missing");
  if (state.is_outline && has_payload(static_cast<protocol::Value>(type))) return Value();
  switch (static_cast<protocol::Value>(type)) {
    case protocol::Value::Null:
      return Value();
    case protocol::Value::Bool:
      return Value(static_cast<const protocol::Bool*>(table)->value());
    case protocol::Value::Int64:
      return Value(static_cast<const protocol::Int64*>(table)->value());
    case protocol::Value::Float64:
      return Value(static_cast<const protocol::Float64*>(table)->value());
    case protocol::Value::Text:
      return decode_text_value(state, *static_cast<const protocol::Text*>(table));
    case protocol::Value::Bytes: {
      Bytes bytes = take(state, *static_cast<const protocol::Bytes*>(table)->data(), "byte string");
      return Value::bytes(Value::Bytes(bytes.data, bytes.data + bytes.size));
    }
    case protocol::Value::Tensor:
      return Value(decode_tensor(state, *static_cast<const protocol::Tensor*>(table)));
    case protocol::Value::Int64List:
      check_depth(depth);
      return decode_int64_list(state, *static_cast<const protocol::Int64List*>(table));
    case protocol::Value::List:
      return decode_list(state, *static_cast<const protocol::List*>(table), depth);
    case protocol::Value::Map:
      return decode_map(state, *static_cast<const protocol::Map*>(table), depth);
    case protocol::Value::Reference:
      return decode_reference(*static_cast<const protocol::Reference*>(table));
    case protocol::Value::NONE:
      break;
  }
  malformed("a value of kind {}", type);
}

}  // namespace distag::wire
