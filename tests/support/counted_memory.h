#pragma once

#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>

// Counts what operator new gives in a whole program, by replacing it: one source of the program includes this.
namespace distag::testing {

inline std::atomic<int64_t> bytes_in_use{0};
inline std::atomic<int64_t> most_in_use{0};
inline std::atomic<int64_t> allocations{0};

inline void note_taken(int64_t size) {
  const int64_t now = bytes_in_use += size;
  int64_t most = most_in_use;
  while (now > most && !most_in_use.compare_exchange_weak(most, now)) {
  }
}

struct Taken {
  int64_t bytes;  // more at the peak than before
  int64_t allocations;
};

inline Taken taken_by(const std::function<void()>& body) {
  const int64_t before = bytes_in_use;
  const int64_t allocations_before = allocations;
  most_in_use = before;
  body();
  return {most_in_use - before, allocations - allocations_before};
}

}  // namespace distag::testing

void* operator new(size_t size) {
  void* const place = std::malloc(size);
  if (place == nullptr) throw std::bad_alloc();
  ++distag::testing::allocations;
  distag::testing::note_taken(static_cast<int64_t>(malloc_usable_size(place)));
  return place;
}

void operator delete(void* place) noexcept {
  if (place != nullptr) distag::testing::note_taken(-static_cast<int64_t>(malloc_usable_size(place)));
  std::free(place);
}

void operator delete(void* place, size_t) noexcept { operator delete(place); }
