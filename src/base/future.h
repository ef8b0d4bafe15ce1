#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/task.h"

namespace distag {

// Ends exactly once, with success or with an Error. Thread-safe. Held by shared_ptr: the completing thread, a waiting
// thread and the owner of a callback may each outlive the others.
class Completion {
 public:
  virtual ~Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool is_done() const { return done_.load(std::memory_order_acquire); }

  // Runs the callback on the thread that completes it, or at once when it is complete. The callback must be short and
  // must not block: one that runs host code posts that to an executor. Runs without any lock held. When one throws, the
  // others run still, and the completing thread gets what the first one threw.
  void on_done(Task callback);

  // Only once it is done. nullptr: it ended with success.
  const Error* error() const { return error_ ? &*error_ : nullptr; }

  // False when it had ended before.
  bool fail(Error error);

  // The operation that cancel() asks to stop; set before the completion is shared.
  void set_canceller(Task canceller) NO_THREAD_SAFETY_ANALYSIS { canceller_ = std::move(canceller); }

  // Names the operation in the error of cancel(); set before the completion is shared. `subject` lives as long as this
  // does, and what is read of it does not change.
  using Describe = std::string (*)(const void* subject);
  void set_operation(Describe describe, const void* subject) {
    describe_ = describe;
    subject_ = subject;
  }
  void set_operation(const char* text) {
    set_operation([](const void* kept) { return std::string(static_cast<const char*>(kept)); }, text);
  }

  // Fails with CANCELLED unless it is complete, and then runs the canceller, once.
  void cancel();

  // The error of cancel(), for an operation that is stopped before it learns of the cancellation.
  Error cancelled() const noexcept;

  // From now on cancel() says that the operation may have run. False when it has ended before.
  bool mark_begun();

  // From now on cancel() does nothing: the outcome is decided, and follows. False when it has ended before.
  bool claim();

 protected:
  Completion() = default;

  // Stores the outcome under the lock by `store`, then wakes and calls back. False when it had ended before.
  template <typename Store>
  bool finish(Store&& store) {
    std::vector<Task> callbacks;
    Task canceller;
    {
      MutexLock lock(mutex_);
      if (done_.load(std::memory_order_relaxed)) return false;
      store();
      callbacks.swap(callbacks_);
      canceller = std::move(canceller_);
      done_.store(true, std::memory_order_release);
    }
    run_all(callbacks);
    return true;
  }

 private:
  static void run_all(std::vector<Task>& callbacks);

  Mutex mutex_;
  std::atomic<bool> done_{false};
  bool begun_ GUARDED_BY(mutex_) = false;
  bool claimed_ GUARDED_BY(mutex_) = false;
  std::optional<Error> error_;
  std::vector<Task> callbacks_ GUARDED_BY(mutex_);
  Task canceller_ GUARDED_BY(mutex_);
  Describe describe_ = nullptr;
  const void* subject_ = nullptr;
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

// Fails the completion with CANCELLED, as after a shutdown of its worker, unless it is done.
void fail_dropped(Completion& completion) noexcept;

// The answer that a task owes: a task that ends without completing the future fails it, as after a shutdown of its
// worker.
template <typename T>
class Owed {
 public:
  explicit Owed(std::shared_ptr<Future<T>> future) : future_(std::move(future)) {}
  Owed(Owed&& other) noexcept : future_(std::move(other.future_)) {}
  Owed& operator=(Owed&&) = delete;
  ~Owed() {
    if (future_ != nullptr) fail_dropped(*future_);
  }

  Future<T>* operator->() const { return future_.get(); }
  // The caller completes it from here on.
  std::shared_ptr<Future<T>> take() { return std::move(future_); }

 private:
  std::shared_ptr<Future<T>> future_;
};

// Completes `to` with what `change` makes of the value of `from`, or fails it with the error of `from`, or with what
// `change` throws.
template <typename From, typename To, typename Change>
void pass_on(const std::shared_ptr<Future<From>>& from, const std::shared_ptr<Future<To>>& to, Change change) {
  from->on_done([owed = Owed(to), raw = from.get(), change = std::move(change)] {
    try {
      if (raw->error() == nullptr) {
        owed->complete(change(raw->value()));
      } else {
        owed->fail(*raw->error());
      }
    } catch (...) {
      if (!owed->is_done()) owed->fail(current_error());
    }
  });
}

}  // namespace distag
