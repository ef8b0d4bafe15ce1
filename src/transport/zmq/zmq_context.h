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

// The context of libzmq of one worker, with one IO thread. On the loop; the sockets hold it by shared_ptr, so it goes
// after the last of them. The threads of libzmq (IO, reaper) and its descriptors come with the first socket.
//
// Its end waits for the IO thread to close what was closed, and for last words that linger: so that runs on `ender`,
// or, without one, on the thread that lets go last. A forked child has copies of the descriptors and none of the
// threads: there nothing of libzmq is called.
class ZmqContext {
 public:
  // Descriptors that are free when a socket is dialled or first bound: libzmq ends the process where it finds none.
  static constexpr int kDescriptorReserve = 24;
  // How long queued words still go when the worker ends by the rules.
  static constexpr Nanos kLastWords = 100 * kMillisecond;

  ZmqContext(FdLoop& loop, Executor* ender, Nanos last_words = kLastWords);
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  FdLoop& loop() const { return turns_->loop(); }
  // The descriptor of a socket of libzmq is edge-triggered, and each call on the socket may take in silently what has
  // come. So after each call the socket is looked at again before the loop sleeps: by a turn.
  const std::shared_ptr<SocketTurns>& turns() const { return turns_; }
  const std::shared_ptr<LentFrames>& lent_frames() const { return lent_frames_; }
  // Any thread. False in a forked child.
  bool is_here() const;

  // A socket of libzmq. Throws OUT_OF_MEMORY.
  void* open_socket(int type);

  // How long words that are queued in a socket still go after its end: before let_last_words_go() not at all.
  Nanos last_words() const { return is_orderly_end_ ? last_words_ : 0; }
  void let_last_words_go();

  // Decides which connections to admit; bound with the first call. Throws OUT_OF_MEMORY.
  const std::shared_ptr<ZapHandler>& zap();

  // Calls libzmq, whose containers may throw for want of memory. A socket may then be left that cannot be closed, so
  // the context is left alone as well: its end would wait for ever.
  template <typename Call>
  auto call(Call&& of_libzmq) {
    try {
      return of_libzmq();
    } catch (...) {
      is_left_alone_ = true;
      throw;
    }
  }

  // Names the monitors and the domains of ZAP.
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
