#include "transport/shm/lane.h"

#include <unistd.h>

#include <new>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

// The most messages handed out before the loop turns to its other work.
constexpr int kMessagesPerTurn = 64;
// The limit in bytes, however fast the writer is: each byte is copied twice, maybe to memory that is touched for the
// first time.
constexpr size_t kLaneBytesPerTurn = 256 << 10;
// A loan costs only its note, unless it is copied to memory that the host provides.
constexpr size_t kLoanShare = 16;
// An honest side wakes only for a reason, but one wake may cross the loop's own.
constexpr unsigned kMaxVainWakes = 64;

}  // namespace

Lane::Lane(std::shared_ptr<LaneContext> context, LaneMemory memory, LaneSocket socket, bool is_dialler,
           LaneEvents events, uint64_t worker)
    : context_(std::move(context)),
      memory_(std::make_shared<const LaneMemory>(std::move(memory))),
      socket_(std::move(socket)),
      other_{worker, socket_.other_process()},
      lender_(is_dialler ? std::make_unique<Lender>(memory_, loans()) : nullptr),
      borrower_(is_dialler
                    ? nullptr
                    : std::make_unique<Borrower>(memory_, loans(), context_->borrowed_room(), context_->background())),
      own_sleep_(memory_->sleep_of(is_dialler)),
      other_sleep_(memory_->sleep_of(!is_dialler)),
      events_(std::move(events)),
      reader_(memory_->reader(is_dialler), is_dialler ? nullptr : this),
      writer_(memory_->writer(is_dialler)) {}

Lane::~Lane() { close(); }

void Lane::open() {
  assert_on_loop(context_->loop());
  context_->loop().watch(socket_.fd(), [weak = weak_from_this()] {
    if (const auto lane = weak.lock()) lane->read_socket();
  });
  context_->add(shared_from_this());
  is_open_ = true;
}

void Lane::close() noexcept {
  assert_on_loop(context_->loop());
  if (socket_.fd() >= 0) context_->loop().unwatch(socket_.fd());
  socket_ = LaneSocket();
  lender_ = nullptr;
  borrower_ = nullptr;
  if (std::exchange(is_open_, false)) context_->remove(*this);
}

void Lane::lend(Frames& frames, size_t ahead) {
  assert_on_loop(context_->loop());
  if (!lender_ || !is_open_ || is_hung_up_ || is_broken_ || writer_.has_rest()) return;
  lender_->collect();
  lender_->lend(frames, ahead, socket_);
}

void Lane::tidy() {
  assert_on_loop(context_->loop());
  if (borrower_) borrower_->tidy();
  if (!lender_ || !is_open_) return;
  lender_->collect();
  lender_->forget_retired(socket_);
}

// A block is shown before the first loan in it is written to the ring.
Frame Lane::read(const Loan& loan, size_t size) {
  const auto has_block = [this, &loan] { return (loan.number & kGivenBack) != 0 || borrower_->has_block(loan.block); };
  for (size_t i = 0; i < 2 * kMaxShownBlocks && !has_block() && read_packet(); ++i) continue;
  return borrower_->read(loan, size);
}

std::optional<LentPlace> Lane::find_borrowed(const std::byte* data, size_t size) const {
  return context_->find_borrowed(other_, data, size);
}

std::optional<Frame> Lane::find_lent(const LentPlace& place, size_t size) const {
  return context_->find_lent(other_, place, size);
}

bool Lane::send(const Frames& frames) {
  assert_on_loop(context_->loop());
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  if (!is_open_ || is_hung_up_ || is_broken_ || writer_.has_rest()) {
    wants_to_write_ = true;
    return false;
  }
  std::vector<Loan> loans;
  if (lender_) loans = lender_->note(frames);
  const size_t count = loans.size();
  try {
    writer_.begin(frames, std::move(loans));
  } catch (const std::bad_alloc&) {
    if (lender_) lender_->take_back(count);
    throw;
  } catch (...) {
    is_broken_ = true;
    return false;
  }
  context_->report().loans += count;
  wake_other(kSleepsForBytes);
  return true;
}

