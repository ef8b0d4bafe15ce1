#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/transport.h"

namespace distag {

// A place in the lender's blocks.
struct LentPlace {
  uint64_t block = 0;
  uint64_t offset = 0;
};

// The memory that this worker and the one at the other end of a lane have of each other, over all lanes between them: a
// lane lends one way, and a loan goes back to its owner by another lane. On the loop.
class PeerLoans {
 public:
  virtual ~PeerLoans() = default;
  // Memory of the other worker that this one has borrowed; nullopt: it is not borrowed.
  virtual std::optional<LentPlace> find_borrowed(const std::byte* data, size_t size) const = 0;
  // Memory of this worker, if the other one now has all of these bytes on loan; its owners hold it as before. nullopt:
  // it does not.
  virtual std::optional<Frame> find_lent(const LentPlace& place, size_t size) const = 0;
};

}  // namespace distag
