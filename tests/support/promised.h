/* Times that docs/promises.md promises, as tests judge them. A machine that others use may stop a process for a second,
 * and each of those that take part once: who is killed, who waits for it, and whoever tells them. So a bound has six
 * seconds above what is promised. It is far below what comes where the promise is broken: the lease of the test. */
#pragma once

enum { kRoomSeconds = 6, kKillToErrorSeconds = 1 + kRoomSeconds };
