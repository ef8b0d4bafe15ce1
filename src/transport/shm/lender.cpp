#include "transport/shm/lender.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

// The other side may have so much at a time: above it frames go by the ring.
constexpr size_t kMaxBytesOut = size_t{1} << 30;
// Of what is ahead, as it comes.
constexpr size_t kLoanBytes = size_t{1} << 20;

// A copy in shared memory; the frame itself where there is none.
Frame move_to_shared(const Frame& frame) {
  std::byte* const place = shared_memory::allocate(frame.size(), false);
  if (place == nullptr) return frame;
  std::shared_ptr<const void> owner(place, [place](const void*) { shared_memory::free(place); });
  std::memcpy(place, frame.data(), frame.size());
  return Frame(place, frame.size(), std::move(owner));
}

}  // namespace

Lender::Lender(std::shared_ptr<const LaneMemory> memory) : memory_(std::move(memory)) {
  free_.reserve(kMaxLoans);
  out_.reserve(kMaxLoans);
  for (uint32_t number = kMaxLoans; number-- > 0;) free_.push_back(number);
}

Lender::~Lender() {
  collect();
  for (const Out& out : out_) shared_memory::abandon(out.frame.data());
}

void Lender::lend(Frames& frames, size_t ahead, LaneSocket& socket) {
  const size_t later = (ahead + kLoanBytes - 1) / kLoanBytes;  // loans
  size_t loans = out_.size() + later;
  size_t bytes = bytes_out_ + ahead;
  for (size_t i = 1; i < frames.size(); ++i) {
    Frame& frame = frames[i];
    const bool has_room = loans < kMaxLoans && bytes + frame.size() <= kMaxBytesOut;
    if (frame.size() < shared_memory::kLeastBytes || !has_room) continue;
    auto found = shared_memory::find(frame.data(), frame.size());
    if (!found) {
      const Frame moved = move_to_shared(frame);
      found = shared_memory::find(moved.data(), moved.size());
      if (found) frame = moved;
    }
    if (!found || !show(*found, socket)) continue;
    frame = frame.as_loan();
    bytes += frame.size();
    ++loans;
  }
}

// Before the first loan in it goes by the ring.
bool Lender::show(const shared_memory::Found& found, LaneSocket& socket) {
  const SharedBlock& block = *found.block;
  if (shown_.contains(block.id())) return true;
  if (shown_.size() >= kMaxShownBlocks) return false;
  const auto place = shown_.emplace(block.id(), found.block).first;
  if (socket.send(ShownBlock{block.id(), block.size()}, block.fd())) return true;
  shown_.erase(place);
  return false;
}

std::vector<Loan> Lender::note(const Frames& frames) {
  std::vector<Loan> loans;
  for (const Frame& frame : frames) {
    if (!frame.is_loan()) continue;
    const auto found = shared_memory::find(frame.data(), frame.size());
    if (!found || !shown_.contains(found->block->id()) || loans.size() >= free_.size()) {
      fail(Status::kInvalidState, "a loan of {} bytes that this lane has not made", frame.size());
    }
    Loan loan{found->block->id(), found->offset, free_[free_.size() - 1 - loans.size()], 0};
    loan.check = loan.checksum(frame.size());
    loans.push_back(loan);
  }
  for (const Frame& frame : frames) {
    if (!frame.is_loan()) continue;
    const uint32_t number = free_.back();
    free_.pop_back();
    memory_->returned(number).store(0, std::memory_order_relaxed);  // the ring publishes it
    out_.push_back({number, frame});
    bytes_out_ += frame.size();
  }
  return loans;
}

void Lender::take_back(size_t count) {
  for (; count > 0; --count) {
    free_.push_back(out_.back().number);
    bytes_out_ -= out_.back().frame.size();
    out_.pop_back();
  }
}

void Lender::collect() {
  std::erase_if(out_, [this](const Out& out) {
    if (memory_->returned(out.number).load(std::memory_order_acquire) == 0) return false;
    free_.push_back(out.number);
    bytes_out_ -= out.frame.size();
    return true;
  });
}

void Lender::forget_retired(LaneSocket& socket) {
  std::erase_if(shown_, [&socket](const auto& shown) {
    return shown.second->is_retired() && socket.send(ShownBlock{shown.first, 0}, -1);
  });
}

}  // namespace distag
