#pragma once

#include <sys/types.h>

namespace distag {

// Of a socket it is unique in the system. 0: it is no socket.
ino_t inode_of_socket(int descriptor);
// Hangs up both ways, at a socket which another thread may close at any time: where the number is another's by now, or
// no descriptor is left, nothing happens.
void hang_up(int descriptor, ino_t inode);

}  // namespace distag
