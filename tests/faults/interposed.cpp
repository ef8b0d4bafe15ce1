// Functions of the C library as the faults of this process make them. The program's own names come first for all that
// it loads.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "faults/fault_points.h"

namespace {

using distag::faults::fault_points;
using distag::faults::Way;

bool ends_with(const char* text, const char* end) {
  const size_t length = std::strlen(text), tail = std::strlen(end);
  return length >= tail && std::strcmp(text + length - tail, end) == 0;
}

// Of the files of a rendezvous, which alone are called so here. A full disk is one from that step on.
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

}  // namespace

extern "C" {

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

int rename(const char* from, const char* to) {
  if (is_refused(from, "/draft", "Group.rename")) return -1;
  return static_cast<int>(syscall(SYS_rename, from, to));
}

}  // extern "C"
