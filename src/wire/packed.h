#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "wire/encoder.h"

namespace distag::wire {

// Values in their wire form, for a message whose encoding would block the loop: made once, on the thread that makes the
// call, and copied into the header each time that is made. Immutable.
class Packed {
 public:
  // nullptr: encoding them is quick, or has to wait until the message is numbered (references), or they cannot travel,
  // which sending reports. Any thread.
  static std::shared_ptr<const Packed> make(const Values& values);
  static std::shared_ptr<const Packed> make(const Value& value);

  // Puts their tables; tail() and frames() are the payload of their message.
  EncodedValues put_values(flatbuffers::FlatBufferBuilder& builder) const;
  EncodedUnion put_value(flatbuffers::FlatBufferBuilder& builder) const;

  size_t table_bytes() const { return tables_.size(); }
  std::span<const std::byte> tail() const { return payload_.tail(); }
  size_t header_bytes() const { return table_bytes() + tail().size(); }
  size_t frame_bytes() const { return payload_.frame_bytes(); }
  const Frames& frames() const { return payload_.frames(); }

 private:
  template <typename Encode>
  static std::shared_ptr<const Packed> make_by(const Encode& encode);
  uint32_t put_tables(flatbuffers::FlatBufferBuilder& builder) const;

  std::vector<std::byte> tables_;  // as a builder has them; references are relative
  PayloadWriter payload_{PayloadWriter::Tail::kLong};
  EncodedValues values_{};
  EncodedUnion value_{};
};

}  // namespace distag::wire
