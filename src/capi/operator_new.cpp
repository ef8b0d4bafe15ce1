// Allocation within the library alone: the version script keeps these from being seen outside. They ask the process's
// own operator new, which the host may have replaced, and whose operator delete frees what they give. A thread with a
// reserve falls back on it.

#include <cstddef>
#include <new>

#include "base/reserve.h"

namespace {

using distag::Reserve;

void* served(void* memory, size_t size) {
  if (memory != nullptr) return memory;
  if (Reserve* const reserve = distag::current_reserve()) memory = reserve->take(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return served(::operator new(size, std::nothrow), size); }
void* operator new[](size_t size) { return served(::operator new[](size, std::nothrow), size); }