bool Lane::turn() {
  assert_on_loop(context_->loop());
  if (is_hung_up_) freeze();
  bool has_done = write_rest();
  if (is_open_ && read()) {
    has_done = true;
  } else if (is_hung_up_) {
    is_broken_ = true;  // all messages were read
  }
  if (!is_open_ || !is_broken_) return has_done;
  close();
  if (events_.on_dropped) events_.on_dropped();
  return true;
}

// The three methods below end the lane if the ring is invalid; exceptions of callbacks go to the caller.
void Lane::freeze() {
  try {
    reader_.freeze();
  } catch (...) {
    is_broken_ = true;
  }
}

std::optional<Frames> Lane::next_message(size_t most) {
  try {
    return reader_.next(most);
  } catch (...) {
    break_for(current_error());
    return std::nullopt;
  }
}

bool Lane::go_on() {
  try {
    return writer_.go_on();
  } catch (...) {
    is_broken_ = true;
    return false;
  }
}

bool Lane::write_rest() {
  bool has_done = false;
  if (writer_.may_go_on()) {
    has_done = go_on();
    vain_wakes_ = 0;
    wake_other(kSleepsForBytes);
  }
  if (wants_to_write_ && !writer_.has_rest() && !is_hung_up_) {
    wants_to_write_ = false;
    if (events_.on_writable) events_.on_writable();
    has_done = true;
  }
  return has_done;
}

bool Lane::read() {
  if (!reader_.has_bytes()) return false;
  vain_wakes_ = 0;
  size_t bytes = 0;
  for (int i = 0; i < kMessagesPerTurn && bytes < kLaneBytesPerTurn && is_open_; ++i) {
    std::optional<Frames> frames = next_message(kLaneBytesPerTurn - bytes);
    if (!frames) break;
    for (const Frame& frame : *frames) bytes += frame.is_loan() ? frame.size() / kLoanShare : frame.size();
    if (events_.on_message) events_.on_message(*std::move(frames));
  }
  if (is_open_) wake_other(kSleepsForRoom);
  return true;
}

// Reads one packet: there is rarely a second one, and for that the loop calls again.
void Lane::read_socket() {
  assert_on_loop(context_->loop());
  read_packet();
}

// False if there was no packet, or the end.
bool Lane::read_packet() {
  if (is_hung_up_ || is_broken_) return false;
  ShownBlock block;
  int memory_fd = -1;
  switch (socket_.receive_packet(block, memory_fd)) {
    case LaneSocket::Got::kNothing:
      return false;
    case LaneSocket::Got::kPacket:
      if (block.id != 0) {
        take_block(block, memory_fd);
      } else {
        ++context_->report().wakes_received;
        if (++vain_wakes_ > kMaxVainWakes) is_broken_ = true;
      }
      return true;
    case LaneSocket::Got::kEnd:
      break;
  }
  is_hung_up_ = true;
  context_->loop().unwatch(socket_.fd());
  return false;
}

void Lane::take_block(const ShownBlock& block, int memory_fd) {
  try {
    context_->tidy_later();
    if (borrower_) return borrower_->take(block, memory_fd);
    if (memory_fd >= 0) ::close(memory_fd);
    is_broken_ = true;
  } catch (...) {
    break_for(current_error());
  }
}

// Ends the lane; the other side makes a new one, or dials a socket.
void Lane::break_for(const Error& error) {
  is_broken_ = true;
  if (error.status() == Status::kOutOfMemory && events_.on_lack) events_.on_lack(error);
}

// Either the other side sees the bytes written before, or this one sees that it sleeps: both are in one total order.
void Lane::wake_other(uint32_t bits) noexcept {
  if ((other_sleep_.bits.load(std::memory_order_seq_cst) & bits) == 0) return;
  if (other_sleep_.bits.exchange(kAwake, std::memory_order_seq_cst) == kAwake) return;
  ++context_->report().wakes_sent;
  socket_.wake();
}

bool Lane::begin_sleep() noexcept {
  assert_on_loop(context_->loop());
  own_sleep_.bits.store(kSleepsForBytes | (writer_.has_rest() ? kSleepsForRoom : 0), std::memory_order_seq_cst);
  return has_work();
}

void Lane::end_sleep() noexcept {
  assert_on_loop(context_->loop());
  own_sleep_.bits.store(kAwake, std::memory_order_relaxed);
}

}  // namespace distag
