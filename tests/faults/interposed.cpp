// Functions of the C library as the faults of this process make them. The program's own names come first for all that
// it loads.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

#include "faults/etcd_requests.h"
#include "faults/fault_points.h"
#include "faults/handshake.h"

namespace {

using distag::faults::fault_points;
using distag::faults::handshakes;
using distag::faults::Way;

bool ends_with(const char* text, const char* end) {
  const size_t length = std::strlen(text), tail = std::strlen(end);
  return length >= tail && std::strcmp(text + length - tail, end) == 0;
}

// Only files of a rendezvous reach the calls below. A disk that is full at a step stays full.
bool is_refused(const char* path, const char* end, const char* step) {
  if (!ends_with(path, end)) return false;
  fault_points().reach(step, Way::kSent);
  if (!fault_points().is_disk_full()) return false;
  errno = ENOSPC;
  return true;
}

void add(timespec* time, int64_t nanoseconds) {
  const int64_t sum = time->tv_nsec + nanoseconds % 1000000000;
  time->tv_sec += nanoseconds / 1000000000 + (sum >= 1000000000 ? 1 : 0) - (sum < 0 ? 1 : 0);
  time->tv_nsec = sum - (sum >= 1000000000 ? 1000000000 : 0) + (sum < 0 ? 1000000000 : 0);
}

// The answer of `take`, which takes what has come by the descriptor; without what vanishes on its way.
template <typename Take>
ssize_t take_by(int fd, const void* room, const Take& take) {
  while (true) {
    const ssize_t size = take();
    if (size <= 0 || !fault_points().is_of_handshake()) return size;
    const std::string_view bytes(static_cast<const char*>(room), static_cast<size_t>(size));
    handshakes().reach(Way::kArrived, bytes);
    if (!handshakes().lose(fd, Way::kArrived, bytes)) return size;
  }
}

// The answer of `give`, which sends `size` bytes; where they vanish, that all were sent. A word of a handshake begins
// in the first piece of them.
template <typename Give>
ssize_t give_by(int fd, std::string_view first_piece, size_t size, const Give& give) {
  if (!fault_points().is_of_handshake()) return give();
  if (handshakes().lose(fd, Way::kSent, first_piece)) return static_cast<ssize_t>(size);
  const ssize_t given = give();
  if (given > 0) handshakes().reach(Way::kSent, first_piece);
  return given;
}

}  // namespace

extern "C" {

// By which libzmq takes and gives, and libcurl.
ssize_t recv(int fd, void* room, size_t size, int flags) {
  return take_by(fd, room, [=] { return distag::faults::receive_answer(fd, room, size, flags); });
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
  return give_by(fd, {static_cast<const char*>(data), size}, size,
                 [=] { return distag::faults::send_request(fd, data, size, flags); });
}

// By which distag's own engine does.
ssize_t read(int fd, void* room, size_t size) {
  return take_by(fd, room, [=] { return syscall(SYS_read, fd, room, size); });
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const auto give = [=] { return syscall(SYS_sendmsg, fd, message, flags); };
  if (message->msg_iovlen == 0) return give();
  size_t size = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) size += message->msg_iov[i].iov_len;
  return give_by(fd, {static_cast<const char*>(message->msg_iov->iov_base), message->msg_iov->iov_len}, size, give);
}

int clock_gettime(clockid_t clock, timespec* time) {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_MONOTONIC) add(time, fault_points().steady_offset());
  if (result == 0 && clock == CLOCK_REALTIME) add(time, fault_points().date_offset());
  return static_cast<int>(result);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0 && is_refused(path, "/lock", "Lock.open")) return -1;
  if ((flags & O_CREAT) != 0 && is_refused(path, "/draft", "Draft.open")) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

ssize_t write(int fd, const void* data, size_t size) {
  char link[64], path[512] = {0};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const bool is_file = size > sizeof(uint64_t) && fd > STDERR_FILENO && readlink(link, path, sizeof path - 1) > 0;
  if (!is_file || !is_refused(path, "/draft", "Draft.write")) return syscall(SYS_write, fd, data, size);
  syscall(SYS_write, fd, data, size / 2);  // what still fits
  errno = ENOSPC;
  return -1;
}

int close(int fd) {
  if (fault_points().is_of_handshake()) handshakes().forget(fd);
  return static_cast<int>(syscall(SYS_close, fd));
}

int rename(const char* from, const char* to) {
  if (is_refused(from, "/draft", "Group.rename")) return -1;
  return static_cast<int>(syscall(SYS_rename, from, to));
}

}  // extern "C"
