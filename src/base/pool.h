#pragma once

#include <memory>
#include <string>

#include "base/executor.h"
#include "base/thread.h"

namespace distag {

// A pool of `thread_count` running threads. A thread that waits gives its place away: another is woken or made as long
// as there are tasks, so `thread_count` can run at any time, up to kMaxThreads in all. A wait that would leave no
// thread to run is refused with OVERLOADED. Threads start with the first task; those that waits made end again when too
// many are idle; stop() joins all.
class Pool final : public Executor {
 public:
  static constexpr size_t kMaxThreads = 256;

  Pool(std::string name, size_t thread_count, ThreadHooks hooks);
  ~Pool() override;  // stops

  // Throws OUT_OF_MEMORY when not a single thread can be had.
  void post(Task task) override;
  size_t waiting() const override;

  // Begins no further task, destroys those not begun, and joins once the running ones have ended: what they wait for
  // has to end without this pool. Not from a pool thread.
  void stop();

  // Tasks begun and not ended, those that wait included. Any thread.
  size_t running() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
