/* The engine of tcp:// and ipc:// that a test runs with: the whole suite by tests/run.sh --engine, suites that look at
 * sockets with both in each run (the label other_engine of CTest). */
#ifndef DISTAG_TESTS_CAPI_SUPPORT_ENGINE_H
#define DISTAG_TESTS_CAPI_SUPPORT_ENGINE_H

#include <stdlib.h>
#include <string.h>

/* Whether the engine keeps the promise of that row of SECURITY.md ("What the engines promise"). zmtp keeps all of them;
 * a test that asks less of libzmq has a line in tests/engines.txt. */
static inline int engine_keeps(const char *row) {
  const char *const engine = getenv("DISTAG_SOCKET_ENGINE");
  (void)row;
  return engine != NULL && strcmp(engine, "zmtp") == 0;
}

#endif
