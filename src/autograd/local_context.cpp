#include <atomic>

#include "autograd/context.h"
#include "autograd/gradient_store.h"
#include "autograd/graph_task.h"
#include "autograd/roots.h"
#include "base/clock.h"
#include "base/error.h"

namespace distag {
namespace {

// Pass ids order the gradients; context ids are only shown to people.
std::atomic<uint64_t> next_context_id{1};

void refuse_recv(const autograd::Node& recv) {
  fail(Status::kInvalidArgument,
       "backward: a root depends on {}, which was recorded in another context; detach the value, or use that context",
       recv.name());
}

autograd::GraphTask::CheckStop make_deadline_check(Nanos timeout) {
  if (timeout < 0) return nullptr;
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  return [deadline, timeout] {
    if (SteadyClock().now() < deadline) return;
    fail(Status::kDeadline, "backward: not done after {:.3f} s", static_cast<double>(timeout) / kSecond);
  };
}

class LocalContext final : public Context {
 public:
  uint64_t id() const override { return id_; }
  Id global_id() const override { return {}; }

  void backward(const Tensors& roots, const BackwardOptions& options) override {
    autograd::Roots from = autograd::check_roots(roots, options.seeds, options.create_graph);
    const Id pass{0, ++passes_};
    ++running_;
    try {
      run(pass, from, options);
    } catch (...) {
      --running_;
      throw;
    }
    --running_;
  }

  std::shared_ptr<Future<Value>> backward_async(const Tensors&, const BackwardOptions&) override {
    fail(Status::kUnsupported, "backward_async: a context without a worker has no thread to run it on; use backward");
  }

  std::shared_ptr<const Gradients> gradients() override { return store_.read(); }

  std::shared_ptr<Future<Value>> settle_async() override {
    fail(Status::kUnsupported,
         "settle_async: a context without a worker has nothing to wait for; ask for its gradients");
  }

  void scale_gradients(std::span<const uint64_t> leaves, double factor, uint64_t passes) override {
    store_.scale(leaves, factor, passes);
  }

  ContextInfo info() override {
    ContextInfo info;
    info.gradient_count = static_cast<uint32_t>(store_.read()->entries.size());
    info.pass_count = running_;
    return info;
  }

  std::vector<int32_t> known_ranks() override { return {}; }

 private:
  void run(const Id& pass, autograd::Roots& from, const BackwardOptions& options) {
    autograd::GraphTask task(refuse_recv, false, options.create_graph);
    task.walk().expand(from.edges);
    task.walk().run();
    for (size_t i = 0; i < from.edges.size(); ++i) task.deliver(from.edges[i], std::move(from.seeds[i]));
    task.run({.runs_host_code = true, .check_stop = make_deadline_check(options.timeout)});
    store_.add(pass, task.take_gradients());
    if (!options.retain_graph && !options.create_graph) task.walk().free_saved();
  }

  const uint64_t id_ = next_context_id.fetch_add(1);
  std::atomic<uint64_t> passes_{0};
  std::atomic<uint32_t> running_{0};
  autograd::GradientStore store_;
};

}  // namespace

std::shared_ptr<Context> make_local_context() { return std::make_shared<LocalContext>(); }

}  // namespace distag
