#pragma once

#include <memory>

#include "base/future.h"
#include "base/mutex.h"
#include "optim/round.h"

namespace distag::optim {

// A single future for rounds that follow each other. Cancelling it cancels the current round. The rounds hold it.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  using Next = UniqueFunction<void(Operation& self, const Round& round)>;

  // To be returned once there is a first round.
  const std::shared_ptr<Future<Value>>& future() const { return future_; }
  void complete(Value value) { future_->complete(std::move(value)); }

  // Runs `next` when the round is done, on the thread that ends it; an exception of `next` fails the future.
  void after(const std::shared_ptr<Round>& round, Next next);

 private:
  void cancel();

  const std::shared_ptr<Future<Value>> future_ = Future<Value>::make();
  Mutex mutex_;
  std::weak_ptr<Round> round_ GUARDED_BY(mutex_);
  bool is_cancelled_ GUARDED_BY(mutex_) = false;
  bool has_begun_ = false;
};

}  // namespace distag::optim
