#include "transport/socket/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/own_descriptors.h"
#include "base/private_folder.h"

namespace distag {
namespace {

constexpr const char* kPrefix = "distag.";
constexpr size_t kNameLength = 13;
// The longest name in the directory, of a socket and its lane: a slash, a number, ".lane".
constexpr size_t kLongestEntry = 16;

bool has_room_for_sockets(const std::string& base) {
  return base.size() + 1 + kNameLength + kLongestEntry < sizeof(sockaddr_un::sun_path);
}

// -1 for anything but a directory, also for a link to one.
int open_directory(int base, const char* name) {
  return openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

bool try_lock(int directory) { return flock(directory, LOCK_EX | LOCK_NB) == 0; }

// Like try_lock; but also true if the file system has no locks: then no other process clears the directory either.
bool lock_or_do_without(int directory) { return try_lock(directory) || errno != EWOULDBLOCK; }

bool is_still_at(int base, const char* name, int directory) {
  struct stat opened = {};
  struct stat found = {};
  return fstat(directory, &opened) == 0 && fstatat(base, name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_ino == found.st_ino && opened.st_dev == found.st_dev;
}

using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;

// The entries of an open directory, which stays open.
Listing list(int directory) {
  const int copy = open_directory(directory, ".");
  DIR* const listing = copy < 0 ? nullptr : fdopendir(copy);
  if (listing == nullptr && copy >= 0) close(copy);
  return Listing(listing, &closedir);
}

// Called with its lock held. Removes the directory, unless it has an entry that is no socket.
void remove_held(int base, const char* name, int directory) {
  if (const Listing listing = list(directory)) {
    while (const dirent* entry = readdir(listing.get())) {
      struct stat status = {};
      const bool is_socket =
          fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(status.st_mode);
      if (is_socket) unlinkat(directory, entry->d_name, 0);
    }
  }
  if (is_still_at(base, name, directory)) unlinkat(base, name, AT_REMOVEDIR);
}

bool is_ours(int directory) {
  struct stat status = {};
  return fstat(directory, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 0777) == 0700;
}

// Removes directories whose makers were killed. A directory that is being made may be removed too; its maker notices.
void clear_left(int base) {
  const Listing listing = list(base);
  if (!listing) return;
  while (const dirent* entry = readdir(listing.get())) {
    const char* const name = entry->d_name;
    if (std::strncmp(name, kPrefix, std::strlen(kPrefix)) != 0 || std::strlen(name) != kNameLength) continue;
    const int directory = open_directory(base, name);
    if (directory < 0) continue;
    if (is_ours(directory) && try_lock(directory)) remove_held(base, name, directory);
    close(directory);
  }
}

}  // namespace

PrivateDirectory::PrivateDirectory() : maker_(getpid()) {
  int error = ENOENT;
  const char* const bases[] = {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), "/tmp"};
  for (const char* base : bases) {
    if (base == nullptr || base[0] != '/') continue;
    if (make_in(base, error)) return;
    if (error == EMFILE || error == ENFILE) {
      fail(Status::kOutOfMemory,
           "no descriptor is left for a private directory ({}): raise the limit of open files (ulimit -n)",
           std::strerror(error));
    }
  }
  fail(Status::kInvalidState,
       "no private directory for endpoints can be made in XDG_RUNTIME_DIR, TMPDIR or /tmp: {}; set TMPDIR to a "
       "directory you can write to, or take tcp instead: bind=\"tcp://127.0.0.1:0\" in the options of the worker",
       std::strerror(error));
}

bool PrivateDirectory::make_in(const std::string& base, int& error) {
  error = ENAMETOOLONG;
  if (!has_room_for_sockets(base)) return false;
  const int base_descriptor = open(base.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  error = errno;
  if (base_descriptor < 0) return false;
  clear_left(base_descriptor);
  // Another process that starts may find and clear it before it is locked: then the next name is tried.
  while (descriptor_ < 0) {
    std::string path = base + "/" + kPrefix + "XXXXXX";
    const bool is_made = mkdtemp(path.data()) != nullptr && keep_private_folder(path);
    error = errno;
    if (!is_made) break;
    const char* const name = path.c_str() + base.size() + 1;
    const int directory =
        OwnDescriptors::open([base_descriptor, name] { return open_directory(base_descriptor, name); });
    error = errno;
    if (directory >= 0 && lock_or_do_without(directory) && is_still_at(base_descriptor, name, directory)) {
      descriptor_ = directory;
      path_ = std::move(path);
      break;
    }
    if (directory >= 0) OwnDescriptors::close(directory);
    if (directory < 0 && error != ENOENT) {
      rmdir(path.c_str());
      break;
    }
  }
  close(base_descriptor);
  return descriptor_ >= 0;
}

PrivateDirectory::~PrivateDirectory() {
  if (getpid() == maker_) {
    const size_t slash = path_.rfind('/');
    const int base = open(path_.substr(0, slash).c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (base >= 0) {
      remove_held(base, path_.c_str() + slash + 1, descriptor_);
      close(base);
    } else {
      rmdir(path_.c_str());
    }
  }
  OwnDescriptors::close(descriptor_);
}

}  // namespace distag
