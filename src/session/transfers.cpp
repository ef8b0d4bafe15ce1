#include "session/transfers.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

// What a transfer costs beside its bytes, so that many tiny ones are limited as well.
constexpr size_t kOverhead = 256;

}  // namespace

void Transfers::add(const wire::Chunk& chunk) {
  if (chunk.abandoned) {
    auto found = partial_.find(chunk.transfer);
    if (found == partial_.end()) fail(Status::kProtocol, "transfer {} was abandoned, but never begun", chunk.transfer);
    bytes_ -= found->second.whole.size() + kOverhead;
    partial_.erase(found);
    return;
  }
  if (chunk.offset == 0) begin(chunk);
  auto found = partial_.find(chunk.transfer);
  if (found == partial_.end()) fail(Status::kProtocol, "a chunk of transfer {}, which was never begun", chunk.transfer);
  Partial& partial = found->second;
  if (chunk.offset != partial.received || chunk.total != partial.whole.size()) {
    fail(Status::kProtocol, "a chunk at {} of {} of transfer {}, of which {} of {} bytes have come", chunk.offset,
         chunk.total, chunk.transfer, partial.received, partial.whole.size());
  }
  if (partial.memory) std::memcpy(partial.memory.get() + partial.received, chunk.piece.data(), chunk.piece.size());
  partial.received += chunk.piece.size();
}

void Transfers::begin(const wire::Chunk& chunk) {
  if (chunk.transfer <= last_begun_) fail(Status::kProtocol, "transfer {} was begun twice", chunk.transfer);
  if (chunk.total > limit_ || bytes_ > limit_ - static_cast<size_t>(chunk.total)) {
    fail(Status::kProtocol,
         "a message of {} bytes, with {} more on their way, is above the max_message_bytes of the receiver",
         chunk.total, bytes_);
  }
  const auto total = static_cast<size_t>(chunk.total);
  Partial partial;
  if (keeps_whole_ && chunk.piece.size() == total) {
    partial.whole = chunk.piece;
  } else {
    partial.memory = memory_.allocate(total);
    partial.whole = Frame(partial.memory.get(), total, partial.memory);
  }
  partial_.emplace(chunk.transfer, std::move(partial));
  last_begun_ = chunk.transfer;
  bytes_ += total + kOverhead;
}

Frame Transfers::get(uint64_t transfer) const {
  const auto found = partial_.find(transfer);
  if (found == partial_.end() || found->second.received != found->second.whole.size()) {
    fail(Status::kProtocol, "a message names transfer {}, which has not come", transfer);
  }
  return found->second.whole;
}

void Transfers::forget(uint64_t transfer) {
  const auto found = partial_.find(transfer);
  if (found == partial_.end()) fail(Status::kProtocol, "a message names transfer {} twice", transfer);
  bytes_ -= found->second.whole.size() + kOverhead;
  partial_.erase(found);
}

void Transfers::clear() {
  partial_.clear();
  bytes_ = 0;
}

}  // namespace distag
