#pragma once

#include <sys/types.h>

#include "base/mutex.h"

namespace distag {

// The descriptors by which peers see that this process lives: sockets, listeners, locks. A forked child gives them up
// before fork() returns there, else it would keep a dead parent alive; but not one that is being opened or closed in
// the moment of the fork. Their numbers stay taken in the child, by empty descriptors, until their owners close them.
// Any thread; no fork waits for one that opens, nor the other way round.
class OwnDescriptors {
 public:
  // Returns what `open` returns: a descriptor, or -1 and errno. `open` must not wait.
  template <typename Open>
  static int open(Open&& open_one) {
    MutexLock lock(mutex());
    return add(open_one());
  }
  static void close(int descriptor) noexcept;

 private:
  static Mutex& mutex();
  static int add(int descriptor) noexcept;
};

// A socket that another library owns and closes at any time: a forked child gives it up as well, unless its number has
// been reused by then. Does nothing if the descriptor is no socket, or without memory. Any thread.
class NotedSocket {
 public:
  NotedSocket() = default;
  explicit NotedSocket(int descriptor) noexcept;
  ~NotedSocket();
  NotedSocket(NotedSocket&& other) noexcept;
  NotedSocket& operator=(NotedSocket&& other) noexcept;
  // Whether the number is still that of the socket.
  bool is_there() const noexcept;

 private:
  int number_ = -1;
  ino_t inode_ = 0;  // unique in the system, for a socket
};

}  // namespace distag
