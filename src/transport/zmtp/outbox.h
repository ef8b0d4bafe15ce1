#pragma once

#include <cstddef>
#include <vector>

#include "transport/transport.h"

namespace distag {

// The bytes that a socket has not taken yet, in order. One thread: owners of frames are released there, as soon as
// their bytes are written.
class Outbox {
 public:
  // From this many bytes on nothing more should be added. Each piece counts for some bytes more.
  static constexpr size_t kFull = 1u << 20;

  bool is_empty() const { return first_ == pieces_.size(); }
  bool is_full() const { return bytes_ + (pieces_.size() - first_) * kPerPiece >= kFull; }

  // After this, `count` pieces can be added without memory. Throws bad_alloc.
  void reserve(size_t count);
  // All or nothing: throws bad_alloc. None of the pieces may be empty.
  void add(Frames pieces);

  enum class Written { kAll, kSome, kBlocked, kGone };
  // Writes up to `most` bytes, and a part of a piece beyond. kSome: the socket may take more. kGone: errno says why.
  Written write_to(int fd, size_t most);

  void clear();

 private:
  static constexpr size_t kPerPiece = 128;

  void note_written(size_t count);

  std::vector<Frame> pieces_;
  size_t first_ = 0;       // the first unwritten piece
  size_t first_done_ = 0;  // written bytes of that piece
  size_t bytes_ = 0;       // unwritten
};

}  // namespace distag
