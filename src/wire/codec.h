#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/transport.h"
#include "wire/message.h"

namespace distag::wire {

struct Limits {
  size_t max_header_bytes = size_t{64} << 10;  // of the header frame; a larger header is "long": a frame of its own
  size_t max_long_header_bytes = size_t{64} << 20;
  size_t max_message_bytes = size_t{1} << 30;  // header and payload
};

// A message ready to be sent. The header frame ends with the small pieces of the payload. The rest are frames that
// share the memory of the values, never copied here unless a tensor is not row-major.
struct Encoded {
  Frame header;
  Frames payload;            // the first frame is the long header, if there is one
  size_t payload_bytes = 0;  // of the payload frames
  bool is_long = false;
};

// Throws INVALID_ARGUMENT, naming the limit, when the message does not fit or a value cannot travel (a host object).
// Texts of errors and labels are cut and mended instead, so that an error always gets through.
Encoded encode(const Message& message, const Limits& limits);

// The payload frames of the body, and the bytes of its header frame; about 0 if the header is long.
struct Payload {
  Frames frames;
  size_t header_bytes = 0;
};
Payload payload_of(const Body& body, const Limits& limits);

// Throws what encode would, unless that depends on additions when the message is numbered. Gives roughly the size of
// the message. Cheap unless the message is near the limits.
size_t check(const Body& body, const Limits& limits);

// The header frame of a message whose long header went ahead by `transfer`, and is no payload frame.
Frame encode_long(const Message& message, uint64_t transfer);

// The same message with another number and ack: a new header frame, the same payload.
Frame with_numbers(const Frame& header, uint64_t number, uint64_t ack);

// A verified header in aligned memory.
struct HeaderView {
  const std::byte* data = nullptr;
  size_t size = 0;       // of the FlatBuffer
  size_t tail_size = 0;  // behind the FlatBuffer
};

// The same message with the checksum of all its frames except loans: a new header frame.
Frame seal(const Frame& header, std::span<const Frame> payload);

// The frames of a small message as they are sent, sealed unless the transport is exact. Throws what encode does.
Frames pack(const Message& message, const Limits& limits, const Transport& transport);
// The reverse of pack(). Throws Damaged and PROTOCOL as Arrival does.
Message unpack(const Frames& frames, const Limits& limits, const Transport& transport);

// Bytes were changed or lost in transit: no fault of the peer. The connection is not to be trusted any more.
class Damaged final : public Error {
 public:
  explicit Damaged(const std::string& what) : Error(Status::kProtocol, what) {}
};

// A received header frame. The constructor copies it to aligned memory and runs the FlatBuffers verifier; decode()
// checks the meaning of the message and makes the structs. Both throw Violation naming the fault. Neither allocates
// more than a small multiple of the received bytes.
class Arrival {
 public:
  // With `room` of max_header_bytes, aligned to 16, that outlives this object, the constructors allocate nothing.
  Arrival(const Frame& header, const Limits& limits, std::span<std::byte> room = {});
  // All frames as received. Over a transport that is not exact, throws Damaged for a header that cannot be read and for
  // a wrong checksum.
  Arrival(const Frames& frames, const Limits& limits, const Transport& transport, std::span<std::byte> room = {});
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  uint64_t number() const;
  uint64_t ack() const;
  bool is_chunk() const;
  // Payload frames that did not come with the header, in order. Allocates nothing.
  size_t transfer_count() const;
  Transfer transfer(size_t index) const;
  // Whether the header is the first payload frame. Unless long_transfer() is 0, that transfer carried it.
  bool is_long() const;
  uint64_t long_transfer() const;

  // Whether decode() of this payload takes too long for a loop: texts, byte strings, lists and bool tensors of more
  // than 128 KiB in all, and long headers. Quick.
  bool takes_long(const Frames& payload) const;
  // Needs all payload frames, the long header first. Tensors are new ones over the frames, copied if they are small or
  // not aligned for their dtype.
  Message decode(const Frames& payload) const;
  // Decodes a message for whose payload memory is lacking: each value with payload becomes null.
  Message decode_outline(const Frame& long_header = {}) const;

 private:
  void read(const Frame& header, const Limits& limits, std::span<std::byte> room);
  void check_seal(const Frames& frames) const;

  static constexpr size_t kRoom = 1024;
  alignas(16) std::byte room_[kRoom];  // a usual header needs no allocation
  std::vector<std::byte> large_;
  HeaderView view_;
  const size_t max_long_header_bytes_;

  void check_transfers() const;
  Message decode(std::span<const Frame> payload, bool is_outline) const;
  Body decode_long(std::span<const Frame> payload, bool is_outline) const;
  static Body decode_body(const HeaderView& view, std::span<const Frame> payload, bool is_outline);
};

Message decode(const Frame& header, const Frames& payload, const Limits& limits);

// The values with all tensors row-major and held at one moment, so that no later write shows. For the thread
// that makes a call, not the loop. The tensors are new ones without history: whether a tensor requires grad is
// read from the original.
Values prepare(const Values& values);
Value prepare(const Value& value);

}  // namespace distag::wire
