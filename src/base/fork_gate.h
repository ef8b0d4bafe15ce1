#pragma once

#include <cstdint>

namespace distag {

// While a NoFork exists this process does not fork: fork() waits, on whatever thread, and a new NoFork waits for a fork
// that waits. It guards calls into libraries of others whose threads do not survive a fork. A NoFork is not made within
// another one, and no code of the host runs within it. On any thread but a loop, which must not wait for a fork.
class NoFork {
 public:
  // Throws OUT_OF_MEMORY where the system takes no handler of forks.
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;

  // Forks that this process and its parents have begun since distag was loaded.
  uint64_t forks() const noexcept;
};

}  // namespace distag
