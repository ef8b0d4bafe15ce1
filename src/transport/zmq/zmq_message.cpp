#include "transport/zmq/zmq_message.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "transport/socket/frame_block.h"
#include "transport/zmq/libzmq.h"

namespace distag {
namespace {

constexpr size_t kZeroCopyBytes = 64u << 10;
// Below this size a received frame may lie anywhere in a buffer that it shares with other messages.
constexpr size_t kAdoptBytes = 8u << 10;

constexpr size_t align_up(size_t size) { return (size + kFrameAlignment - 1) & ~(kFrameAlignment - 1); }

// Called on any thread, mostly one of libzmq's.
void give_back(void*, void* hint) {
  LentFrames::give_back(std::unique_ptr<LentFrames::Loan>(static_cast<LentFrames::Loan*>(hint)));
}

bool send_part(void* socket, ZmqPart& part, bool more) {
  int sent = -1;
  do {
    sent = libzmq.zmq_msg_send(part.get(), socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
  } while (sent < 0 && libzmq.zmq_errno() == EINTR);
  return sent >= 0;
}

Frame adopt(ZmqPart part) {
  auto owner = std::make_shared<ZmqPart>(std::move(part));
  const std::byte* const data = owner->data();
  const size_t size = owner->size();
  return Frame(data, size, std::move(owner));
}

}  // namespace

bool ZmqPart::copy(const void* data, size_t size) {
  if (libzmq.zmq_msg_init_size(&message_, size) != 0) {
    libzmq.zmq_msg_init(&message_);
    return false;
  }
  if (size > 0) std::memcpy(libzmq.zmq_msg_data(&message_), data, size);
  return true;
}

bool ZmqPart::lend(const Frame& frame, const std::shared_ptr<LentFrames>& home) {
  auto loan = std::make_unique<LentFrames::Loan>(frame.owner(), home);
  // libzmq does not write to the frame.
  void* const data = const_cast<std::byte*>(frame.data());
  if (libzmq.zmq_msg_init_data(&message_, data, frame.size(), &give_back, loan.get()) != 0) {
    libzmq.zmq_msg_init(&message_);
    return false;
  }
  static_cast<void>(loan.release());
  return true;
}

ZmqSent send_parts(void* socket, std::span<const std::byte> to, const Frames& frames,
                   const std::shared_ptr<LentFrames>& lent) {
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  std::vector<ZmqPart> parts;
  parts.reserve(frames.size() + 1);
  if (!to.empty() && !parts.emplace_back().copy(to.data(), to.size())) return ZmqSent::kNoMemory;
  for (const Frame& frame : frames) {
    ZmqPart& part = parts.emplace_back();
    const bool is_lent = frame.size() >= kZeroCopyBytes;
    if (!(is_lent ? part.lend(frame, lent) : part.copy(frame.data(), frame.size()))) return ZmqSent::kNoMemory;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!send_part(socket, parts[i], i + 1 < parts.size())) return i == 0 ? ZmqSent::kNothing : ZmqSent::kSome;
  }
  return ZmqSent::kAll;
}

bool receive_part(void* socket, ZmqPart& part) {
  int received = -1;
  do {
    received = libzmq.zmq_msg_recv(part.get(), socket, ZMQ_DONTWAIT);
  } while (received < 0 && libzmq.zmq_errno() == EINTR);
  return received >= 0;
}

Frames frames_of(std::span<ZmqPart> parts) {
  size_t small_bytes = 0;
  for (const ZmqPart& part : parts) {
    if (part.size() < kAdoptBytes) small_bytes += align_up(part.size());
  }
  std::shared_ptr<std::byte> block;
  if (small_bytes > 0) block = make_frame_block(small_bytes);
  Frames frames;
  frames.reserve(parts.size());
  size_t offset = 0;
  for (ZmqPart& part : parts) {
    const size_t size = part.size();
    if (size >= kAdoptBytes) {
      frames.push_back(adopt(std::move(part)));
    } else if (size == 0) {
      frames.emplace_back();
    } else {
      std::memcpy(block.get() + offset, part.data(), size);
      frames.emplace_back(block.get() + offset, size, block);
      offset += align_up(size);
    }
  }
  return frames;
}

}  // namespace distag
