#pragma once

#include <cstdint>

namespace distag {

// While a NoFork exists this process does not fork: fork() waits, on any thread, and a new NoFork waits for a pending
// fork. It guards calls into third-party libraries whose threads do not survive a fork. A NoFork is not made within
// another one, and no host code runs within it. Any thread but a loop, which must not wait for a fork.
class NoFork {
 public:
  // Throws OUT_OF_MEMORY where the system accepted no fork handlers.
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;

  // Forks that this process and its parents have begun since distag was loaded.
  uint64_t forks() const noexcept;
};

}  // namespace distag
