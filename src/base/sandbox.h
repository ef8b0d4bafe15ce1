#pragma once

namespace distag {

// Throw DENIED naming the first system call that a sandbox denies, of those that a loop or sockets need: without these
// they would fail later, some silently (an alarm that never rings, a peer that is never heard). The calls get arguments
// without effect: a sandbox denies a call before the system checks them.
void check_loop_calls();
void check_socket_calls();

}  // namespace distag
