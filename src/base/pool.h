#pragma once

#include <memory>
#include <string>

#include "base/executor.h"
#include "base/thread.h"

namespace distag {

class Reserve;

// A pool of `thread_count` running threads. A thread that waits gives its place away: another is woken or made while
// there are tasks, so `thread_count` can run at any time, up to kMaxThreads in all. A wait that would leave no thread
// to run is refused with OVERLOADED; it fails with OUT_OF_MEMORY if no thread can be made for tasks within 1 s. Threads
// start with the first task, or start(); those made for waits end when too many are idle; stop() joins all.
class Pool final : public Executor {
 public:
  static constexpr size_t kMaxThreads = 256;

  // The pool's threads and posting threads fall back on the reserve.
  Pool(std::string name, size_t thread_count, ThreadHooks hooks, std::shared_ptr<Reserve> reserve = nullptr);
  ~Pool() override;  // stops, for as long as it takes

  // Makes the first thread now, so that no task fails for lack of one. Throws OUT_OF_MEMORY.
  void start();

  // Throws OUT_OF_MEMORY when not a single thread can be had.
  [[nodiscard]] bool post(Task task) override;
  size_t waiting() const override;

  // Begins no further task, destroys those not begun, and joins once the running ones have ended: what they wait for
  // has to end without this pool. False when some still run after `timeout` (negative: none): call again. One thread at
  // a time; not from a pool thread.
  bool stop(Nanos timeout = kForever);

  // Tasks begun and not ended, those that wait included. Any thread.
  size_t running() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
