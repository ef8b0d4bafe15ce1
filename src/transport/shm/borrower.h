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

// The addresses that blocks of peers take here, over all lanes of a worker: blocks are sparse, so their memory does not
// bound them. Any thread.
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

// The loans of the other side of a lane: the blocks that it has shown, mapped for reading. A frame keeps its block
// mapped, even after the lane is gone, and notifies the lender when its last owner goes, on any thread. Memory that the
// other side gives back is this worker's own. A block that cannot be mapped for want of mappings or addresses is tried
// again with each loan in it; until then its loans go back at once, and their frames are lost. The Borrower itself: one
// thread.
class Borrower final : public LoanReader {
 public:
  // `background`: unmaps memory, as that may take long; nullptr: it is unmapped on the thread that frees it.
  Borrower(std::shared_ptr<const LaneMemory> memory, const PeerLoans& loans, std::shared_ptr<BorrowedRoom> room,
           Executor* background);
  ~Borrower() override;
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;

  // Takes a block, or its end. Closes the descriptor in any case. Throws PROTOCOL if it is invalid, OUT_OF_MEMORY.
  void take(const ShownBlock& block, int memory_fd);
  Frame read(const Loan& loan, size_t size) override;
  // The place of bytes that were borrowed here; nullopt: they were not.
  std::optional<LentPlace> find(const std::byte* data, size_t size) const;
  bool has_block(uint64_t id) const { return blocks_.contains(id); }
  bool has_blocks() const { return !blocks_.empty(); }
  // Called now and then: blocks that were not read since the last call no longer count as memory of this process, until
  // they are read again.
  void tidy();

 private:
  struct Mapping;
  struct Block {
    std::shared_ptr<Mapping> mapping;
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
