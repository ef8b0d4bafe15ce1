#include "transport/socket/socket_ends.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace distag {

ino_t inode_of_socket(int descriptor) {
  struct stat found {};
  return descriptor >= 0 && fstat(descriptor, &found) == 0 && S_ISSOCK(found.st_mode) ? found.st_ino : 0;
}

// Through a duplicate, which stays the socket that was checked.
void hang_up(int descriptor, ino_t inode) {
  if (inode == 0 || descriptor < 0) return;
  const int duplicate = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0) return;
  if (inode_of_socket(duplicate) == inode) shutdown(duplicate, SHUT_RDWR);
  close(duplicate);
}

}  // namespace distag
