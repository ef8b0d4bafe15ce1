#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/random.h"
#include "transport/transport.h"
#include "wire/message.h"

namespace distag {

// Between processes of one machine and user, payload need not pass through sockets: a chunk says where it lies in the
// sender's memory, and the receiver copies it from there before it acknowledges it. See schemas/session.fbs.

// From this size on a message's payload is lent where it can be.
inline constexpr size_t kLentBytes = size_t{256} << 10;

// Lies in the sender's memory, one for each stream, and is read along with all that is lent: only whole does it prove
// that the memory belongs to the worker that says so, was meant for who reads it, and still holds the payload.
class LendingSeal {
 public:
  // What HELLO and WELCOME say of it. The challenge is of the reader's choosing; 0: it cannot read here.
  void offer(wire::Hello& hello);
  void accept(uint64_t challenge);
  // Before memory is let go that may have been lent and not acknowledged.
  void revoke();

  bool can_lend() const { return challenge_ != 0; }
  // Whether another process could read it: memory of devices cannot be.
  static bool is_readable(const Frame& frame);

 private:
  friend class LentMemory;
  struct Content {
    std::atomic<uint64_t> challenge{0};
    Incarnation owner = 0;
    Incarnation reader = 0;
  };
  uint64_t challenge_ = 0;
  const std::unique_ptr<Content> content_ = std::make_unique<Content>();
};

// The memory of a peer, as far as it lends it.
class LentMemory {
 public:
  // Tries whether it can be read, as its HELLO offers. Gives the challenge for WELCOME; 0: it cannot.
  uint64_t attach(const wire::Hello& hello, Incarnation reader, Random& random);
  // Copies what a chunk lends to `out`. False when it cannot be read any more. Throws PROTOCOL when nothing was lent.
  bool read(const wire::Chunk& chunk, std::byte* out) const;

 private:
  int64_t process_ = 0;
  uint64_t seal_ = 0;
  Incarnation owner_ = 0;
  Incarnation reader_ = 0;
  uint64_t challenge_ = 0;
};

}  // namespace distag
