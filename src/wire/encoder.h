#pragma once

#include <string>
#include <string_view>

#include "wire/message.h"
#include "wire/payload.h"

namespace flatbuffers {
class FlatBufferBuilder;
}

namespace distag::wire {

// A table in the builder, for the union member `type`.
struct EncodedUnion {
  uint8_t type;
  uint32_t offset;
};

// Both throw INVALID_ARGUMENT for values that cannot travel.
EncodedUnion encode_value(flatbuffers::FlatBufferBuilder& builder, PayloadWriter& payload, const Value& value);
EncodedUnion encode_body(flatbuffers::FlatBufferBuilder& builder, PayloadWriter& payload, const Body& body);

// Two vectors in the builder: of types and of tables.
struct EncodedValues {
  uint32_t types;
  uint32_t values;
};
EncodedValues encode_values(flatbuffers::FlatBufferBuilder& builder, PayloadWriter& payload, const Values& values);

// At most `limit` bytes of the text as valid UTF-8 without a zero byte; other bytes are replaced by '?'.
std::string mend_text(std::string_view text, size_t limit);

}  // namespace distag::wire
