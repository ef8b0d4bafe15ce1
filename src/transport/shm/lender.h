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

// The records of the lending side of a lane: the blocks that the other side has been shown, and the loans that it still
// has. A loan holds its frame until its flag is set in the memory of the lane; the other side may set any flag, but to
// end a loan too early harms only itself. Memory that the other side has lent is given back to it by its own name
// there, as one more loan. One thread.
class Lender {
 public:
  Lender(std::shared_ptr<const LaneMemory> memory, const PeerLoans& loans);
  ~Lender();  // loans that are out may be read for ever
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // Like Connection::lend, for large frames in shared memory, of either side, or copied there. Shows their blocks by
  // `socket`. The frames only count as lent after note().
  void lend(Frames& frames, size_t ahead, LaneSocket& socket);
  // Counts the loans among the frames as out, in their order. Only right after lend() of the same frames: throws
  // INVALID_STATE otherwise, and bad_alloc. Then none of them is out.
  std::vector<Loan> note(const Frames& frames);
  // The loans of the last note() were not sent.
  void take_back(size_t count);
  // Takes back loans that the other side has released.
  void collect();
  // Like PeerLoans, for this lane.
  std::optional<Frame> find(const LentPlace& place, size_t size) const;
  // Tells the other side which blocks are gone.
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
  std::vector<uint32_t> free_;                              // free numbers of loans
  std::vector<Out> out_;
  size_t bytes_out_ = 0;
};

}  // namespace distag
