#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/task.h"
#include "transport/transport.h"
#include "wire/codec.h"

namespace distag {

// Payload frames of one peer that come in chunks. Each piece is copied once, to where the whole frame will lie, or is
// the whole frame itself if it need not move. Loans that lie one behind the other form the whole frame in place. A
// transfer begins with its first chunk, grows without a gap, and ends with the message that names it or when it is
// abandoned; its id is never used again. On the loop. Throws Violation for an invalid sender, but nothing for a
// shortage here, nor for a piece that is lost: the message that names the transfer reports that.
class Transfers {
 public:
  // At most `limit` bytes at a time, in transfers that no message has named yet.
  Transfers(size_t limit, FrameMemory& memory, bool keeps_whole, bool keeps_loans)
      : limit_(limit), memory_(memory), keeps_whole_(keeps_whole), keeps_loans_(keeps_loans) {}

  void add(const wire::Chunk& chunk);
  // The whole frame, for the message that names it; nullopt: there was no memory for it. The frame may be read only
  // after the tasks added to `rest` have run; they copy, which takes long.
  std::optional<Frame> take(uint64_t transfer, std::vector<Task>& rest);
  // Puts the frames that came in pieces into their places among `frames`, a long header first. All transfers are taken
  // even if there was no memory for one of them; the result is false then.
  bool assemble(const wire::Arrival& arrival, Frames& frames, Frame& long_header, std::vector<Task>& rest);
  void clear();

 private:
  using Owners = std::vector<std::shared_ptr<const void>>;
  struct Partial {
    std::shared_ptr<std::byte> memory;  // nullptr for a frame that came in one piece, or in loans
    Frame whole;
    size_t received = 0;
    std::shared_ptr<Owners> loans;  // set as long as the frame lies in loans
    Frame lent;                     // the part that lay in loans before a piece lay elsewhere; copied bit by bit
    size_t copied = 0;              // bytes of `lent` copied so far
  };

  static void add_to(Partial& partial, const Frame& piece);
  static void give_up(Partial& partial);
  static void copy_lent(Partial& partial, size_t most);
  static void leave_rest(Partial& partial, std::vector<Task>& rest);
  void move_to_memory(Partial& partial);
  void move_to_memory(Frames& frames) const;
  void begin(const wire::Chunk& chunk);
  bool is_forgotten(uint64_t transfer) const { return forgets_ && transfer <= last_begun_; }

  const size_t limit_;
  FrameMemory& memory_;
  const bool keeps_whole_;
  const bool keeps_loans_;
  std::map<uint64_t, Partial> partial_;
  uint64_t last_begun_ = 0;
  bool forgets_ = false;  // there was no memory even to note that a transfer has begun
  size_t bytes_ = 0;
};

}  // namespace distag
