#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace distag {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "the counts are shared between processes");

size_t RingWriter::room(size_t wanted) {
  if (size_ - (written_ - read_) < wanted) {
    const uint64_t read = counts_.read.load(std::memory_order_seq_cst);
    if (read - read_ > written_ - read_) {
      fail(Status::kProtocol, "the reader of a lane says that it has read {} bytes, of {}", read, written_);
    }
    read_ = read;
  }
  return size_ - (written_ - read_);
}

void RingWriter::write(const void* from, size_t count) noexcept {
  if (count == 0) return;
  const size_t begin = written_ & (size_ - 1);
  const size_t first = std::min(count, size_ - begin);
  std::memcpy(bytes_ + begin, from, first);
  if (first < count) std::memcpy(bytes_, static_cast<const std::byte*>(from) + first, count - first);
  written_ += count;
}

size_t RingReader::available(size_t wanted) {
  if (written_ - read_ < wanted && !is_frozen_) look();
  return written_ - read_;
}

void RingReader::look() {
  const uint64_t written = counts_.written.load(std::memory_order_seq_cst);
  if (written - read_ > size_ || written - read_ < written_ - read_) {
    fail(Status::kProtocol, "the writer of a lane says that it has written {} bytes, of which {} are read", written,
         read_);
  }
  written_ = written;
}

void RingReader::read(void* to, size_t count) noexcept {
  if (count == 0) return;
  const size_t begin = read_ & (size_ - 1);
  const size_t first = std::min(count, size_ - begin);
  std::memcpy(to, bytes_ + begin, first);
  if (first < count) std::memcpy(static_cast<std::byte*>(to) + first, bytes_, count - first);
  read_ += count;
}

void RingReader::freeze() {
  if (is_frozen_) return;
  is_frozen_ = true;
  look();
}

}  // namespace distag
