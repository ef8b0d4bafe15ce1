#include "worker/remote_roots.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/wait_or_cancel.h"

namespace distag {
namespace {

void add_fetched(const RootFetches& fetches, Tensors& roots, Tensors& seeds) {
  for (const auto& fetch : fetches) {
    const Value& value = fetch->value();
    if (value.kind() != ValueKind::kTensor) {
      fail(Status::kInvalidArgument, "a remote root is {}, not a tensor", kind_name(value.kind()));
    }
    roots.push_back(value.as_tensor());
    if (!seeds.empty()) seeds.emplace_back();
  }
}

// A timeout for a pass, for which 0 would mean no limit.
Nanos time_until(Nanos deadline) {
  if (deadline == kNever) return kForever;
  return std::max<Nanos>(1, deadline - SteadyClock().now());
}

class RemoteRootsPass : public std::enable_shared_from_this<RemoteRootsPass> {
 public:
  RemoteRootsPass(std::shared_ptr<Context> context, Tensors roots, RootFetches fetches, BackwardOptions options)
      : context_(std::move(context)),
        roots_(std::move(roots)),
        fetches_(std::move(fetches)),
        options_(std::move(options)),
        deadline_(deadline_after(SteadyClock().now(), options_.timeout)),
        left_(fetches_.size()) {}

  std::shared_ptr<Future<Value>> start() {
    outcome_->set_operation("backward pass");
    outcome_->set_canceller([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->cancel();
    });
    for (const auto& fetch : fetches_) {
      fetch->on_done([self = shared_from_this()] {
        if (self->left_.fetch_sub(1) == 1) self->go_on();
      });
    }
    return outcome_;
  }

 private:
  void go_on() {
    try {
      add_fetched(fetches_, roots_, options_.seeds);
      options_.timeout = time_until(deadline_);
      const auto pass = context_->backward_async(roots_, options_);
      bool is_cancelled = false;
      {
        MutexLock lock(mutex_);
        pass_ = pass;
        is_cancelled = is_cancelled_;
      }
      if (is_cancelled) pass->cancel();
      pass->on_done([outcome = outcome_, ended = pass.get()] {
        if (const Error* error = ended->error()) {
          outcome->fail(*error);
        } else {
          outcome->complete(Value());
        }
      });
    } catch (...) {
      outcome_->fail(current_error());
    }
  }

  void cancel() {
    std::shared_ptr<Future<Value>> pass;
    {
      MutexLock lock(mutex_);
      is_cancelled_ = true;
      pass = pass_;
    }
    for (const auto& fetch : fetches_) fetch->cancel();
    if (pass) pass->cancel();
  }

  const std::shared_ptr<Context> context_;
  Tensors roots_;
  const RootFetches fetches_;
  BackwardOptions options_;
  const Nanos deadline_;
  std::atomic<size_t> left_;
  const std::shared_ptr<Future<Value>> outcome_ = Future<Value>::make();
  Mutex mutex_;
  std::shared_ptr<Future<Value>> pass_ GUARDED_BY(mutex_);
  bool is_cancelled_ GUARDED_BY(mutex_) = false;
};

}  // namespace

void backward(Context& context, Tensors roots, const RootFetches& fetches, BackwardOptions options) {
  if (!fetches.empty()) {
    const Nanos deadline = deadline_after(SteadyClock().now(), options.timeout);
    for (const auto& fetch : fetches) wait_or_cancel(*fetch);  // each has its own timeout
    add_fetched(fetches, roots, options.seeds);
    options.timeout = time_until(deadline);
  }
  context.backward(roots, options);
}

std::shared_ptr<Future<Value>> backward_async(std::shared_ptr<Context> context, Tensors roots, RootFetches fetches,
                                              BackwardOptions options) {
  if (fetches.empty()) return context->backward_async(roots, options);
  return std::make_shared<RemoteRootsPass>(std::move(context), std::move(roots), std::move(fetches), std::move(options))
      ->start();
}

}  // namespace distag
