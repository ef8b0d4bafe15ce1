#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace distag {

// Cross-memory attach: a process copies from the memory of another one of the same user. Where the system does not
// allow it (another user, namespace or machine, a sandbox), nothing can be read. Any thread.

struct MemoryPiece {
  uint64_t address;  // there
  void* out;         // here
  size_t size;
};

// Copies the pieces in this order. False unless all of them could be read to their end.
bool read_process_memory(int64_t process, std::span<const MemoryPiece> pieces);

// The number of this process, as others name it.
int64_t this_process();
bool belongs_to_this_user(int64_t process);

}  // namespace distag
