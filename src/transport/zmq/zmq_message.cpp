#include "transport/zmq/zmq_message.h"

#include <zmq.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"

namespace distag {
namespace {

// Below this a received frame may lie anywhere in a buffer that it shares with other messages.
constexpr size_t kAdoptBytes = 8u << 10;
constexpr size_t kAlignment = 64;

constexpr size_t align_up(size_t size) { return (size + kAlignment - 1) & ~(kAlignment - 1); }

class Part {
 public:
  Part() { zmq_msg_init(&message_); }
  ~Part() { zmq_msg_close(&message_); }
  Part(Part&& other) noexcept : Part() { zmq_msg_move(&message_, &other.message_); }
  Part& operator=(Part&&) = delete;

  zmq_msg_t* get() { return &message_; }
  void* data() { return zmq_msg_data(&message_); }
  size_t size() const { return zmq_msg_size(&message_); }
  bool more() const { return zmq_msg_more(&message_) != 0; }

  // False without memory for it, here and below.
  bool copy(const void* data, size_t size) {
    if (zmq_msg_init_size(&message_, size) != 0) {
      zmq_msg_init(&message_);
      return false;
    }
    if (size > 0) std::memcpy(zmq_msg_data(&message_), data, size);
    return true;
  }

  bool lend(const Frame& frame, const std::shared_ptr<LentFrames>& home) {
    auto loan = std::make_unique<Loan>(frame.owner(), home);
    loan->handed_over.store(true, std::memory_order_release);
    // libzmq does not write to it.
    void* const data = const_cast<std::byte*>(frame.data());
    if (zmq_msg_init_data(&message_, data, frame.size(), &give_back, loan.get()) != 0) {
      zmq_msg_init(&message_);
      return false;
    }
    static_cast<void>(loan.release());
    return true;
  }

 private:
  struct Loan {
    Loan(std::shared_ptr<const void> frame_owner, std::shared_ptr<LentFrames> frame_home)
        : owner(std::move(frame_owner)), home(std::move(frame_home)) {}
    std::shared_ptr<const void> owner;
    std::shared_ptr<LentFrames> home;
    // libzmq orders what both threads do by atomics of its own, which a race detector does not see.
    std::atomic<bool> handed_over{false};
  };

  // On any thread, mostly libzmq's.
  static void give_back(void*, void* hint) {
    auto* const loan = static_cast<Loan*>(hint);
    if (!loan->handed_over.load(std::memory_order_acquire)) return;
    loan->home->give_back(std::move(loan->owner));
    delete loan;
  }

  zmq_msg_t message_;
};

bool send_part(void* socket, Part& part, bool more) {
  int sent = -1;
  do {
    sent = zmq_msg_send(part.get(), socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
  } while (sent < 0 && zmq_errno() == EINTR);
  return sent >= 0;
}

bool receive_part(void* socket, Part& part) {
  int received = -1;
  do {
    received = zmq_msg_recv(part.get(), socket, ZMQ_DONTWAIT);
  } while (received < 0 && zmq_errno() == EINTR);
  return received >= 0;
}

Frame adopt(Part part) {
  auto owner = std::make_shared<Part>(std::move(part));
  return Frame(owner->data(), owner->size(), owner);
}

Frames frames_of(std::vector<Part>& parts) {
  size_t small_bytes = 0;
  for (const Part& part : parts) {
    if (part.size() < kAdoptBytes) small_bytes += align_up(part.size());
  }
  std::shared_ptr<std::byte> block;
  if (small_bytes > 0) {
    // Plain memory, which a reserve can stand in for.
    void* const room = ::operator new(small_bytes + kAlignment);
    block.reset(reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(room))),
                [room](std::byte*) { ::operator delete(room); });
  }
  Frames frames;
  frames.reserve(parts.size());
  size_t offset = 0;
  for (Part& part : parts) {
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

}  // namespace

ZmqSent send_parts(void* socket, const Frames& frames, const std::shared_ptr<LentFrames>& lent) {
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  std::vector<Part> parts;
  parts.reserve(frames.size());
  for (const Frame& frame : frames) {
    Part& part = parts.emplace_back();
    const bool is_lent = frame.size() >= kZeroCopyBytes;
    if (!(is_lent ? part.lend(frame, lent) : part.copy(frame.data(), frame.size()))) return ZmqSent::kNoMemory;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!send_part(socket, parts[i], i + 1 < parts.size())) return i == 0 ? ZmqSent::kNothing : ZmqSent::kSome;
  }
  return ZmqSent::kAll;
}

bool receive_parts(void* socket, Frames& frames) {
  Part first;
  if (!receive_part(socket, first)) return false;
  std::vector<Part> parts;
  parts.reserve(4);
  bool more = first.more();
  parts.push_back(std::move(first));
  // The parts of a message come all at once.
  while (more) {
    Part& part = parts.emplace_back();
    if (!receive_part(socket, part)) {
      parts.pop_back();
      break;
    }
    more = part.more();
  }
  frames = frames_of(parts);
  return true;
}

}  // namespace distag
