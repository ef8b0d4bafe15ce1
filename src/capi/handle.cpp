#include "capi/handle.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"

namespace distag::capi {

bool read_validation() {
  const char* text = std::getenv("DISTAG_VALIDATE");
  const bool is_on = text != nullptr && std::strcmp(text, "1") == 0;
  validation.store(is_on ? Validation::kOn : Validation::kOff, std::memory_order_relaxed);
  return is_on;
}

struct HandleRecord {
  Kind kind;
  const char* maker;  // nullptr: distag itself, for a callback
  Nanos made;
  uint32_t generation;
  HandleRecord* next;
  std::atomic<bool> is_live{true};
  std::atomic<bool> is_lent{false};
  std::atomic<bool> is_released{false};  // by the host; the library needs it still
};

namespace {

// Process-wide, with no destructors: the count belongs to the generation it was last changed in.
std::atomic<uint64_t> count{0};
std::atomic<uint32_t> count_generation{0};
std::atomic<uint64_t> misuses{0};

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

// Names and counts of the handles by kind, in the order of Kind.
constexpr std::array<const char*, 13> kKindNames = {"value", "tensor", "rref",    "worker",    "invocation",
                                                    "reply", "future", "context", "gradients", "optimizer",
                                                    "mesh",  "loader", "plan"};
std::array<std::atomic<uint64_t>, kKindNames.size()> count_by_kind{};

size_t place_of(Kind kind) { return static_cast<size_t>(kind) - static_cast<size_t>(Kind::kReleased) - 1; }
static_assert(static_cast<size_t>(Kind::kStandIn) - static_cast<size_t>(Kind::kReleased) - 1 == kKindNames.size());

// In a forked child the first handle starts a new count.
void count_one(Kind kind) {
  const uint32_t generation = process_generation();
  if (count_generation.load(std::memory_order_relaxed) != generation) {
    count.store(0, std::memory_order_relaxed);
    for (auto& of_kind : count_by_kind) of_kind.store(0, std::memory_order_relaxed);
    count_generation.store(generation, std::memory_order_relaxed);
  }
  count.fetch_add(1, std::memory_order_relaxed);
  count_by_kind[place_of(kind)].fetch_add(1, std::memory_order_relaxed);
}

thread_local const char* current_maker = nullptr;

// All records ever made, the latest first: nothing leaves the list, so it needs no lock, in a forked child either.
std::atomic<HandleRecord*> records{nullptr};

bool is_counted(Kind kind) { return kind != Kind::kReleased && kind != Kind::kStandIn; }

HandleRecord* record_birth(Kind kind) {
  if (!is_counted(kind) || !validates()) return nullptr;
  auto* record = new HandleRecord{kind, current_maker, SteadyClock().now(), process_generation(), nullptr};
  record->next = records.load(std::memory_order_relaxed);
  while (!records.compare_exchange_weak(record->next, record, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return record;
}

// Describes each live handle of this process.
std::string describe_records() {
  const Nanos now = SteadyClock().now();
  std::string text;
  for (const HandleRecord* record = records.load(std::memory_order_acquire); record != nullptr; record = record->next) {
    if (!record->is_live.load(std::memory_order_relaxed) || record->generation != process_generation()) continue;
    text +=
        fmt::format(R"({}{{"kind":"{}","made_by":"{}","age_ms":{},"lent":{},"released":{}}})", text.empty() ? "" : ",",
                    kKindNames[place_of(record->kind)], record->maker == nullptr ? "distag" : record->maker,
                    (now - record->made) / kMillisecond, record->is_lent.load(std::memory_order_relaxed),
                    record->is_released.load(std::memory_order_relaxed));
  }
  return text;
}

}  // namespace

Handle::Handle(Kind kind)
    : kind_(kind),
      generation_(process_generation()),
      references_(kind == Kind::kReleased ? 0 : kHost),
      record_(record_birth(kind)) {
  if (kind == Kind::kReleased) return;
  validates();
  if (is_counted(kind)) count_one(kind);
}

// Runs also for a handle whose construction failed.
Handle::~Handle() {
  if (!is_counted(kind_) || is_of_parent()) return;
  count.fetch_sub(1, std::memory_order_relaxed);
  count_by_kind[place_of(kind_)].fetch_sub(1, std::memory_order_relaxed);
  if (record_ != nullptr) record_->is_live.store(false, std::memory_order_relaxed);
}

void Handle::mark_lent() {
  is_lent_ = true;
  if (record_ != nullptr) record_->is_lent.store(true, std::memory_order_relaxed);
  pass_to_library();
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
  if (now < 2 * kHost && record_ != nullptr) record_->is_released.store(true, std::memory_order_relaxed);
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

const char* MakerScope::exchange(const char* function) { return std::exchange(current_maker, function); }

std::string handle_report() {
  std::string kinds;
  uint64_t live = 0;
  const bool is_of_this_process = handle_count() != 0;
  for (size_t i = 0; is_of_this_process && i < kKindNames.size(); ++i) {
    const uint64_t of_kind = count_by_kind[i].load(std::memory_order_relaxed);
    if (of_kind == 0) continue;
    kinds += fmt::format(R"({}"{}":{})", kinds.empty() ? "" : ",", kKindNames[i], of_kind);
    live += of_kind;
  }
  std::string text = fmt::format(R"({{"live":{},"kinds":{{{}}})", live, kinds);
  if (validates()) text += fmt::format(R"(,"handles":[{}])", describe_records());
  return text + "}";
}

uint64_t handle_count() {
  return count_generation.load(std::memory_order_relaxed) == process_generation()
             ? count.load(std::memory_order_relaxed)
             : 0;
}

}  // namespace distag::capi
