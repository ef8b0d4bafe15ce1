#pragma once

#include "base/log.h"
#include "base/loop.h"
#include "base/random.h"
#include "session/dial_line.h"
#include "session/lack.h"
#include "session/session.h"
#include "transport/transport.h"

namespace distag {

// Limits for a whole message and for a piece of a larger one; see schemas/session.fbs.
inline constexpr size_t kMaxDirectBytes = kMaxMessageBytes;
inline constexpr size_t kLargeFrameBytes = size_t{64} << 10;
inline constexpr size_t kChunkBytes = size_t{1} << 20;
inline constexpr size_t kMaxUnacknowledgedChunkBytes = size_t{8} << 20;
// An acknowledgement goes alone after this time or this many bytes.
inline constexpr Nanos kAckDelay = 5 * kMillisecond;
// The least time between acknowledgements by WELCOME, while no connection to the peer is open; few of them are worth a
// message.
inline constexpr Nanos kAckAgain = 50 * kMillisecond;
inline constexpr size_t kAckBytes = size_t{256} << 10;

// The state that all streams of a session share.
struct StreamShared {
  Loop& loop;
  Transport& transport;
  Random& random;
  Log& log;
  SessionConfig config;
  SessionStats stats;
  // The lack that keeps this worker from hearing workers that dial it: descriptors, or memory for what they send.
  Lack deafness{config.lease / 2};
  DialLine line{loop, random};
  std::shared_ptr<char> alive = std::make_shared<char>();  // nullptr: the session is being closed, and reports nothing
  // Room for the header that is being read.
  std::vector<std::byte> header_room = std::vector<std::byte>(config.limits.max_header_bytes);

  // Runs the task on the loop soon, unless the session is gone by then.
  void post(Task task) const {
    loop.post_or_drop([session = std::weak_ptr<char>(alive), task = std::move(task)]() mutable {
      if (!session.expired()) task();
    });
  }

  void count(Heard heard) {
    if (heard == Heard::kStale) ++stats.messages_stale;
    if (heard == Heard::kRefused) ++stats.messages_refused;
  }

  // Whether received frames may stay in the memory in which they arrived. They may not if a socket was read into malloc
  // memory, as a burst would leave much of it with the process for good, nor if the host has provided other memory.
  bool keeps_frames() const { return config.memory == nullptr && transport.is_exact(); }
  // Likewise for loans, which are copied only into the host's memory.
  bool keeps_loans() const { return config.memory == nullptr; }
  // A message was checked before it waited; the fields that are added with its number make it a little larger.
  wire::Limits numbering_limits() const {
    wire::Limits limits = config.limits;
    limits.max_message_bytes += limits.max_header_bytes;
    return limits;
  }
};

}  // namespace distag
