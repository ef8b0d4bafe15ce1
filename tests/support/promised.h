/* Times that docs/promises.md promises, as tests judge them. A machine that others use may stop each process for a
 * second: the one that is killed, those that wait for it, and those that report it. So a bound has six seconds above
 * the promise. It is far below the time that a broken promise takes: the lease of the test. */
#pragma once

enum { kRoomSeconds = 6, kKillToErrorSeconds = 1 + kRoomSeconds };
