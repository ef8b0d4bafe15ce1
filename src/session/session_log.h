#pragma once

#include <string>
#include <utility>

#include "base/each_step.h"
#include "base/log_throttle.h"
#include "session/stream_shared.h"
#include "wire/codec.h"

namespace distag {

// Reports problems with incoming messages in the log and in the statistics. However often a peer fails, it causes at
// most one record a second of each kind; each case counts in the statistics. On the loop.
class SessionLog {
 public:
  explicit SessionLog(StreamShared& shared) : shared_(shared) {}

  // `text` describes a worker that is not a peer, or that is not welcome.
  void note_refusal(std::string text) {
    ++shared_.stats.messages_refused;
    refusals_.write(shared_.log, LogLevel::kWarning, shared_.loop.now(), std::move(text));
  }
  // The bytes have changed on their way. `from` is nullptr for a stranger.
  void note_damage(const wire::Damaged& damage, const Peer* from) {
    ++shared_.stats.messages_refused;
    damages_.write(shared_.log, LogLevel::kWarning, shared_.loop.now(),
                   fmt::format("{}: {}; the connection is made again",
                               from == nullptr ? "a stranger" : describe_peer(*from), damage.message()));
  }
  // This worker lost a message, and the sender is not to blame. `from` has no name for a stranger.
  void note_failure(const Peer& from, const Error& error) noexcept {
    if (error.status() == Status::kOutOfMemory) shared_.deafness.note(error, shared_.loop.now());
    EachStep each;
    each([this, &from, &error] {
      failures_.write(shared_.log, LogLevel::kError, shared_.loop.now(),
                      fmt::format("a message of {} is lost to a failure of this worker: {}",
                                  from.name.empty() ? "a stranger" : describe_peer(from), error.message()));
    });
  }

 private:
  StreamShared& shared_;
  LogThrottle refusals_;
  LogThrottle damages_;
  LogThrottle failures_;
};

}  // namespace distag
