#include "transport/zmq/private_directory.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace distag {

PrivateDirectory::PrivateDirectory() : maker_(getpid()) {
  int error = ENOENT;
  const char* const bases[] = {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), "/tmp"};
  for (const char* base : bases) {
    if (base == nullptr || base[0] != '/') continue;
    path_ = std::string(base) + "/distag-XXXXXX";
    // Made with mode 0700.
    if (mkdtemp(path_.data()) != nullptr) return;
    error = errno;
  }
  fail(Status::kInvalidState,
       "no private directory for endpoints can be made in XDG_RUNTIME_DIR, TMPDIR or /tmp: {}; set TMPDIR to a "
       "directory you can write to",
       std::strerror(error));
}

PrivateDirectory::~PrivateDirectory() {
  if (getpid() != maker_) return;
  // Only sockets are here, and only what was left by a listener that could not remove its own.
  if (DIR* directory = opendir(path_.c_str())) {
    while (const dirent* entry = readdir(directory)) {
      const std::string file = path_ + "/" + entry->d_name;
      struct stat status {};
      if (lstat(file.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) unlink(file.c_str());
    }
    closedir(directory);
  }
  rmdir(path_.c_str());
}

}  // namespace distag
