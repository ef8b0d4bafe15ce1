#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/shared_memory.h"
#include "transport/shm/lane_memory.h"
#include "transport/shm/lane_socket.h"
#include "transport/shm/peer_loans.h"
#include "transport/shm/ring_message.h"
#include "transport/transport.h"

namespace distag {

// The books of who lends over a lane: which blocks the other side has been shown, and which loans it still has. A loan
// holds its frame until the word on it is set in the memory of the lane; the other side may set any word, which ends a
// loan too early for itself alone. Memory that the other side has lent is given back to it by its name there, as one
// more loan. Of one thread.
class Lender {
 public:
  Lender(std::shared_ptr<const LaneMemory> memory, const PeerLoans& loans);
  ~Lender();  // what is still out may be read for good
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // As Connection::lend; of frames that are large enough, and lie in shared memory, here or of the other side, or find
  // room there. Shows their blocks by `socket`. Nothing is out by that yet.
  void lend(Frames& frames, size_t ahead, LaneSocket& socket);
  // The loans among the frames are out from now on, in their order. Only right after lend() of the same frames; throws
  // INVALID_STATE else, bad_alloc, and then none of them is.
  std::vector<Loan> note(const Frames& frames);
  // The loans of the last note() have not gone.
  void take_back(size_t count);
  // Takes back those that the other side has let go of.
  void collect();
  // As PeerLoans, of this lane.
  std::optional<Frame> find(const LentPlace& place, size_t size) const;
  // Tells of the blocks that are gone.
  void forget_retired(LaneSocket& socket);

  bool has_shown() const { return !shown_.empty(); }
  size_t loans_out() const { return out_.size(); }
  size_t bytes_out() const { return bytes_out_; }

 private:
  struct Out {
    Loan loan;
    Frame frame;

    bool is_given_back() const { return (loan.number & kGivenBack) != 0; }
    uint32_t number() const { return loan.number & ~kGivenBack; }
  };

  bool find_or_move(Frame& frame, LaneSocket& socket);
  bool show(const shared_memory::Found& found, LaneSocket& socket);
  Loan loan_of(const Frame& frame, uint32_t number) const;

  const std::shared_ptr<const LaneMemory> memory_;
  const PeerLoans& loans_;
  std::map<uint64_t, std::shared_ptr<SharedBlock>> shown_;  // by id
  std::vector<uint32_t> free_;                              // numbers of loans
  std::vector<Out> out_;
  size_t bytes_out_ = 0;
};

}  // namespace distag
