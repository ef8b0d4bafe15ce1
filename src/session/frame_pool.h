#pragma once

#include <cstddef>
#include <memory>

#include "transport/transport.h"

namespace distag {

// Blocks of whole pages. Some blocks that come back are kept for the next payload of about the same size, since fresh
// pages cost more than the copy into them; the others go back to the system at once. Blocks may come back after the
// pool is gone. Thread-safe.
class FramePool final : public FrameMemory {
 public:
  FramePool();
  ~FramePool() override;  // frees the blocks that are kept

  std::shared_ptr<std::byte> allocate(size_t size) override;
  // Frees the kept blocks that were not reused since the last call.
  void trim();
  size_t kept_bytes() const;

 private:
  struct Shelf;
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace distag
