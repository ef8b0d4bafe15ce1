#pragma once

#include <sys/types.h>

namespace distag {

// The inode of a socket, unique in the system. 0: the descriptor is no socket.
ino_t inode_of_socket(int descriptor);
// Shuts down both directions of a socket that another thread may close at any time: does nothing if the number belongs
// to another socket by now, or no descriptor is left.
void hang_up(int descriptor, ino_t inode);

}  // namespace distag
