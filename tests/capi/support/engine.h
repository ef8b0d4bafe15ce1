/* The engine of tcp:// and ipc:// that a test runs with. Most suites run with the default engine; those that look at
 * sockets run with both (DISTAG_SOCKET_ENGINE, the label other_engine of CTest). These of their checks are for the
 * engine zmtp alone, by the lines of SECURITY.md, "What the engines promise":
 *
 *   strangers: descriptors and memory of silent connections
 *   strangers: each logged refusal names its address
 *   keys: a list without a key ends the connection
 *   keys: a dialler that has another key, or none, is counted once
 *   descriptors: strangers come while none are left
 *   overload: no more memory than the budgets; with libzmq 64 messages of each sender besides
 */
#ifndef DISTAG_TESTS_CAPI_SUPPORT_ENGINE_H
#define DISTAG_TESTS_CAPI_SUPPORT_ENGINE_H

#include <stdlib.h>
#include <string.h>

static inline int is_zmtp(void) {
  const char *const engine = getenv("DISTAG_SOCKET_ENGINE");
  return engine != NULL && strcmp(engine, "zmtp") == 0;
}

#endif
