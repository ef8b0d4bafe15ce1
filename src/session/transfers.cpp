#include "session/transfers.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/violation.h"
#include "session/stream_shared.h"

namespace distag {
namespace {

// The cost of a transfer besides its bytes, so that the number of tiny transfers is limited as well.
constexpr size_t kOverhead = 256;
constexpr size_t kCopiedAtATime = size_t{4} << 20;

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
  if (chunk.piece.is_lost()) {
    give_up(partial);
  } else if (partial.loans) {
    const bool is_behind = chunk.piece.is_loan() && chunk.piece.data() == partial.whole.data() + partial.received;
    if (!is_behind) move_to_memory(partial);
  }
  add_to(partial, chunk.piece);
}

// take() reports the shortage.
void Transfers::give_up(Partial& partial) {
  partial.whole = Frame::lost(partial.whole.size());
  partial.memory = nullptr;
  partial.loans = nullptr;
  partial.lent = {};
  partial.copied = 0;
}

// If there is no memory to hold a loan, the frame is given up.
void Transfers::add_to(Partial& partial, const Frame& piece) {
  if (partial.loans) {
    try {
      partial.loans->push_back(piece.owner());
    } catch (const std::bad_alloc&) {
      give_up(partial);
    }
  } else if (partial.memory) {
    std::memcpy(partial.memory.get() + partial.received, piece.data(), piece.size());
    copy_lent(partial, kCopiedAtATime);
  }
  partial.received += piece.size();
}

void Transfers::copy_lent(Partial& partial, size_t most) {
  const size_t count = std::min(most, partial.lent.size() - partial.copied);
  if (count == 0) return;
  std::memcpy(partial.memory.get() + partial.copied, partial.lent.data() + partial.copied, count);
  partial.copied += count;
  if (partial.copied == partial.lent.size()) partial.lent = {}, partial.copied = 0;
}

// Without memory for the task the rest is copied here.
void Transfers::leave_rest(Partial& partial, std::vector<Task>& rest) {
  const size_t from = partial.copied;
  const size_t count = partial.lent.size() - from;
  if (count == 0) return;
  try {
    rest.push_back([memory = partial.memory, lent = partial.lent, from, count] {
      std::memcpy(memory.get() + from, lent.data() + from, count);
    });
  } catch (const std::bad_alloc&) {
    copy_lent(partial, SIZE_MAX);
  }
}

// Called when a piece does not lie behind the loans before it. What has come is copied bit by bit, with each piece that
// follows, so that no turn of the loop takes long.
void Transfers::move_to_memory(Partial& partial) {
  partial.lent = Frame(partial.whole.data(), partial.received, std::exchange(partial.loans, nullptr));
  try {
    partial.memory = memory_.allocate(partial.whole.size());
  } catch (...) {
    partial.lent = {};  // the message that names the transfer reports the shortage
  }
  partial.whole = Frame(partial.memory.get(), partial.whole.size(), partial.memory);
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
  try {
    if (chunk.piece.is_lost()) {
      partial.whole = Frame::lost(total);
    } else if (keeps_loans_ && chunk.piece.is_loan()) {
      partial.loans = std::make_shared<Owners>();
      partial.whole = Frame(chunk.piece.data(), total, partial.loans).as_loan();
    } else if (keeps_whole_ && chunk.piece.size() == total) {
      partial.whole = chunk.piece;
    } else {
      partial.memory = memory_.allocate(total);
      partial.whole = Frame(partial.memory.get(), total, partial.memory);
    }
  } catch (...) {
    partial.whole = Frame::lost(total);  // the message that names the transfer reports the shortage
  }
  try {
    partial_.emplace(chunk.transfer, std::move(partial));
  } catch (const std::bad_alloc&) {
    forgets_ = true;
    return;
  }
  bytes_ += total + kOverhead;
}

// The transfer is removed whether or not it can be read: bytes_ counts only transfers that no message has named.
std::optional<Frame> Transfers::take(uint64_t transfer, std::vector<Task>& rest) {
  auto found = partial_.find(transfer);
  if (found == partial_.end() && is_forgotten(transfer)) return std::nullopt;
  if (found == partial_.end() || found->second.received != found->second.whole.size()) {
    violation("a message names transfer {}, which has not come", transfer);
  }
  leave_rest(found->second, rest);
  Frame whole = std::move(found->second.whole);
  partial_.erase(found);
  bytes_ -= whole.size() + kOverhead;
  if (whole.data() == nullptr) return std::nullopt;
  return whole;
}

// Copies large frames to payload memory, as long as there is some.
void Transfers::move_to_memory(Frames& frames) const {
  for (Frame& frame : frames) {
    if (frame.size() < kLargeFrameBytes || frame.is_lost() || (frame.is_loan() && keeps_loans_)) continue;
    try {
      std::shared_ptr<std::byte> bytes = memory_.allocate(frame.size());
      std::memcpy(bytes.get(), frame.data(), frame.size());
      const std::byte* data = bytes.get();
      frame = Frame(data, frame.size(), std::move(bytes));
    } catch (...) {
      return;  // they stay where they are
    }
  }
}

// After a violation the frames are not used. Otherwise each transfer is taken, so that none of them counts towards the
// limit any more.
bool Transfers::assemble(const wire::Arrival& arrival, Frames& frames, Frame& long_header, std::vector<Task>& rest) {
  // Pieces go to that memory in add().
  if (!keeps_whole_ && !arrival.is_chunk()) move_to_memory(frames);
  bool is_whole = true;
  auto insert = [&frames, &is_whole](size_t place, std::optional<Frame> frame) {
    is_whole = is_whole && frame.has_value();
    if (!is_whole) return;
    try {
      frames.insert(frames.begin() + static_cast<ptrdiff_t>(place), *std::move(frame));
    } catch (const std::bad_alloc&) {
      is_whole = false;
    }
  };
  if (arrival.long_transfer() != 0) {
    if (const auto header = take(arrival.long_transfer(), rest)) long_header = *header;
    is_whole = long_header.data() != nullptr;
  } else if (arrival.is_long()) {
    if (frames.empty()) violation("a LONG without its header");
    long_header = std::move(frames.front());
    frames.erase(frames.begin());
  }
  for (size_t i = 0; i < arrival.transfer_count(); ++i) {
    const wire::Transfer transfer = arrival.transfer(i);
    if (is_whole && transfer.frame > frames.size()) violation("a payload frame {} that is not there", transfer.frame);
    insert(transfer.frame, take(transfer.id, rest));
  }
  if (arrival.is_long()) insert(0, long_header);
  return is_whole;
}

void Transfers::clear() {
  partial_.clear();
  bytes_ = 0;
}

}  // namespace distag
