#include "base/timings.h"

#include <algorithm>
#include <functional>
#include <new>

namespace distag {
namespace {

bool is_used(const Histogram::Counts& counts) {
  return std::any_of(counts.buckets.begin(), counts.buckets.end(), [](uint64_t count) { return count != 0; });
}

}  // namespace

// The memory has no initialiser: what was never used is never touched. The slot of kOther is there from the start.
Timings::Timings() : memory_(new std::byte[(kMostFunctions + 1) * sizeof(Slot)]) {
  Slot& others = *new (memory_.get() + kMostFunctions * sizeof(Slot)) Slot;
  others.size = std::string_view(kOther).copy(others.name.data(), others.name.size());
}

Timings::Slot& Timings::slot(size_t number) const noexcept {
  return *std::launder(reinterpret_cast<Slot*>(memory_.get() + number * sizeof(Slot)));
}

// A slot is made before its number is in the table, and then stays.
uint8_t Timings::claim(std::string_view name, size_t place) noexcept {
  MutexLock lock(mutex_);
  for (;; place = (place + 1) % kPlaces) {
    const uint8_t known = table_[place].load(std::memory_order_relaxed);
    if (known == 0) break;
    if (slot(known - 1u).text() == name) return known;
  }
  const size_t number = count_.load(std::memory_order_relaxed);
  if (number == kMostFunctions) return kMostFunctions + 1;
  Slot& made = *new (memory_.get() + number * sizeof(Slot)) Slot;
  made.size = name.copy(made.name.data(), made.name.size());
  const auto known = static_cast<uint8_t>(number + 1);
  table_[place].store(known, std::memory_order_release);
  count_.store(number + 1, std::memory_order_release);
  return known;
}

Timings::Slot& Timings::slot_of(std::string_view name, std::atomic<uint8_t>& last) noexcept {
  if (const uint8_t again = last.load(std::memory_order_acquire); again != 0 && slot(again - 1u).text() == name) {
    return slot(again - 1u);
  }
  if (name == kOther || name.size() > sizeof(Slot::name)) return slot(kMostFunctions);
  const bool is_full = count_.load(std::memory_order_acquire) == kMostFunctions;
  size_t place = std::hash<std::string_view>()(name) % kPlaces;
  uint8_t known = 0;
  for (;; place = (place + 1) % kPlaces) {
    known = table_[place].load(std::memory_order_acquire);
    if (known == 0 || slot(known - 1u).text() == name) break;
  }
  if (known == 0 && is_full) return slot(kMostFunctions);
  if (known == 0) known = claim(name, place);
  last.store(known, std::memory_order_release);
  return slot(known - 1u);
}

void Timings::add(const TraceEvent& event, std::string_view name) noexcept {
  const Nanos taken = event.end - event.begin;
  switch (event.category) {
    case TraceCategory::kCall:
      return slot_of(name, last_made_).made.add(taken);
    case TraceCategory::kServed: {
      if (event.queued < 0) return;
      Slot& of = slot_of(name, last_served_);
      of.queued.add(event.queued);
      return of.served.add(taken);
    }
    case TraceCategory::kPass:
      if (!event.is_part) passes_.add(taken);
      return;
    case TraceCategory::kCollective:
      return collectives_.add(taken);
    default:
      return;
  }
}

std::vector<Timings::OfFunction> Timings::functions() const {
  std::vector<OfFunction> functions;
  const size_t count = count_.load(std::memory_order_acquire);
  const auto add = [&functions](const Slot& of) {
    functions.push_back({std::string(of.text()), of.made.counts(), of.queued.counts(), of.served.counts()});
  };
  for (size_t number = 0; number < count; ++number) add(slot(number));
  add(slot(kMostFunctions));
  const OfFunction& others = functions.back();
  if (!is_used(others.made) && !is_used(others.served)) functions.pop_back();
  return functions;
}

}  // namespace distag
