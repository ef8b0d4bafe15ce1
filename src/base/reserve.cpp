#include "base/reserve.h"

#include <new>
#include <utility>

#include "base/mutex.h"

namespace distag {
namespace {

thread_local Reserve* t_reserve = nullptr;

}  // namespace

Reserve::Reserve() {
  for (size_t i = 0; i < kSizes.size(); ++i) shelves_[i].missing = kSizes[i].count;
  is_short_.store(true, std::memory_order_relaxed);
  if (refill()) return;
  for (Shelf& shelf : shelves_) {
    while (shelf.first != nullptr) ::operator delete(std::exchange(shelf.first, shelf.first->next));
  }
  throw std::bad_alloc();
}

Reserve::~Reserve() {
  for (Shelf& shelf : shelves_) {
    while (shelf.first != nullptr) ::operator delete(std::exchange(shelf.first, shelf.first->next));
  }
}

void* Reserve::take(size_t size) noexcept {
  MutexLock lock(mutex_);
  is_short_.store(true, std::memory_order_relaxed);
  for (size_t i = 0; i < kSizes.size(); ++i) {
    Shelf& shelf = shelves_[i];
    if (kSizes[i].bytes < size || shelf.first == nullptr) continue;
    ++shelf.missing;
    return std::exchange(shelf.first, shelf.first->next);
  }
  return nullptr;
}

bool Reserve::refill() noexcept {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < kSizes.size(); ++i) {
    Shelf& shelf = shelves_[i];
    while (shelf.missing > 0) {
      void* const memory = ::operator new(kSizes[i].bytes, std::nothrow);
      if (memory == nullptr) return false;
      shelf.first = ::new (memory) Block{shelf.first};
      --shelf.missing;
    }
  }
  is_short_.store(false, std::memory_order_relaxed);
  return true;
}

Reserve* exchange_reserve(Reserve* reserve) noexcept { return std::exchange(t_reserve, reserve); }
Reserve* current_reserve() noexcept { return t_reserve; }

}  // namespace distag
