#include "transport/shm/borrower.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/each_step.h"
#include "base/error.h"
#include "base/memory.h"
#include "transport/socket/descriptors.h"

namespace distag {
namespace {

constexpr uint64_t kLargestBlock = uint64_t{1} << 40;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int fd() const { return fd_; }
  void close() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

}  // namespace

struct Borrower::Mapping {
  const std::shared_ptr<BorrowedRoom> room;
  const size_t size;
  Descriptor memory;  // until it is mapped
  const std::byte* data = nullptr;

  // Throws PROTOCOL if the blocks of all peers would take too many addresses.
  Mapping(std::shared_ptr<BorrowedRoom> room_, size_t size_, Descriptor memory_)
      : room(std::move(room_)), size(size_), memory(std::move(memory_)) {
    if (room->take(size)) return;
    fail(Status::kProtocol, "a block of a lane, of {} bytes: all blocks that a worker borrows take at most {}", size,
         BorrowedRoom::kMost);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data != nullptr) munmap(const_cast<std::byte*>(data), size);
    room->give_back(size);
  }

  // False: the system has no mapping or no addresses for it now.
  bool map() noexcept {
    if (data != nullptr) return true;
    void* const begin = mmap(nullptr, size, PROT_READ, MAP_SHARED, memory.fd(), 0);
    if (begin == MAP_FAILED) return false;
    data = static_cast<const std::byte*>(begin);
    memory.close();
    return true;
  }
};

Borrower::Borrower(std::shared_ptr<const LaneMemory> memory, const PeerLoans& loans, std::shared_ptr<BorrowedRoom> room,
                   Executor* background)
    : memory_(std::move(memory)), loans_(loans), room_(std::move(room)), background_(background) {}

Borrower::~Borrower() {
  for (auto& [id, block] : blocks_) later([mapping = std::move(block.mapping)] {});
}

// Without memory to post the task, it is destroyed here without having run.
void Borrower::later(Task task) noexcept {
  if (background_ == nullptr) return task();
  EachStep each;
  each([this, &task] { background_->post_or_drop(std::move(task)); });
}

void Borrower::tidy() {
  for (auto& [id, block] : blocks_) {
    if (std::exchange(block.is_fresh, false) || !std::exchange(block.is_present, false)) continue;
    later([mapping = block.mapping] {
      madvise(const_cast<std::byte*>(mapping->data), mapping->size, MADV_DONTNEED);  // the pages stay the lender's
    });
  }
}

void Borrower::take(const ShownBlock& block, int memory_fd) {
  Descriptor descriptor(memory_fd);
  if (block.size == 0) {
    const auto found = blocks_.find(block.id);
    if (found == blocks_.end()) fail(Status::kProtocol, "block {} of a lane is gone that was never there", block.id);
    later([mapping = std::move(found->second.mapping)] {});
    blocks_.erase(found);
    return;
  }
  if (blocks_.contains(block.id) || blocks_.size() >= kMaxShownBlocks || block.size > kLargestBlock) {
    fail(Status::kProtocol, "block {} of a lane, of {} bytes, is shown twice or beyond the bounds", block.id,
         block.size);
  }
  check_sealed_memory(memory_fd, block.size);
  const int seals = fcntl(memory_fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_FUTURE_WRITE) == 0) {
    fail(Status::kProtocol, "block {} of a lane is no memory that others can map to read alone", block.id);
  }
  auto mapping = std::make_shared<Mapping>(room_, block.size, std::move(descriptor));
  if (!mapping->map() && !has_descriptors(kDialReserve)) {  // a block that is not mapped keeps its descriptor
    fail(Status::kOutOfMemory, "a block of a lane cannot be mapped, and too few descriptors are left to keep it: {}",
         kMemoryCure);
  }
  blocks_.emplace(block.id, Block{std::move(mapping)});
}

std::optional<LentPlace> Borrower::find(const std::byte* data, size_t size) const {
  for (const auto& [id, block] : blocks_) {
    const Mapping& mapping = *block.mapping;
    if (mapping.data == nullptr || data < mapping.data || data >= mapping.data + mapping.size) continue;
    const auto offset = static_cast<size_t>(data - mapping.data);
    if (size <= mapping.size - offset) return LentPlace{id, offset};
  }
  return std::nullopt;
}

Frame Borrower::read(const Loan& loan, size_t size) {
  if (loan.check != loan.checksum(size)) fail(Status::kProtocol, "the place of a loan was changed on its way");
  if ((loan.number & ~kGivenBack) >= kMaxLoans) fail(Status::kProtocol, "a lane has no loan {}", loan.number);
  if ((loan.number & kGivenBack) != 0) return read_given_back(loan, size);
  const auto found = blocks_.find(loan.block);
  if (found == blocks_.end()) fail(Status::kProtocol, "a loan in block {} of a lane, which was not shown", loan.block);
  const std::shared_ptr<Mapping>& mapping = found->second.mapping;
  if (loan.offset > mapping->size || size > mapping->size - loan.offset) {
    fail(Status::kProtocol, "loan {} of {} bytes at {} is outside of its block of {} bytes", loan.number, size,
         loan.offset, mapping->size);
  }
  if (!mapping->map()) {
    memory_->returned(loan.number).store(1, std::memory_order_release);
    return Frame::lost(size).as_loan();
  }
  found->second.is_fresh = found->second.is_present = true;
  const std::byte* const data = mapping->data + loan.offset;
  // A forked child has no lender to notify.
  const std::shared_ptr<const void> owner(data, [memory = memory_, mapping, number = loan.number](const void*) {
    if (memory->is_here()) memory->returned(number).store(1, std::memory_order_release);
  });
  return Frame(data, size, owner).as_loan();
}

// The frame holds its memory like its owners here: the peer that gives it back may release its own hold.
Frame Borrower::read_given_back(const Loan& loan, size_t size) {
  const std::optional<Frame> frame = loans_.find_lent({loan.block, loan.offset}, size);
  if (!frame) {
    fail(Status::kProtocol, "{} bytes at {} of block {} are given back that are not lent", size, loan.offset,
         loan.block);
  }
  memory_->returned(loan.number & ~kGivenBack).store(1, std::memory_order_release);
  return frame->as_loan();
}

}  // namespace distag
