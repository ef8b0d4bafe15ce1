#include "transport/socket/local_address.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/own_descriptors.h"
#include "base/private_folder.h"
#include "base/system_error.h"

namespace distag {
namespace {

constexpr int kLocalBacklog = 128;
// The last worker in a folder may remove it between two steps of the next one.
constexpr int kTries = 16;
// The most sockets in the folder that a new worker checks.
constexpr int kMostLooked = 256;
constexpr const char* kUnfinished = ".new";

bool set_path(sockaddr_un& address, const std::string& path) {
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return true;
}

bool is_private(const struct stat& folder) {
  return S_ISDIR(folder.st_mode) && folder.st_uid == geteuid() && (folder.st_mode & 0777) == 0700;
}

bool is_private(const std::string& folder) {
  struct stat found = {};
  return lstat(folder.c_str(), &found) == 0 && is_private(found);
}

// The process in a socket's name, as LocalAddress makes names; 0: another name.
long process_in(const std::string& name) {
  constexpr size_t kIdDigits = 16;
  const size_t point = name.find('.');
  if (point == 0 || point > 10 || name.find_first_not_of("0123456789") != point) return 0;
  const std::string id = name.substr(point + 1);
  const std::string rest = id.substr(std::min(id.size(), kIdDigits));
  const bool is_id = id.size() >= kIdDigits && id.find_first_not_of("0123456789abcdef") >= kIdDigits;
  return is_id && (rest.empty() || rest == kUnfinished) ? std::strtol(name.c_str(), nullptr, 10) : 0;
}

// Whether the system has no such process. In another container the process may live all the same: then it answers.
bool is_process_gone(long process) {
  struct stat found = {};
  return process > 0 && stat("/proc/self", &found) == 0 &&
         stat(fmt::format("/proc/{}", process).c_str(), &found) != 0 && errno == ENOENT;
}

bool is_refused_at(const std::string& path) {
  sockaddr_un address = {};
  if (!set_path(address, path)) return false;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool is_refused =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED;
  close(fd);
  return is_refused;
}

// The parent's owner may put something else at the path meanwhile: so only sockets in the folder that was checked are
// removed.
void clear_dead(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(fd), &closedir);
  if (!listing) {
    close(fd);
    return;
  }
  struct stat found = {};
  if (fstat(fd, &found) != 0 || !is_private(found)) return;
  for (int i = 0; i < kMostLooked; ++i) {
    const dirent* const entry = readdir(listing.get());
    if (entry == nullptr) return;
    const std::string name = entry->d_name;
    const bool is_dead = is_process_gone(process_in(name)) && is_refused_at(folder + "/" + name) &&
                         fstatat(fd, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(found.st_mode);
    if (is_dead) unlinkat(fd, name.c_str(), 0);
  }
}

// -1 with errno. A socket listens from the first moment that it has this path.
int listen_at(const std::string& path) {
  const std::string unfinished = path + kUnfinished;
  sockaddr_un address = {};
  if (!set_path(address, unfinished)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const int fd = OwnDescriptors::open([] { return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (fd < 0) return -1;
  const bool is_bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (is_bound) chmod(unfinished.c_str(), S_IRWXU);  // the umask may have taken rights
  if (is_bound && listen(fd, kLocalBacklog) == 0 && rename(unfinished.c_str(), path.c_str()) == 0) return fd;
  const int error = errno;
  if (is_bound) unlink(unfinished.c_str());
  OwnDescriptors::close(fd);
  errno = error;
  return -1;
}

}  // namespace

LocalAddress::LocalAddress(uint64_t id) : maker_(getpid()) {
  const std::string name = fmt::format("{}.{:016x}", maker_, id);
  const char* const bases[] = {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), "/tmp"};
  for (const char* base : bases) {
    if (base != nullptr && base[0] == '/' && listen_below(base, name)) return;
  }
  fail(Status::kInvalidState, "{}", why_not_);
}

bool LocalAddress::listen_below(const std::string& base, const std::string& name) {
  folder_ = fmt::format("{}/distag-ps.{}", base, geteuid());
  path_ = folder_ + "/" + name;
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    const bool is_made = make_private_folder(folder_);
    error = is_made ? 0 : errno;
    if (!is_made && error != EEXIST) break;
    if (!is_private(folder_)) {
      error = EACCES;
      continue;
    }
    if (!is_made) clear_dead(folder_);
    fd_ = listen_at(path_);
    if (fd_ >= 0) return true;
    error = errno;
    if (error != ENOENT) {
      if (is_made) rmdir(folder_.c_str());
      break;
    }
  }
  why_not_ = error == EACCES ? fmt::format("\"{}\" is not a folder that this user alone can enter", folder_)
                             : fmt::format("no socket in \"{}\": {}", folder_, std::strerror(error));
  if (error == EMFILE || error == ENFILE) fail(Status::kOutOfMemory, "{}", why_not_);
  return false;
}

LocalAddress::~LocalAddress() {
  if (getpid() == maker_) {
    // The path goes first, so that a process that finds it finds a worker.
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  OwnDescriptors::close(fd_);
}

}  // namespace distag
