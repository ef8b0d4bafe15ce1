#include "base/flight_recorder.h"

#include <algorithm>

#include "base/cut_text.h"

namespace distag {

FlightRecorder::FlightRecorder() : slots_(std::make_unique_for_overwrite<Slot[]>(kMost)) {
  static_assert(sizeof(Slot) == 128);
}

void FlightRecorder::add(const TraceEvent& event, std::string_view name, std::string_view peer) noexcept {
  name = cut_to(name, kTextSize - std::min(peer.size(), kLeastPeerSize));
  peer = cut_to(peer, kTextSize - name.size());
  MutexLock lock(mutex_);
  Slot& slot = slots_[count_++ % kMost];
  slot.begin = event.begin;
  slot.end = event.end;
  slot.bytes = event.bytes;
  slot.status = event.status;
  slot.category = event.category;
  slot.name_size = static_cast<uint8_t>(name.size());
  slot.peer_size = static_cast<uint8_t>(peer.size());
  std::copy(name.begin(), name.end(), slot.text);
  std::copy(peer.begin(), peer.end(), slot.text + name.size());
}

std::vector<FlightEvent> FlightRecorder::last(size_t most) const {
  std::vector<Slot> slots(std::min(most, kMost));
  {
    MutexLock lock(mutex_);
    slots.resize(std::min<uint64_t>(slots.size(), count_));  // this only shrinks
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = slots_[(count_ - slots.size() + i) % kMost];
  }
  std::vector<FlightEvent> events;
  events.reserve(slots.size());
  for (const Slot& slot : slots) {
    const std::string_view texts(slot.text, size_t{slot.name_size} + slot.peer_size);
    events.push_back({slot.category, slot.status, slot.begin, slot.end, slot.bytes,
                      std::string(texts.substr(0, slot.name_size)), std::string(texts.substr(slot.name_size))});
  }
  return events;
}

uint64_t FlightRecorder::count() const noexcept {
  MutexLock lock(mutex_);
  return count_;
}

}  // namespace distag
