#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/utf8.h"
#include "values_generated.h"
#include "wire/encoder.h"

namespace distag::wire {
namespace {

using flatbuffers::FlatBufferBuilder;

static_assert(FLATBUFFERS_LITTLEENDIAN, "the payload travels in the byte order of the machine");

template <typename T>
EncodedUnion as_union(protocol::Value type, flatbuffers::Offset<T> offset) {
  return {static_cast<uint8_t>(type), offset.o};
}

template <typename MakeOwner>
protocol::Piece add_piece(PayloadWriter& payload, const void* data, size_t size, MakeOwner&& make_owner) {
  bool in_tail = payload.add(data, size, std::forward<MakeOwner>(make_owner));
  return {size, in_tail ? protocol::Lane::Tail : protocol::Lane::Frame};
}

protocol::Dtype wire_dtype(const Tensor& tensor) {
  if (!tensor) fail(Status::kInvalidArgument, "an undefined tensor cannot travel");
  switch (tensor.dtype()) {
    case Dtype::kFloat32:
      return protocol::Dtype::Float32;
    case Dtype::kFloat64:
      return protocol::Dtype::Float64;
    case Dtype::kInt64:
      return protocol::Dtype::Int64;
    case Dtype::kBool:
      return protocol::Dtype::Bool;
  }
  fail(Status::kUnsupported, "tensors of dtype {} do not travel yet", dtype_name(tensor.dtype()));
}

// Written even if it equals the default of the schema: -0.0 does, and would arrive as 0.0.
EncodedUnion encode_float64(FlatBufferBuilder& builder, double number) {
  const auto start = builder.StartTable();
  builder.AddElement<double>(protocol::Float64::VT_VALUE, number);
  return as_union(protocol::Value::Float64, flatbuffers::Offset<protocol::Float64>(builder.EndTable(start)));
}

EncodedUnion encode_tensor(FlatBufferBuilder& builder, PayloadWriter& payload, const Tensor& tensor) {
  protocol::Dtype dtype = wire_dtype(tensor);
  Tensor dense = tensor.contiguous();
  protocol::Piece piece = add_piece(payload, dense.data(), dense.byte_size(),
                                    [&dense] { return std::make_shared<const BufferRef>(dense.buffer()); });
  flatbuffers::Offset<flatbuffers::Vector<int64_t>> shape;
  if (!dense.shape().empty()) shape = builder.CreateVector(dense.shape().data(), dense.shape().size());
  return as_union(protocol::Value::Tensor, protocol::CreateTensor(builder, dtype, shape, &piece));
}

EncodedUnion encode_list(FlatBufferBuilder& builder, PayloadWriter& payload, const Value::List& items) {
  bool all_int64 = items.size() > 1 && std::all_of(items.begin(), items.end(),
                                                   [](const Value& item) { return item.kind() == ValueKind::kInt64; });
  if (!all_int64) {
    EncodedValues encoded = encode_values(builder, payload, items);
    return as_union(protocol::Value::List, protocol::CreateList(builder, encoded.types, encoded.values));
  }
  auto numbers = std::make_shared<std::vector<int64_t>>(items.size());
  std::transform(items.begin(), items.end(), numbers->begin(), [](const Value& item) { return item.as_int64(); });
  protocol::Piece piece = add_piece(payload, numbers->data(), numbers->size() * sizeof(int64_t),
                                    [&numbers] { return std::shared_ptr<const void>(numbers); });
  return as_union(protocol::Value::Int64List, protocol::CreateInt64List(builder, &piece));
}

EncodedUnion encode_map(FlatBufferBuilder& builder, PayloadWriter& payload, const Value::Map& map) {
  std::vector<flatbuffers::Offset<protocol::Entry>> entries;
  entries.reserve(map.size());
  for (const auto& [key, item] : map) {
    EncodedUnion value = encode_value(builder, payload, item);
    auto encoded_key = builder.CreateString(key);
    entries.push_back(
        protocol::CreateEntry(builder, encoded_key, static_cast<protocol::Value>(value.type), value.offset));
  }
  return as_union(protocol::Value::Map, protocol::CreateMap(builder, builder.CreateVector(entries)));
}

EncodedUnion encode_reference(FlatBufferBuilder& builder, const Value& value) {
  const auto* reference = dynamic_cast<const Reference*>(value.as_external().get());
  if (reference == nullptr) fail(Status::kInternal, "a reference has no wire form");
  const protocol::Id id(reference->value.maker, reference->value.counter);
  const protocol::Id fork(reference->fork.maker, reference->fork.counter);
  return as_union(protocol::Value::Reference,
                  protocol::CreateReference(builder, &id, reference->owner, reference->owner_rank,
                                            reference->fork ? &fork : nullptr));
}

}  // namespace

EncodedUnion encode_value(FlatBufferBuilder& builder, PayloadWriter& payload, const Value& value) {
  switch (value.kind()) {
    case ValueKind::kNull:
      return as_union(protocol::Value::Null, protocol::CreateNull(builder));
    case ValueKind::kBool:
      return as_union(protocol::Value::Bool, protocol::CreateBool(builder, value.as_bool()));
    case ValueKind::kInt64:
      return as_union(protocol::Value::Int64, protocol::CreateInt64(builder, value.as_int64()));
    case ValueKind::kFloat64:
      return encode_float64(builder, value.as_float64());
    case ValueKind::kText: {
      const std::string& text = value.as_text();
      protocol::Piece piece =
          add_piece(payload, text.data(), text.size(), [&value] { return std::make_shared<const Value>(value); });
      return as_union(protocol::Value::Text, protocol::CreateText(builder, &piece));
    }
    case ValueKind::kBytes: {
      const Value::Bytes& bytes = value.as_bytes();
      protocol::Piece piece =
          add_piece(payload, bytes.data(), bytes.size(), [&value] { return std::make_shared<const Value>(value); });
      return as_union(protocol::Value::Bytes, protocol::CreateBytes(builder, &piece));
    }
    case ValueKind::kTensor:
      return encode_tensor(builder, payload, value.as_tensor());
    case ValueKind::kList:
      return encode_list(builder, payload, value.as_list());
    case ValueKind::kMap:
      return encode_map(builder, payload, value.as_map());
    case ValueKind::kRref:
      return encode_reference(builder, value);
    case ValueKind::kObject:
      fail(Status::kInvalidArgument, "an object of type \"{}\" cannot travel: it stays in its process",
           value.as_object()->type);
  }
  fail(Status::kInternal, "a value of kind {} has no wire form", static_cast<int32_t>(value.kind()));
}

EncodedValues encode_values(FlatBufferBuilder& builder, PayloadWriter& payload, const Values& values) {
  if (values.empty()) return {0, 0};
  constexpr size_t kFew = 8;
  std::array<protocol::Value, kFew> few_types;
  std::array<flatbuffers::Offset<void>, kFew> few_offsets;
  std::vector<protocol::Value> many_types;
  std::vector<flatbuffers::Offset<void>> many_offsets;
  protocol::Value* types = few_types.data();
  flatbuffers::Offset<void>* offsets = few_offsets.data();
  if (values.size() > kFew) {
    many_types.resize(values.size());
    many_offsets.resize(values.size());
    types = many_types.data();
    offsets = many_offsets.data();
  }
  for (size_t i = 0; i < values.size(); ++i) {
    EncodedUnion encoded = encode_value(builder, payload, values[i]);
    types[i] = static_cast<protocol::Value>(encoded.type);
    offsets[i] = encoded.offset;
  }
  return {builder.CreateVector(types, values.size()).o, builder.CreateVector(offsets, values.size()).o};
}

std::string mend_text(std::string_view text, size_t limit) {
  if (text.size() > limit) {
    size_t end = limit;
    // Cut between characters: a continuation byte begins with the bits 10.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  std::string mended(text);
  bool ascii_only = !is_valid_utf8(mended);
  for (char& c : mended) {
    if (c == '\0' || (ascii_only && static_cast<unsigned char>(c) >= 0x80)) c = '?';
  }
  return mended;
}

}  // namespace distag::wire
