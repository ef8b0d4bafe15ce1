// Allocation within this program: the linker leads operator new here (--wrap), as it does in the library. Tasks of a
// worker whose memory is short get none.
#include <cstddef>
#include <new>

#include "support/sim_memory.h"

extern "C" {
void* __real__Znwm(size_t size);
void* __real__Znam(size_t size);
void* __wrap__Znwm(size_t size);
void* __wrap__Znam(size_t size);
}

namespace {

// A function of its own, for a breakpoint.
__attribute__((noinline, cold)) void refuse_allocation() { throw std::bad_alloc(); }

void ask() {
  distag::sim::SimMemory* const memory = distag::sim::current_memory();
  if (memory != nullptr && !memory->ask()) refuse_allocation();
}

}  // namespace

void* __wrap__Znwm(size_t size) {
  ask();
  return __real__Znwm(size);
}

void* __wrap__Znam(size_t size) {
  ask();
  return __real__Znam(size);
}
