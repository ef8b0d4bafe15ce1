#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/executor.h"
#include "transport/shm/lane_memory.h"
#include "transport/shm/lane_socket.h"
#include "transport/shm/peer_loans.h"
#include "transport/shm/ring_message.h"

namespace distag {

// The addresses that blocks of others take here, all lanes of a worker together: blocks are sparse, and their memory is
// no bound. Any thread.
class BorrowedRoom {
 public:
  static constexpr uint64_t kMost = uint64_t{8} << 40;

  bool take(uint64_t bytes) {
    const uint64_t before = taken_.fetch_add(bytes, std::memory_order_relaxed);
    if (before <= kMost && bytes <= kMost - before) return true;
    give_back(bytes);
    return false;
  }
  void give_back(uint64_t bytes) { taken_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> taken_{0};
};

// The loans of the other side of a lane: the blocks it has shown, mapped to be read. A frame of them keeps its block
// mapped, also when the lane is gone, and tells the lender when its last owner has let go, on any thread. What the
// other side gives back is memory of this one. Itself of one thread.
class Borrower final : public LoanReader {
 public:
  // `background`: where memory is unmapped, as that may take long; nullptr: where it comes up.
  Borrower(std::shared_ptr<const LaneMemory> memory, const PeerLoans& loans, std::shared_ptr<BorrowedRoom> room,
           Executor* background);
  ~Borrower() override;
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;

  // A word of the lender. The descriptor is closed in any case. Throws PROTOCOL for one that cannot be, OUT_OF_MEMORY.
  void take(const ShownBlock& block, int memory_fd);
  Frame read(const Loan& loan, size_t size) override;
  // Where bytes lie that were borrowed here; nullopt: they were not.
  std::optional<LentPlace> find(const std::byte* data, size_t size) const;
  bool has_block(uint64_t id) const { return blocks_.contains(id); }
  bool has_blocks() const { return !blocks_.empty(); }
  // Now and then: blocks that nothing was read from since the last time count as memory of this process no more, until
  // they are read again.
  void tidy();

 private:
  struct Mapping;
  struct Block {
    std::shared_ptr<const Mapping> mapping;
    bool is_fresh = false;  // a loan in it has come since the last tidy()
    bool is_present = false;
  };

  void later(Task task) noexcept;
  Frame read_given_back(const Loan& loan, size_t size);

  const std::shared_ptr<const LaneMemory> memory_;
  const PeerLoans& loans_;
  const std::shared_ptr<BorrowedRoom> room_;
  Executor* const background_;
  std::map<uint64_t, Block> blocks_;
};

}  // namespace distag
