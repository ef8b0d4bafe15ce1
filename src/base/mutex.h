#pragma once

#include <mutex>

// Annotations: which lock guards which member, and which lock a function needs. clang checks them (-Wthread-safety);
// gcc ignores them.
#if defined(__clang__)
#define DISTAG_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define DISTAG_THREAD_ATTRIBUTE(x)
#endif

#define GUARDED_BY(mutex) DISTAG_THREAD_ATTRIBUTE(guarded_by(mutex))
#define REQUIRES(mutex) DISTAG_THREAD_ATTRIBUTE(requires_capability(mutex))
#define NO_THREAD_SAFETY_ANALYSIS DISTAG_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace distag {

// A std::mutex that clang can follow.
class DISTAG_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() DISTAG_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() DISTAG_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Holds a mutex to the end of its scope; may release it in between and take it again.
class DISTAG_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) DISTAG_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() DISTAG_THREAD_ATTRIBUTE(release_capability()) {
    if (is_held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() DISTAG_THREAD_ATTRIBUTE(release_capability()) {
    is_held_ = false;
    mutex_.unlock();
  }
  void lock() DISTAG_THREAD_ATTRIBUTE(acquire_capability()) {
    mutex_.lock();
    is_held_ = true;
  }

 private:
  Mutex& mutex_;
  bool is_held_ = true;
};

}  // namespace distag
