#include "base/fork_gate.h"

#include <pthread.h>

#include "base/error.h"

namespace distag {
namespace {

// Forks come first: a fork would wait for ever where threads multiply one after the other.
constexpr pthread_rwlock_t kOpen = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
pthread_rwlock_t gate = kOpen;

void close_gate() { pthread_rwlock_wrlock(&gate); }
void open_gate() { pthread_rwlock_unlock(&gate); }
// The threads that waited are not here.
void open_gate_in_child() { gate = kOpen; }

// Handlers before a fork run last made, first run: made after those of the libraries that this one is linked with,
// which are loaded before it, ours runs before they end their threads. The C library forgets it when this one is
// unloaded.
bool watch_forks() { return pthread_atfork(close_gate, open_gate, open_gate_in_child) == 0; }
const bool is_watched = watch_forks();

}  // namespace

NoFork::NoFork() {
  if (!is_watched) fail(Status::kOutOfMemory, "the system had no memory for a handler of forks when distag was loaded");
  pthread_rwlock_rdlock(&gate);
}

NoFork::~NoFork() { pthread_rwlock_unlock(&gate); }

}  // namespace distag
