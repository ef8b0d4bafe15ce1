#include "base/own_descriptors.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/fork_handlers.h"

namespace distag {
namespace {

struct OwnNumber {
  int number;   // -1: no descriptor
  ino_t inode;  // identifies a socket that another library may close; 0: the descriptor is ours alone
};

// The innermost of all locks. Constant-initialised, and the numbers have no destructor: a fork may come at any time. No
// fork waits for the lock, since loops need it and the fork handlers of others may wait for long after ours. So the
// child may find the list in the middle of a change: each store leaves a list that can be read, and the stores are seen
// in their order. A descriptor that is being opened or closed in the moment of the fork is not in it.
constinit Mutex own_mutex;
constinit std::atomic<OwnNumber*> own_numbers = nullptr;
constinit std::atomic<size_t> own_count = 0;
constinit std::atomic<size_t> own_capacity = 0;

// 0: it is no socket.
ino_t socket_inode(int descriptor) {
  struct stat found {};
  return descriptor >= 0 && fstat(descriptor, &found) == 0 && S_ISSOCK(found.st_mode) ? found.st_ino : 0;
}

// If no number is free for the eventfd, closing the first of ours makes room.
// A thread that does not exist here may have held the lock.
void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  new (&own_mutex) Mutex;
  int nothing = own_count == 0 ? -1 : eventfd(0, EFD_CLOEXEC);
  int apart = nothing;
  for (size_t i = 0; i < own_count; ++i) {
    const auto [number, inode] = own_numbers.load()[i];
    if (number < 0) continue;  // it was being written
    if (inode != 0 && socket_inode(number) != inode) continue;
    if (nothing < 0) {
      close(number);
      nothing = eventfd(0, EFD_CLOEXEC);
    }
    // A descriptor that was opened while the system forked is listed, but may not be there: it stays the eventfd then.
    if (nothing == number) apart = -1;
    // Above a limit that was lowered meanwhile no number can be taken.
    if (nothing != number && dup3(nothing, number, O_CLOEXEC) < 0) close(number);
  }
  if (apart >= 0) close(apart);
  own_count = 0;
}

bool make_room() noexcept REQUIRES(own_mutex) {
  if (own_count < own_capacity) return true;
  const size_t wanted = own_capacity == 0 ? 64 : 2 * own_capacity;
  auto* const more = static_cast<OwnNumber*>(std::malloc(wanted * sizeof(OwnNumber)));
  if (more == nullptr) return false;
  OwnNumber* const before = own_numbers;
  std::copy_n(before, own_count.load(), more);
  own_numbers = more;
  own_capacity = wanted;
  std::free(before);
  return true;
}

void add_number(OwnNumber added) noexcept REQUIRES(own_mutex) {
  own_numbers.load()[own_count] = added;
  ++own_count;
}

// The slot has no number while its inode changes: with the inode of another one, a child would give up a number that
// may be the host's by now.
void replace_number(OwnNumber& slot, OwnNumber added) noexcept REQUIRES(own_mutex) {
  const std::atomic_ref<int> number(slot.number);
  const std::atomic_ref<ino_t> inode(slot.inode);
  number = -1;
  inode = added.inode;
  number = added.number;
}

void forget_number(int number, ino_t inode) noexcept REQUIRES(own_mutex) {
  OwnNumber* const numbers = own_numbers;
  for (size_t i = 0; i < own_count; ++i) {
    if (numbers[i].number != number || numbers[i].inode != inode) continue;
    replace_number(numbers[i], numbers[own_count - 1]);  // it stands there twice until the next store
    --own_count;
    break;
  }
  if (own_count > 0) return;
  own_capacity = 0;
  own_numbers = nullptr;
  std::free(numbers);
}

}  // namespace

constinit const ForkStep kOwnDescriptorsStep = {nullptr, nullptr, after_fork_in_child};

Mutex& OwnDescriptors::mutex() { return own_mutex; }

// Under mutex(), which clang does not take for the same.
int OwnDescriptors::add(int descriptor) noexcept NO_THREAD_SAFETY_ANALYSIS {
  if (descriptor < 0) return descriptor;
  if (!are_forks_watched() || !make_room()) {
    ::close(descriptor);
    errno = ENOMEM;
    return -1;
  }
  add_number({descriptor, 0});
  return descriptor;
}

// In a forked child the number is not in the list any more.
void OwnDescriptors::close(int descriptor) noexcept {
  MutexLock lock(own_mutex);
  forget_number(descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  errno = error;
}

NotedSocket::NotedSocket(int descriptor) noexcept {
  const int error = errno;
  MutexLock lock(own_mutex);
  const ino_t inode = socket_inode(descriptor);
  if (inode != 0 && are_forks_watched() && make_room()) {
    add_number({descriptor, inode});
    number_ = descriptor;
    inode_ = inode;
  }
  errno = error;
}

// In a forked child none is noted any more.
NotedSocket::~NotedSocket() {
  if (number_ < 0) return;
  MutexLock lock(own_mutex);
  forget_number(number_, inode_);
}

bool NotedSocket::is_there() const noexcept { return number_ >= 0 && socket_inode(number_) == inode_; }

NotedSocket::NotedSocket(NotedSocket&& other) noexcept
    : number_(std::exchange(other.number_, -1)), inode_(other.inode_) {}

NotedSocket& NotedSocket::operator=(NotedSocket&& other) noexcept {
  std::swap(number_, other.number_);
  std::swap(inode_, other.inode_);
  return *this;
}

}  // namespace distag
