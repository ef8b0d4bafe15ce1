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

// Payload frames of one peer that come in chunks: each piece is copied once, to where the whole frame will lie; or is
// the whole frame, if it need not go to that memory. Loans that lie one behind the other are the whole frame where they
// lie. A transfer begins with its first chunk, grows without a gap, and ends with the message that names it or when it
// is abandoned; its id never comes again. On the loop. Throws Violation for what a sender may not do, and nothing for a
// shortage here: the message that names the transfer hears of that.
class Transfers {
 public:
  // At most `limit` bytes at a time, in transfers that no message has named yet.
  Transfers(size_t limit, FrameMemory& memory, bool keeps_whole, bool keeps_loans)
      : limit_(limit), memory_(memory), keeps_whole_(keeps_whole), keeps_loans_(keeps_loans) {}

  void add(const wire::Chunk& chunk);
  // The whole frame, for the message that names it; nullopt: there was no memory for it. It may be read once what is
  // added to `rest` has run, which copies and takes long.
  std::optional<Frame> take(uint64_t transfer, std::vector<Task>& rest);
  // Puts the frames that came in pieces in their places among `frames`, a long header first. All of them are taken,
  // also when there was no memory for one: then this is false.
  bool assemble(const wire::Arrival& arrival, Frames& frames, Frame& long_header, std::vector<Task>& rest);
  void clear();

 private:
  using Owners = std::vector<std::shared_ptr<const void>>;
  struct Partial {
    std::shared_ptr<std::byte> memory;  // none for a frame that came in one piece, or in loans
    Frame whole;
    size_t received = 0;
    std::shared_ptr<Owners> loans;  // as long as it lies in them
    Frame lent;                     // was in loans, until one lay elsewhere: it is copied a bit at a time
    size_t copied = 0;              // of that
  };

  static void add_to(Partial& partial, const Frame& piece);
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
  bool forgets_ = false;  // there was no memory even for the note that one has begun
  size_t bytes_ = 0;
};

}  // namespace distag
