// Allocation within the library alone. The linker redirects operator new of all modules here (--wrap in
// cmake/library.cmake). The functions here call the process's own, which the host may have replaced, and whose operator
// delete frees what they return. A thread with a reserve falls back on that.

#include <cstddef>
#include <new>

#include "base/reserve.h"

// The names that the linker gives: of new(size_t) and new[](size_t).
extern "C" {
void* __real__Znwm(size_t size);
void* __real__Znam(size_t size);
void* __wrap__Znwm(size_t size);
void* __wrap__Znam(size_t size);
}

namespace {

__attribute__((noinline, cold)) void* take_from_reserve(size_t size) {
  distag::Reserve* const reserve = distag::current_reserve();
  void* const memory = reserve == nullptr ? nullptr : reserve->take(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* __wrap__Znwm(size_t size) {
  try {
    return __real__Znwm(size);
  } catch (const std::bad_alloc&) {
    return take_from_reserve(size);
  }
}

void* __wrap__Znam(size_t size) {
  try {
    return __real__Znam(size);
  } catch (const std::bad_alloc&) {
    return take_from_reserve(size);
  }
}
