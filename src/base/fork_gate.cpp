#include "base/fork_gate.h"

#include <pthread.h>

#include <atomic>

#include "base/fork_handlers.h"

namespace distag {
namespace {

// A fork goes first: else it would wait for ever where one thread after the other makes a NoFork.
constexpr pthread_rwlock_t kOpen = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
pthread_rwlock_t gate = kOpen;
constinit std::atomic<uint64_t> fork_count{0};

void close_gate() {
  pthread_rwlock_wrlock(&gate);
  ++fork_count;
}
void open_gate() { pthread_rwlock_unlock(&gate); }
// The threads that waited do not exist in the child.
void open_gate_in_child() { gate = kOpen; }

}  // namespace

constinit const ForkStep kForkGateStep = {close_gate, open_gate, open_gate_in_child};

NoFork::NoFork() {
  check_forks_are_watched();
  pthread_rwlock_rdlock(&gate);
}

NoFork::~NoFork() { pthread_rwlock_unlock(&gate); }

uint64_t NoFork::forks() const noexcept { return fork_count; }

}  // namespace distag
