#include "base/own_descriptors.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace distag {
namespace {

// Leaf of all locks. Constant-initialised, and the numbers have no destructor: a fork may come at any time.
constinit Mutex own_mutex;
constinit int* own_numbers = nullptr;
constinit size_t own_count = 0;
constinit size_t own_capacity = 0;

void before_fork() NO_THREAD_SAFETY_ANALYSIS { own_mutex.lock(); }
void after_fork() NO_THREAD_SAFETY_ANALYSIS { own_mutex.unlock(); }

// Where no number is free the first of ours makes room.
void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  int nothing = own_count == 0 ? -1 : eventfd(0, EFD_CLOEXEC);
  const int apart = nothing;
  for (size_t i = 0; i < own_count; ++i) {
    if (nothing < 0) {
      close(own_numbers[i]);
      nothing = eventfd(0, EFD_CLOEXEC);
    }
    // Above a limit that was lowered no number can be taken.
    if (nothing != own_numbers[i] && dup3(nothing, own_numbers[i], O_CLOEXEC) < 0) close(own_numbers[i]);
  }
  if (apart >= 0) close(apart);
  own_count = 0;
  own_mutex.unlock();
}

// Before any descriptor is there. The C library forgets it when this library is unloaded.
bool watch_forks() { return pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0; }
const bool is_watched = watch_forks();

bool make_room() noexcept {
  if (own_count < own_capacity) return true;
  const size_t wanted = own_capacity == 0 ? 64 : 2 * own_capacity;
  auto* const more = static_cast<int*>(std::realloc(own_numbers, wanted * sizeof(int)));
  if (more == nullptr) return false;
  own_numbers = more;
  own_capacity = wanted;
  return true;
}

}  // namespace

Mutex& OwnDescriptors::mutex() { return own_mutex; }

int OwnDescriptors::add(int descriptor) noexcept {
  if (descriptor < 0) return descriptor;
  if (!is_watched || !make_room()) {
    ::close(descriptor);
    errno = ENOMEM;
    return -1;
  }
  own_numbers[own_count++] = descriptor;
  return descriptor;
}

// In a child it is none of ours any more.
void OwnDescriptors::close(int descriptor) noexcept {
  MutexLock lock(own_mutex);
  for (size_t i = 0; i < own_count; ++i) {
    if (own_numbers[i] != descriptor) continue;
    own_numbers[i] = own_numbers[--own_count];
    break;
  }
  if (own_count == 0) {
    std::free(own_numbers);
    own_numbers = nullptr;
    own_capacity = 0;
  }
  const int error = errno;
  ::close(descriptor);
  errno = error;
}

}  // namespace distag
