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
std::atomic<uint64_t> misuses{0};

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

// The remains of a handle, at its place. Smaller than any handle.
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

Handle::Handle(Kind kind)
    : kind_(kind), generation_(process_generation()), references_(kind == Kind::kReleased ? 0 : kHost) {
  if (kind == Kind::kReleased) return;
  validates();
  if (kind != Kind::kStandIn) count_one();
}

// Also of a handle that could not be made as a whole.
Handle::~Handle() {
  if (kind_ == Kind::kReleased || kind_ == Kind::kStandIn || is_of_parent()) return;
  count.fetch_sub(1, std::memory_order_relaxed);
}

bool Handle::is_of_parent() const { return generation_ != process_generation(); }

bool Handle::add_unless_ended(uint64_t reference) noexcept {
  uint64_t now = references_.load(std::memory_order_relaxed);
  while (now != 0 && !references_.compare_exchange_weak(now, now + reference, std::memory_order_relaxed)) {
  }
  return now != 0;
}

void Handle::release() noexcept {
  if (references_.fetch_sub(kLibrary, std::memory_order_acq_rel) == kLibrary) end();
}

Handle::Dropped Handle::drop_host_reference() noexcept {
  uint64_t now = references_.load(std::memory_order_relaxed);
  do {
    if (now < kHost) return Dropped::kNone;
  } while (!references_.compare_exchange_weak(now, now - kHost, std::memory_order_acq_rel, std::memory_order_relaxed));
  if (now == kHost) end();
  return now < 2 * kHost ? Dropped::kLast : Dropped::kOne;
}

void Handle::end() noexcept {
  if (is_of_parent() && !is_plain_memory()) return;
  void* memory = this;
  this->~Handle();
  if (validates()) {
    (::new (memory) ReleasedHandle)->keep_aside();
  } else {
    ::operator delete(memory);
  }
}

void note_misuse() {
  if (validates()) misuses.fetch_add(1, std::memory_order_relaxed);
}

uint64_t misuse_count() { return misuses.load(std::memory_order_relaxed); }

uint64_t handle_count() {
  return count_generation.load(std::memory_order_relaxed) == process_generation()
             ? count.load(std::memory_order_relaxed)
             : 0;
}

}  // namespace distag::capi
