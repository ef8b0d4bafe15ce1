#include "capi/handle.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/process.h"

namespace distag::capi {
namespace {

// Process-wide, with no destructors: the count belongs to the generation it was last changed in.
std::atomic<uint64_t> count{0};
std::atomic<uint32_t> count_generation{0};

enum class Validation : int { kUnknown, kOff, kOn };
std::atomic<Validation> validation{Validation::kUnknown};

bool validates() {
  Validation now = validation.load(std::memory_order_relaxed);
  if (now == Validation::kUnknown) {
    const char* text = std::getenv("DISTAG_VALIDATE");
    now = text != nullptr && std::strcmp(text, "1") == 0 ? Validation::kOn : Validation::kOff;
    validation.store(now, std::memory_order_relaxed);
  }
  return now == Validation::kOn;
}

// What is left where a handle was. Smaller than any handle.
class ReleasedHandle;
std::atomic<ReleasedHandle*> kept_aside{nullptr};

class ReleasedHandle final : public Handle {
 public:
  ReleasedHandle() : Handle(Kind::kReleased) {}

  void keep_aside() {
    next_ = kept_aside.load(std::memory_order_relaxed);
    while (!kept_aside.compare_exchange_weak(next_, this, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

 private:
  ReleasedHandle* next_ = nullptr;
};
static_assert(sizeof(ReleasedHandle) <= sizeof(Handle) + sizeof(void*));

// In a forked child the first handle starts a new count.
void count_one() {
  const uint32_t generation = process_generation();
  if (count_generation.load(std::memory_order_relaxed) != generation) {
    count.store(0, std::memory_order_relaxed);
    count_generation.store(generation, std::memory_order_relaxed);
  }
  count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Handle::Handle(Kind kind) : kind_(kind), generation_(process_generation()) {
  if (kind == Kind::kReleased) return;
  validates();
  count_one();
}

bool Handle::is_of_parent() const { return generation_ != process_generation(); }

void Handle::release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) end();
}

void Handle::release_by_caller() noexcept {
  uint32_t now = references_.load(std::memory_order_acquire);
  while (is_lent_.load(std::memory_order_relaxed)) {
    if (now <= 1) return;  // the lender's
    if (references_.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel, std::memory_order_acquire)) return;
  }
  release();
}

void Handle::end() noexcept {
  if (is_of_parent()) {
    if (!is_plain_memory()) return;
  } else {
    count.fetch_sub(1, std::memory_order_relaxed);
  }
  void* memory = this;
  this->~Handle();
  if (validates()) {
    (::new (memory) ReleasedHandle)->keep_aside();
  } else {
    ::operator delete(memory);
  }
}

uint64_t handle_count() {
  return count_generation.load(std::memory_order_relaxed) == process_generation()
             ? count.load(std::memory_order_relaxed)
             : 0;
}

}  // namespace distag::capi
