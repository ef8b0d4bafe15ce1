#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/task.h"

namespace distag {

// Ends exactly once, well or with an Error. Thread-safe. Held by shared_ptr: who completes it, who waits and who
// registered a callback may each outlive the others.
class Completion {
 public:
  virtual ~Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool is_done() const { return done_.load(std::memory_order_acquire); }

  // Runs the callback on the thread that completes it, or here and now when it is complete. It must be short and must
  // not block: what runs host code posts that to an executor. Runs without any lock held.
  void on_done(Task callback);

  // Only once it is done: how it ended. nullptr: well.
  const Error* error() const { return error_ ? &*error_ : nullptr; }

  // False when it had ended before.
  bool fail(Error error);

  // What cancel() asks to stop; set before the completion is shared.
  void set_canceller(Task canceller) { canceller_ = std::move(canceller); }

  // Fails with CANCELLED unless it is complete, and then runs the canceller, once.
  void cancel();

  // From now on cancel() says that the operation may have run. False when it has ended before.
  bool mark_begun();

  // From now on cancel() does nothing: how it ends is decided, and follows. False when it has ended before.
  bool claim();

 protected:
  Completion() = default;

  // Stores the outcome under the lock by `store`, then wakes and calls back. False when it had ended before.
  template <typename Store>
  bool finish(Store&& store) {
    std::vector<Task> callbacks;
    Task canceller;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (done_.load(std::memory_order_relaxed)) return false;
      store();
      callbacks.swap(callbacks_);
      canceller = std::move(canceller_);
      done_.store(true, std::memory_order_release);
    }
    for (Task& callback : callbacks) callback();
    return true;
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> done_{false};
  bool begun_ = false;
  bool claimed_ = false;
  std::optional<Error> error_;
  std::vector<Task> callbacks_;
  Task canceller_;
};

template <typename T>
class Future final : public Completion {
 public:
  static std::shared_ptr<Future> make() { return std::make_shared<Future>(); }
  Future() = default;

  // False when it had ended before.
  bool complete(T value) {
    return finish([this, &value] { value_.emplace(std::move(value)); });
  }

  // Only once it is done; throws the Error of a failed one.
  const T& value() const {
    if (error() != nullptr) throw *error();
    return *value_;
  }

 private:
  std::optional<T> value_;
};

struct Unit {};

}  // namespace distag
