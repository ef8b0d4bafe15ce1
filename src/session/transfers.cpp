#include "session/transfers.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/violation.h"

namespace distag {
namespace {

// The cost of a transfer beside its bytes, so that many tiny ones are limited as well.
constexpr size_t kOverhead = 256;

}  // namespace

void Transfers::add(const wire::Chunk& chunk) {
  if (chunk.abandoned) {
    auto found = partial_.find(chunk.transfer);
    if (found == partial_.end()) {
      if (is_forgotten(chunk.transfer)) return;
      violation("transfer {} was abandoned, but never begun", chunk.transfer);
    }
    bytes_ -= found->second.whole.size() + kOverhead;
    partial_.erase(found);
    return;
  }
  if (chunk.offset == 0) begin(chunk);
  auto found = partial_.find(chunk.transfer);
  if (found == partial_.end()) {
    if (is_forgotten(chunk.transfer)) return;
    violation("a chunk of transfer {}, which was never begun", chunk.transfer);
  }
  Partial& partial = found->second;
  if (chunk.offset != partial.received || chunk.total != partial.whole.size()) {
    violation("a chunk at {} of {} of transfer {}, of which {} of {} bytes have come", chunk.offset, chunk.total,
              chunk.transfer, partial.received, partial.whole.size());
  }
  if (partial.memory) std::memcpy(partial.memory.get() + partial.received, chunk.piece.data(), chunk.piece.size());
  partial.received += chunk.piece.size();
}

void Transfers::begin(const wire::Chunk& chunk) {
  if (chunk.transfer <= last_begun_) violation("transfer {} was begun twice", chunk.transfer);
  if (chunk.total > limit_ || bytes_ > limit_ - static_cast<size_t>(chunk.total)) {
    violation("a message of {} bytes, with {} more on their way, is above the max_message_bytes of the receiver",
              chunk.total, bytes_);
  }
  last_begun_ = chunk.transfer;
  const auto total = static_cast<size_t>(chunk.total);
  Partial partial;
  if (keeps_whole_ && chunk.piece.size() == total) {
    partial.whole = chunk.piece;
  } else {
    try {
      partial.memory = memory_.allocate(total);
    } catch (...) {
      // The message that names it will hear of that.
    }
    partial.whole = Frame(partial.memory.get(), total, partial.memory);
  }
  try {
    partial_.emplace(chunk.transfer, std::move(partial));
  } catch (const std::bad_alloc&) {
    forgets_ = true;
    return;
  }
  bytes_ += total + kOverhead;
}

std::optional<Frame> Transfers::take(uint64_t transfer) {
  auto found = partial_.find(transfer);
  if (found == partial_.end() && is_forgotten(transfer)) return std::nullopt;
  if (found == partial_.end() || found->second.received != found->second.whole.size()) {
    violation("a message names transfer {}, which has not come", transfer);
  }
  Frame whole = std::move(found->second.whole);
  partial_.erase(found);
  bytes_ -= whole.size() + kOverhead;
  if (whole.data() == nullptr) return std::nullopt;
  return whole;
}

void Transfers::clear() {
  partial_.clear();
  bytes_ = 0;
}

}  // namespace distag
