#pragma once

namespace distag {

// Throw DENIED naming the first system call that a sandbox denies, of those without which a loop or sockets would fail
// later, some of them in silence: an alarm that never rings, a peer that is never heard. The calls get arguments that
// do nothing, which a sandbox does not look at first.
void check_loop_calls();
void check_socket_calls();

}  // namespace distag
