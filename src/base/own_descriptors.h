#pragma once

#include <sys/types.h>

#include "base/mutex.h"

namespace distag {

// The descriptors by which others see that this process lives: sockets, listeners, locks. A forked child gives them up
// before fork() returns there, else it would keep a dead parent alive. Their numbers stay taken in the child, by
// descriptors of nothing, until those who have them close them. Any thread.
class OwnDescriptors {
 public:
  // What `open` gives, or -1 and errno. No fork happens meanwhile: it must not wait.
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

// A socket of another library, which closes it when it likes: a forked child gives it up as well, unless something else
// has its number by then. Notes nothing for what is no socket, and without memory. Any thread.
class NotedSocket {
 public:
  NotedSocket() = default;
  explicit NotedSocket(int descriptor) noexcept;
  ~NotedSocket();
  NotedSocket(NotedSocket&& other) noexcept;
  NotedSocket& operator=(NotedSocket&& other) noexcept;
  // Its number is still that of the socket.
  bool is_there() const noexcept;

 private:
  int number_ = -1;
  ino_t inode_ = 0;  // of a socket it is unique in the system
};

}  // namespace distag
