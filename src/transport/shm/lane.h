#pragma once

#include <functional>
#include <memory>

#include "transport/shm/borrower.h"
#include "transport/shm/lane_context.h"
#include "transport/shm/lane_memory.h"
#include "transport/shm/lane_socket.h"
#include "transport/shm/lender.h"
#include "transport/shm/ring_message.h"

namespace distag {

// None of these is called inside a call on the lane; each may close the lane, except on_lack.
struct LaneEvents {
  std::function<void(Frames frames)> on_message;
  std::function<void()> on_writable;
  // The last event: the other side has hung up, and all earlier messages were handed out; or it wrote invalid data.
  std::function<void()> on_dropped;
  // Before on_dropped: data is lost for lack of a resource here. `why` as in AcceptorEvents. May not close the lane.
  std::function<void(const Error& why)> on_lack = nullptr;
};

// An end of an open lane: messages go by a ring each way, and the socket carries wakes and the end. Large frames of
// the dialling side are loans. The other side may write to a ring at any time; an invalid count or message ends the
// lane. Held by shared_ptr, because a callback may end its owner. On the loop.
class Lane : public std::enable_shared_from_this<Lane>, LoanReader, PeerLoans {
 public:
  // `worker`: the number that the other side gives as its own.
  Lane(std::shared_ptr<LaneContext> context, LaneMemory memory, LaneSocket socket, bool is_dialler, LaneEvents events,
       uint64_t worker = 0);
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Begins to read and write.
  void open();
  // No callback follows.
  void close() noexcept;
  // All or nothing, like Connection::send. If it throws bad_alloc, nothing was taken.
  bool send(const Frames& frames);
  // Like Connection::lend.
  void lend(Frames& frames, size_t ahead);

  // The methods below are for the context.
  bool turn();  // true: something was done, so there may be more
  bool has_work() const noexcept { return is_broken_ || is_hung_up_ || reader_.has_bytes() || writer_.may_go_on(); }
  bool is_under_way() const noexcept { return reader_.is_under_way() || writer_.has_rest(); }
  bool begin_sleep() noexcept;
  void end_sleep() noexcept;
  // Called now and then: collects returned loans, and tells the other side which blocks are gone.
  void tidy();
  // Whether tidy() may have work.
  bool has_blocks() const { return (lender_ && lender_->has_shown()) || (borrower_ && borrower_->has_blocks()); }
  const LanePeer& other() const { return other_; }
  const Lender* lender() const { return lender_.get(); }
  // nullptr also after the other side has hung up: it no longer tracks its loans.
  const Borrower* borrower() const { return is_hung_up_ ? nullptr : borrower_.get(); }
  size_t loans_out() const { return lender_ ? lender_->loans_out() : 0; }
  size_t bytes_out() const { return lender_ ? lender_->bytes_out() : 0; }

 private:
  Frame read(const Loan& loan, size_t size) override;
  const PeerLoans& loans() const { return *this; }
  std::optional<LentPlace> find_borrowed(const std::byte* data, size_t size) const override;
  std::optional<Frame> find_lent(const LentPlace& place, size_t size) const override;
  void read_socket();
  bool read_packet();
  void take_block(const ShownBlock& block, int memory_fd);
  void break_for(const Error& error);
  void freeze();
  std::optional<Frames> next_message(size_t most);
  bool go_on();
  bool write_rest();
  bool read();
  void wake_other(uint32_t bits) noexcept;

  const std::shared_ptr<LaneContext> context_;
  const std::shared_ptr<const LaneMemory> memory_;
  LaneSocket socket_;
  const LanePeer other_;
  std::unique_ptr<Lender> lender_;      // on the dialling side
  std::unique_ptr<Borrower> borrower_;  // on the accepting side
  SleepWord& own_sleep_;
  SleepWord& other_sleep_;
  LaneEvents events_;
  RingMessageReader reader_;
  RingMessageWriter writer_;
  bool is_open_ = false;
  bool is_broken_ = false;   // the next turn ends the lane
  bool is_hung_up_ = false;  // by the other side
  bool wants_to_write_ = false;
  unsigned vain_wakes_ = 0;  // in a row
};

}  // namespace distag
