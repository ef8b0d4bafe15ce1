#include "transport/zmtp/outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

namespace distag {
namespace {

constexpr size_t kMostPieces = 64;  // in one system call

}  // namespace

void Outbox::reserve(size_t count) {
  if (pieces_.size() + count <= pieces_.capacity()) return;
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<ptrdiff_t>(first_));
  first_ = 0;
  // Doubled, so that many small messages rarely reallocate.
  if (pieces_.size() + count > pieces_.capacity()) pieces_.reserve(2 * (pieces_.size() + count));
}

void Outbox::add(Frames pieces) {
  reserve(pieces.size());
  size_t bytes = 0;
  for (const Frame& piece : pieces) bytes += piece.size();
  // Inserts at the end of a vector are all or nothing.
  pieces_.insert(pieces_.end(), std::make_move_iterator(pieces.begin()), std::make_move_iterator(pieces.end()));
  bytes_ += bytes;
}

Outbox::Written Outbox::write_to(int fd, size_t most) {
  for (size_t written = 0; !is_empty();) {
    if (written >= most) return Written::kSome;
    std::array<iovec, kMostPieces> parts;
    size_t count = 0;
    size_t size = 0;
    for (; count < kMostPieces && first_ + count < pieces_.size() && written + size < most; ++count) {
      const Frame& piece = pieces_[first_ + count];
      const size_t done = count == 0 ? first_done_ : 0;
      // The system does not write to the bytes.
      parts[count] = {const_cast<std::byte*>(piece.data() + done), piece.size() - done};
      size += parts[count].iov_len;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Written::kBlocked : Written::kGone;
    note_written(static_cast<size_t>(sent));
    if (static_cast<size_t>(sent) < size) return Written::kBlocked;
    written += size;
  }
  return Written::kAll;
}

void Outbox::note_written(size_t count) {
  bytes_ -= count;
  first_done_ += count;
  while (first_ < pieces_.size() && first_done_ >= pieces_[first_].size()) {
    const Frame written = std::exchange(pieces_[first_++], Frame());
    first_done_ -= written.size();
  }
  if (is_empty()) clear();
}

void Outbox::clear() {
  constexpr size_t kKept = 64;
  if (pieces_.capacity() > kKept) {
    pieces_ = {};
  } else {
    pieces_.clear();
  }
  first_ = 0;
  first_done_ = 0;
  bytes_ = 0;
}

}  // namespace distag
