#include "session/sent_messages.h"

#include <algorithm>
#include <utility>

namespace distag {

void SentMessages::add(Sent sent) {
  const size_t bytes = sent.bytes;
  const size_t chunk_bytes = sent.chunk_bytes;
  const uint64_t number = sent.number;
  unacknowledged_.push_back(std::move(sent));
  last_number_ = number;
  chunk_bytes_ += chunk_bytes;
  stats_.bytes_in_flight += bytes;
}

// Numbers have no gaps, so the index follows from the number.
SentMessages::Sent* SentMessages::next_to_transmit() {
  if (has_all_transmitted()) return nullptr;
  return &unacknowledged_[static_cast<size_t>(next_to_transmit_ - unacknowledged_.front().number)];
}

void SentMessages::note_transmitted(Sent& sent) {
  if (sent.is_transmitted) ++stats_.messages_replayed;
  sent.is_transmitted = true;
  ++next_to_transmit_;
}

void SentMessages::rewind() { next_to_transmit_ = is_empty() ? last_number_ + 1 : unacknowledged_.front().number; }

// On a new connection the peer may acknowledge what an earlier connection took: those messages do not go again.
std::optional<SentMessages::Sent> SentMessages::take_acknowledged(uint64_t number) {
  if (is_empty() || unacknowledged_.front().number > number) return std::nullopt;
  Sent sent = unacknowledged_.take_front();
  stats_.bytes_in_flight -= sent.bytes;
  chunk_bytes_ -= sent.chunk_bytes;
  next_to_transmit_ = std::max(next_to_transmit_, sent.number + 1);
  return sent;
}

void SentMessages::clear() {
  for (size_t i = 0; i < unacknowledged_.size(); ++i) stats_.bytes_in_flight -= unacknowledged_[i].bytes;
  unacknowledged_.clear();
  next_to_transmit_ = last_number_ + 1;
  chunk_bytes_ = 0;
}

}  // namespace distag
