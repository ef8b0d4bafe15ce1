#include "base/threaded_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "base/floating_mode.h"
#include "base/mutex.h"
#include "base/no_cancel.h"

namespace distag {
namespace {

constexpr size_t kMostCallers = 256;  // as many as a pool has threads
// Other processes of the user may take some between the trial and the library's own threads.
constexpr size_t kSpareThreads = 8;
constexpr time_t kMostSeconds = 2;  // for the threads of a trial to end

// The processors that the calling thread may use. For machines with at most 8,192.
class Processors {
 public:
  Processors() noexcept { is_known_ = sched_getaffinity(0, sizeof sets_, sets_) == 0; }
  size_t count() const noexcept {
    return is_known_ ? static_cast<size_t>(CPU_COUNT_S(sizeof sets_, sets_)) : kMostCallers;
  }
  // Binds the calling thread to the first of them, or to all.
  bool bind_to_one() const noexcept {
    Processors one;
    size_t first = 0;
    while (first < 8 * sizeof sets_ && !CPU_ISSET_S(first, sizeof sets_, sets_)) ++first;
    CPU_ZERO_S(sizeof one.sets_, one.sets_);
    CPU_SET_S(first, sizeof one.sets_, one.sets_);
    return is_known_ && one.bind_to_all();
  }
  bool bind_to_all() const noexcept { return sched_setaffinity(0, sizeof sets_, sets_) == 0; }

 private:
  cpu_set_t sets_[8] = {};
  bool is_known_ = false;
};

size_t threads_of(std::span<const char* const> variables) noexcept {
  const size_t most = Processors().count();
  for (const char* variable : variables) {
    const char* const text = std::getenv(variable);
    const int number = text == nullptr ? 0 : std::atoi(text);
    if (number > 0) return std::min(static_cast<size_t>(number), most);
  }
  return most;
}

// Whether `bytes` could be mapped in one piece, as memory that is read and written.
bool has_space(size_t bytes) noexcept {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped != MAP_FAILED && munmap(mapped, bytes) == 0;
}

// Allocates nothing: malloc would have an arena of its own for this thread.
void* wait_for(void* gate) {
  const MutexLock lock(*static_cast<Mutex*>(gate));
  return nullptr;
}

// A thread that begins may need the lock of the loader, which the caller holds while distag is loaded, if a preloaded
// library has hooks in it. Such a thread ends later.
bool join(pthread_t thread, const timespec& until) noexcept {
  if (pthread_clockjoin_np(thread, nullptr, CLOCK_MONOTONIC, &until) == 0) return true;
  pthread_detach(thread);
  return false;
}

}  // namespace

bool has_room_for_threads(size_t threads, size_t bytes) noexcept try {
  auto gate = std::make_unique<Mutex>();  // for this trial alone: no other waits for it, nor a child forked meanwhile
  std::vector<pthread_t> made;
  made.reserve(threads);
  sigset_t all = {};
  sigset_t before = {};
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  bool is_there = true;
  {
    const MutexLock closed(*gate);
    while (is_there && made.size() < threads) {
      pthread_t thread = {};
      is_there = pthread_create(&thread, nullptr, wait_for, gate.get()) == 0;
      if (is_there) made.push_back(thread);
    }
    is_there = is_there && has_space(bytes);
  }
  timespec until = {};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kMostSeconds;
  bool has_ended = true;
  for (const pthread_t thread : made) has_ended = join(thread, until) && has_ended;
  if (!has_ended) static_cast<void>(gate.release());  // a thread that begins late needs it
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_there && has_ended;
} catch (const std::bad_alloc&) {
  return false;
}

void ThreadedLibrary::open() noexcept {
  // All is bound now: another library of these names that the host loads later changes nothing.
  handle_ = dlopen(kind_.file, RTLD_NOW | RTLD_LOCAL);
  const char* const reason = dlerror();
  if (handle_ == nullptr) strncpy(lack_.data(), reason == nullptr ? kind_.file : reason, lack_.size() - 1);
}

void ThreadedLibrary::load() noexcept {
  const NoCancel no_cancel;
  const DefaultFloatingMode mode;                                     // the library's threads inherit it
  handle_ = dlopen(kind_.file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);  // loaded already by the host
  if (handle_ == nullptr) {
    if (has_threads(threads_of(kind_.thread_variables))) {
      open();
    } else if (const Processors processors; processors.bind_to_one()) {
      open();
      processors.bind_to_all();
    } else {
      strncpy(lack_.data(), "the system has no room for its threads", lack_.size() - 1);
    }
  }
  dlerror();  // clears it: the next one that the host asks for is its own
  is_space_short_ = !has_space(kMostCallers * kind_.block_bytes);
}

void ThreadedLibrary::unload() noexcept {
  if (handle_ != nullptr) dlclose(handle_);
  handle_ = nullptr;
}

void* ThreadedLibrary::find(const char* symbol) const noexcept {
  return handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
}

bool ThreadedLibrary::has_block() const noexcept { return has_space(kind_.block_bytes); }

bool ThreadedLibrary::has_threads(size_t count) const noexcept {
  // Twice the threads: those of the trial may count for a moment after they have ended. Twice the blocks: for the
  // library itself too, and for what malloc sets aside for each thread.
  return count < 2 || has_room_for_threads(2 * (count - 1) + kSpareThreads, 2 * count * kind_.block_bytes);
}

}  // namespace distag
