#pragma once

#include <memory>

#include "transport/transport.h"
#include "transport/zmq/lent_frames.h"

namespace distag {

// From this size a frame goes out without being copied.
inline constexpr size_t kZeroCopyBytes = 64u << 10;

enum class ZmqSent { kAll, kNothing, kSome, kNoMemory };

// Sends the parts in order, without waiting. kNothing: the first was refused, with zmq_errno() saying why. kSome: the
// connection broke in between; libzmq drops what was taken. kNoMemory: nothing was taken. The owners of frames that are
// not copied come back through `lent`.
ZmqSent send_parts(void* socket, const Frames& frames, const std::shared_ptr<LentFrames>& lent);

// Receives one message. False when there is none. Small frames are copied together into one block, each aligned to 64
// bytes; a large one is what libzmq received it into.
bool receive_parts(void* socket, Frames& frames);

}  // namespace distag
