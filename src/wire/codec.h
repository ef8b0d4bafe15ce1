#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "transport/transport.h"
#include "wire/message.h"

namespace distag::wire {

struct Limits {
  size_t max_header_bytes = 64u << 10;
  size_t max_message_bytes = size_t{1} << 30;  // header and payload
};

// A message ready to go: header frame, and the payload of tensors, long text and bytes as separate frames that share
// the memory of the values. Large ones are never copied here; strided tensors are made row-major before.
struct Encoded {
  Frame header;
  Frames payload;
  size_t payload_bytes = 0;
};

// Throws INVALID_ARGUMENT naming the limit when it does not fit or a value cannot travel (a host object).
// `number` and `ack` are fields at a fixed place of the header: see renumber.
Encoded encode(const Message& message, const Limits& limits);

// The same message with another ack (and its number): a small new header frame, the payload as it is.
Frame with_numbers(const Frame& header, uint64_t number, uint64_t ack);

// Checks, then makes the structs: size limits, the FlatBuffers verifier, then what the message means (enums, union,
// ranks and dims, overflow-checked product x item size = payload size). Tensors are new ones over the payload frames,
// copied only where memory is not aligned for the dtype. Throws PROTOCOL saying what is wrong; allocates nothing large
// before all is checked.
Message decode(const Frame& header, const Frames& payload, const Limits& limits);

// In the walk order of for_each_tensor: all values that travel as payload of a message are row-major and snapshots of
// now, so that a later write does not show. Called on the thread that makes the call, not on the loop.
Value prepare(const Value& value);

}  // namespace distag::wire
