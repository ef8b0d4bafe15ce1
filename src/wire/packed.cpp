#include "wire/packed.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "values_generated.h"

namespace distag::wire {
namespace {

// Fewer items are encoded within some ten microseconds.
constexpr size_t kManyItems = 256;
constexpr size_t kTableAlignment = 8;  // the largest of the schema

bool is_long(const Values& values) {
  const auto has_external = [](const Value& value) { return value.has_external(); };
  return std::none_of(values.begin(), values.end(), has_external) && has_items(values, kManyItems);
}

}  // namespace

template <typename Encode>
std::shared_ptr<const Packed> Packed::make_by(const Encode& encode) {
  auto packed = std::make_shared<Packed>();
  flatbuffers::FlatBufferBuilder builder;
  try {
    encode(builder, *packed);
  } catch (const Error&) {
    return nullptr;
  }
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetCurrentBufferPointer());
  packed->tables_.assign(begin, begin + builder.GetSize());
  return packed;
}

std::shared_ptr<const Packed> Packed::make(const Values& values) {
  if (!is_long(values)) return nullptr;
  return make_by([&values](flatbuffers::FlatBufferBuilder& builder, Packed& packed) {
    packed.values_ = encode_values(builder, packed.payload_, values);
  });
}

std::shared_ptr<const Packed> Packed::make(const Value& value) {
  if (!is_long({value})) return nullptr;
  return make_by([&value](flatbuffers::FlatBufferBuilder& builder, Packed& packed) {
    packed.value_ = encode_value(builder, packed.payload_, value);
  });
}

// Offsets in a builder count from its end, so those of tables put there grow by the bytes that lie behind.
uint32_t Packed::put_tables(flatbuffers::FlatBufferBuilder& builder) const {
  builder.Align(kTableAlignment);
  const auto behind = static_cast<uint32_t>(builder.GetSize());
  builder.PushBytes(reinterpret_cast<const uint8_t*>(tables_.data()), tables_.size());
  return behind;
}

EncodedValues Packed::put_values(flatbuffers::FlatBufferBuilder& builder) const {
  const uint32_t behind = put_tables(builder);
  return {values_.types + behind, values_.values + behind};
}

EncodedUnion Packed::put_value(flatbuffers::FlatBufferBuilder& builder) const {
  const uint32_t behind = put_tables(builder);
  return {value_.type, value_.offset + behind};
}

}  // namespace distag::wire
