// Read and written under the lock that guards it; with UNGUARDED also without, which clang has to refuse.
#include "base/mutex.h"

class Counter {
 public:
  void add() {
    distag::MutexLock lock(mutex_);
    ++count_;
  }
  int count() {
#ifndef UNGUARDED
    distag::MutexLock lock(mutex_);
#endif
    return count_;
  }

 private:
  distag::Mutex mutex_;
  int count_ GUARDED_BY(mutex_) = 0;
};

int main() {
  Counter counter;
  counter.add();
  return counter.count() - 1;
}
