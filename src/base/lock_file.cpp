#include "base/lock_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/own_descriptors.h"
#include "base/regular_file.h"

namespace distag {
namespace {

struct flock lock_of(short type, uint64_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  return lock;
}

int control(int descriptor, int command, struct flock* lock) {
  int result = -1;
  do {
    result = fcntl(descriptor, command, lock);
  } while (result < 0 && errno == EINTR);
  return result;
}

std::string text_of(int number) { return std::error_code(number, std::generic_category()).message(); }

}  // namespace

void LockFile::open(const std::string& path) {
  close();
  path_ = path;
  descriptor_ = OwnDescriptors::open(
      [&path] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) fail(Status::kInvalidState, "cannot open \"{}\": {}", path, text_of(errno));
  try {
    check_regular_file(descriptor_, path);
  } catch (...) {
    close();
    throw;
  }
}

void LockFile::close() {
  if (descriptor_ < 0) return;
  struct flock all = lock_of(F_UNLCK, 0);
  all.l_len = 0;                            // all bytes
  control(descriptor_, F_OFD_SETLK, &all);  // at once: a child forked just now may still have the descriptor
  OwnDescriptors::close(std::exchange(descriptor_, -1));
}

bool LockFile::is_at_its_path() const {
  struct stat opened = {};
  struct stat found = {};
  return fstat(descriptor_, &opened) == 0 && stat(path_.c_str(), &found) == 0 && opened.st_ino == found.st_ino &&
         opened.st_dev == found.st_dev;
}

bool LockFile::try_lock(uint64_t byte) {
  struct flock lock = lock_of(F_WRLCK, byte);
  if (control(descriptor_, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  fail(Status::kInvalidState, "cannot lock \"{}\": {}", path_, text_of(errno));
}

void LockFile::unlock(uint64_t byte) {
  struct flock lock = lock_of(F_UNLCK, byte);
  control(descriptor_, F_OFD_SETLK, &lock);
}

bool LockFile::is_locked_by_another(uint64_t byte) const {
  struct flock lock = lock_of(F_WRLCK, byte);
  return control(descriptor_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace distag
