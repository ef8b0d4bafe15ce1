#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transport/transport.h"
#include "transport/zmq/lent_frames.h"
#include "transport/zmq/libzmq.h"

namespace distag {

// A message part of libzmq. One thread at a time.
class ZmqPart {
 public:
  ZmqPart() { libzmq.zmq_msg_init(&message_); }
  ~ZmqPart() { libzmq.zmq_msg_close(&message_); }
  ZmqPart(ZmqPart&& other) noexcept : ZmqPart() { libzmq.zmq_msg_move(&message_, &other.message_); }
  ZmqPart& operator=(ZmqPart&&) = delete;

  zmq_msg_t* get() { return &message_; }
  const std::byte* data() { return static_cast<const std::byte*>(libzmq.zmq_msg_data(&message_)); }
  size_t size() const { return libzmq.zmq_msg_size(&message_); }
  bool more() const { return libzmq.zmq_msg_more(&message_) != 0; }
  std::span<const std::byte> bytes() { return {data(), size()}; }

  // False without memory, here and below.
  bool copy(const void* data, size_t size);
  // Sends without a copy: the owner of the frame comes back through `home` once the bytes are written.
  bool lend(const Frame& frame, const std::shared_ptr<LentFrames>& home);

 private:
  zmq_msg_t message_;
};

enum class ZmqSent { kAll, kNothing, kSome, kNoMemory };

// Sends the frames in order, without waiting; first the routing id `to` at a ROUTER. kNothing: the first part was
// refused, with libzmq.zmq_errno() saying why. kSome: the connection broke in between; libzmq drops what was taken.
// kNoMemory: nothing was taken. Frames of 64 KiB or more are not copied, and their owners come back through `lent`.
ZmqSent send_parts(void* socket, std::span<const std::byte> to, const Frames& frames,
                   const std::shared_ptr<LentFrames>& lent);

// False when no part waits.
bool receive_part(void* socket, ZmqPart& part);

// The frames of a message. Small ones are copied together into one block, each aligned to 64 bytes; a large one stays
// in the buffer that libzmq received it into.
Frames frames_of(std::span<ZmqPart> parts);

}  // namespace distag
