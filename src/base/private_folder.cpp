#include "base/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace distag {

bool make_private_folder(const std::string& path) {
  return mkdir(path.c_str(), S_IRWXU) == 0 && keep_private_folder(path);
}

bool keep_private_folder(const std::string& path) {
  struct stat made = {};
  if (lstat(path.c_str(), &made) == 0 && S_ISDIR(made.st_mode) && (made.st_mode & S_IRWXU) == S_IRWXU) return true;
  // A link put in its place is not followed. If another process has removed the folder, its next user notices.
  if (fchmodat(AT_FDCWD, path.c_str(), S_IRWXU, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOENT) return true;
  const int error = errno;
  rmdir(path.c_str());
  errno = error;
  return false;
}

}  // namespace distag
