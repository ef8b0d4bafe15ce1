#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/file_size.h"

namespace distag {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail_at(const char* verb, const std::string& path, int error) {
  // The error of open() for a FIFO without a reader, and for a socket.
  if (error == ENXIO) fail(Status::kInvalidState, "\"{}\" is no regular file: remove it", path);
  const bool is_short = error == EMFILE || error == ENFILE || error == ENOMEM;
  fail(is_short ? Status::kOutOfMemory : Status::kInvalidState, "\"{}\" cannot be {}: {}", path, verb,
       describe_file_error(error));
}

Descriptor open_to_read(const std::string& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// If the file was not opened, errno still has the error.
std::string read_all(const Descriptor& file, const std::string& path) {
  if (file.get() < 0) fail_at("read", path, errno);
  check_regular_file(file.get(), path);
  std::string content;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t got = read(file.get(), piece.data(), piece.size());
    if (got == 0) return content;
    if (got > 0) content.append(piece.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) fail_at("read", path, errno);
  }
}

void write_all(const Descriptor& file, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write_to_file(file.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) fail_at("written", path, errno);
    if (written > 0) content.remove_prefix(static_cast<size_t>(written));
  }
}

// A temporary file beside `path`, to be linked to that name; its own name is removed in any case.
class FileBeside {
 public:
  explicit FileBeside(const std::string& path) : path_(path + ".XXXXXX"), file_(mkostemp(path_.data(), O_CLOEXEC)) {
    if (file_.get() < 0) fail_at("made", path, errno);
    fchmod(file_.get(), S_IRUSR | S_IWUSR);  // the umask may have taken rights
  }
  ~FileBeside() { unlink(path_.c_str()); }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;
  const std::string& path() const { return path_; }
  const Descriptor& file() const { return file_; }

 private:
  std::string path_;
  Descriptor file_;
};

}  // namespace

void check_regular_file(int descriptor, const std::string& path) {
  struct stat status = {};
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return;
  fail(Status::kInvalidState, "\"{}\" is no regular file: remove it", path);
}

std::optional<std::string> read_regular_file(const std::string& path) {
  const Descriptor file = open_to_read(path);
  if (file.get() < 0 && errno == ENOENT) return std::nullopt;
  return read_all(file, path);
}

std::string read_system_file(const std::string& path) {
  const Descriptor file = open_to_read(path);
  std::string content;
  std::array<char, 256> piece;
  for (ssize_t got = 0; (got = read(file.get(), piece.data(), piece.size())) != 0;) {
    if (got > 0) content.append(piece.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  return content;
}

std::string read_private_file(const std::string& path) {
  const Descriptor file = open_to_read(path);
  struct stat status = {};
  if (file.get() >= 0 && fstat(file.get(), &status) == 0) {
    if (status.st_uid != geteuid() && status.st_uid != 0) {
      fail(Status::kDenied, "\"{}\" belongs to another user ({}): chown it to this one, or to root", path,
           status.st_uid);
    }
    // A group may read a file that root gave to it: a Secret of Kubernetes, a credential of systemd.
    const mode_t others = status.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;
    if ((status.st_mode & others) != 0) {
      fail(Status::kDenied,
           "\"{}\" is open to other users (mode {:04o}): chmod 600 it, or at most 640 where it is root's", path,
           status.st_mode & 07777);
    }
  }
  return read_all(file, path);
}

void write_regular_file(const std::string& path, std::string_view content) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_at("written", path, errno);
  check_regular_file(file.get(), path);
  if (set_file_size(file.get(), 0) != 0) fail_at("written", path, errno);
  write_all(file, path, content);
}

void append_to_file(const std::string& path, std::string_view line) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC, 0666));
  if (file.get() >= 0) static_cast<void>(write_to_file(file.get(), line.data(), line.size()));
}

bool create_private_file(const std::string& path, std::string_view content) {
  const FileBeside beside(path);  // 0600
  write_all(beside.file(), path, content);
  if (fsync(beside.file().get()) != 0) fail_at("written", path, errno);
  if (link(beside.path().c_str(), path.c_str()) == 0) return true;
  if (errno != EEXIST) fail_at("made", path, errno);
  return false;
}

}  // namespace distag
