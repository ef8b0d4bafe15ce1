#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/each_step.h"
#include "base/future.h"
#include "base/mutex.h"

namespace distag {

// A step that several threads ask for and that may have to be tried again: one thread at a time takes it, the others
// wait for their turn. Once it has succeeded, it is never taken again. Any thread.
class OneByOne {
 public:
  bool is_done() const { return is_done_.load(); }

  // Takes the step when it is this thread's turn, and waits for that until `latest`. Gives whether the step has
  // succeeded, here or on another thread. Exceptions of the step are thrown only here.
  template <typename Step>
  bool run(Nanos latest, Step&& step) {
    if (!take_turn(latest)) return false;
    if (is_done()) return true;
    EachStep each;
    each([this, &step] {
      if (step()) is_done_ = true;
    });
    end_turn();
    each.check();
    return is_done();
  }

 private:
  // False: the time is up.
  bool take_turn(Nanos latest) {
    for (;;) {
      std::shared_ptr<Future<Unit>> turn;
      {
        MutexLock lock(mutex_);
        if (is_done()) return true;
        turn = turn_;
        if (turn == nullptr) turn_ = Future<Unit>::make();
      }
      if (turn == nullptr) return true;
      if (!wait(*turn, time_left(latest))) return false;
    }
  }
  void end_turn() {
    std::shared_ptr<Future<Unit>> turn;
    {
      MutexLock lock(mutex_);
      turn.swap(turn_);
    }
    turn->complete(Unit{});
  }

  Mutex mutex_;
  std::shared_ptr<Future<Unit>> turn_ GUARDED_BY(mutex_);  // of the thread that takes the step
  std::atomic<bool> is_done_{false};
};

}  // namespace distag
