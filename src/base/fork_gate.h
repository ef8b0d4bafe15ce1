#pragma once

#include <cstdint>

namespace distag {

// While one exists this process does not fork: fork() waits, on whatever thread, and new ones wait for a fork that
// waits. For calls into libraries of others whose threads do not survive a fork. They do not nest, and run no code of
// the host. Any thread but a loop, which must not wait for a fork that waits.
class NoFork {
 public:
  // Throws OUT_OF_MEMORY where the system takes no handler of forks.
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;

  // Those that this process and its parents have begun since distag was loaded.
  uint64_t forks() const noexcept;
};

}  // namespace distag
