#pragma once

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

}  // namespace distag
