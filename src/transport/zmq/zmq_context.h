#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/fd_loop.h"
#include "transport/socket/socket_turns.h"
#include "transport/zmq/lent_frames.h"

namespace distag {

class Executor;
class ZapHandler;

// The libzmq context of one worker, with one IO thread. On the loop; the sockets hold it by shared_ptr, so it is
// destroyed after the last of them. The threads of libzmq (IO, reaper) and its descriptors come with the first socket.
//
// The end waits for the IO thread to close the sockets, and for lingering last words: so the end runs on `ender`, or,
// without one, on the thread that releases the last reference. A forked child has copies of the descriptors and none of
// the threads: there no function of libzmq is called.
class ZmqContext {
 public:
  // Descriptors that must be free when a socket is dialled or first bound: without them libzmq ends the process.
  static constexpr int kDescriptorReserve = 24;
  // The time for which queued messages are still sent at an orderly end of the worker.
  static constexpr Nanos kLastWords = 100 * kMillisecond;

  ZmqContext(FdLoop& loop, Executor* ender, Nanos last_words = kLastWords);
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  FdLoop& loop() const { return turns_->loop(); }
  // The descriptor of a libzmq socket is edge-triggered, and each call on the socket may silently take in new messages.
  // So after each call the socket is checked again before the loop sleeps: by a turn.
  const std::shared_ptr<SocketTurns>& turns() const { return turns_; }
  const std::shared_ptr<LentFrames>& lent_frames() const { return lent_frames_; }
  // Any thread. False in a forked child.
  bool is_here() const;

  // A socket of libzmq. Throws OUT_OF_MEMORY.
  void* open_socket(int type);

  // The time for which queued messages of a socket are still sent after its end: 0 before let_last_words_go().
  Nanos last_words() const { return is_orderly_end_ ? last_words_ : 0; }
  void let_last_words_go();

  // Decides which connections to admit; bound by the first call. Throws OUT_OF_MEMORY.
  const std::shared_ptr<ZapHandler>& zap();

  // Calls libzmq, whose containers may throw without memory. A socket may then be left that cannot be closed, so the
  // context is not ended either: its end would wait for ever.
  template <typename Call>
  auto call(Call&& of_libzmq) {
    try {
      return of_libzmq();
    } catch (...) {
      is_left_alone_ = true;
      throw;
    }
  }

  // Numbers for the names of monitors and ZAP domains.
  uint64_t next_number() { return ++last_number_; }

 private:
  const std::shared_ptr<SocketTurns> turns_;
  Executor* const ender_;
  const Nanos last_words_;
  const std::shared_ptr<LentFrames> lent_frames_;
  const uint32_t generation_;
  void* context_ = nullptr;
  std::shared_ptr<ZapHandler> zap_;
  bool is_left_alone_ = false;
  bool is_orderly_end_ = false;
  uint64_t last_number_ = 0;
};

}  // namespace distag
