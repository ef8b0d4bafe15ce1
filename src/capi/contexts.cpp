// Contexts, the backward pass, gradients.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "capi/call_request.h"
#include "capi/context.h"
#include "capi/future.h"
#include "capi/rref.h"
#include "capi/struct_check.h"
#include "worker/remote_roots.h"

using namespace distag;
using namespace distag::capi;

distag_gradients::distag_gradients(std::shared_ptr<const Gradients> gradients)
    : Handle(Kind::kGradients),
      gradients_(std::move(gradients)),
      leaves_(std::make_unique<LentTensor[]>(count())),
      handles_(std::make_unique<LentTensor[]>(count())) {
  for (size_t i = 0; i < count(); ++i) {
    leaves_[i].get([this, i] { return make_tensor(gradients_->entries[i].leaf); });
    handles_[i].get([this, i] { return make_tensor(gradients_->entries[i].gradient); });
  }
}

distag_tensor* distag_gradients::leaf(size_t index) { return index < count() ? leaves_[index].get() : nullptr; }

distag_tensor* distag_gradients::gradient(size_t index) { return index < count() ? handles_[index].get() : nullptr; }

distag_tensor* distag_gradients::find(const Tensor& leaf) {
  const auto& entries = gradients_->entries;
  const auto found = std::lower_bound(entries.begin(), entries.end(), leaf.id(),
                                      [](const Gradients::Entry& entry, uint64_t id) { return entry.leaf.id() < id; });
  if (found == entries.end() || found->leaf.id() != leaf.id()) return nullptr;
  return gradient(static_cast<size_t>(found - entries.begin()));
}

namespace {

BackwardOptions make_backward_options(const distag_backward_options* given, size_t root_count) {
  const distag_backward_options options = read_struct(given, "distag_backward_options");
  need_enumerator(options.mode, DISTAG_BACKWARD_FAST, "mode", "DISTAG_BACKWARD_...");
  BackwardOptions made;
  made.mode = options.mode == DISTAG_BACKWARD_FAST ? BackwardMode::kFast : BackwardMode::kSmart;
  made.retain_graph = need_flag(options.retain_graph, "distag_backward_options.retain_graph");
  made.create_graph = need_flag(options.create_graph, "distag_backward_options.create_graph");
  const Nanos timeout = need_timeout(options.timeout_ns, "distag_backward_options.timeout_ns");
  made.timeout = timeout == 0 ? kForever : timeout;
  for (size_t i = 0; options.seeds != nullptr && i < root_count; ++i) {
    const bool is_left_out = options.seeds[i] == nullptr;
    made.seeds.push_back(is_left_out ? Tensor() : need_item(options.seeds, i, "seeds").tensor());
  }
  return made;
}

// Roots on other workers are fetched in the context, so that the pass reaches them across that call.
RootFetches fetch_remote_roots(distag_context* context, const distag_backward_options* given, Nanos timeout) {
  const distag_backward_options options = read_struct(given, "distag_backward_options");
  check_array(options.remote_roots, options.remote_root_count, "distag_backward_options.remote_roots");
  std::vector<const distag_rref*> roots;
  for (size_t i = 0; i < options.remote_root_count; ++i) {
    roots.push_back(&need_item(options.remote_roots, i, "remote_roots"));
  }
  RootFetches fetches;
  for (const distag_rref* root : roots) {
    FetchOptions fetch;
    fetch.context = need_context_of(root->worker(), context);
    fetch.timeout = timeout;
    fetches.push_back(root->worker().core().rrefs().fetch(root->core(), std::move(fetch)));
  }
  return fetches;
}

}  // namespace

void distag_context_retain(distag_context* context) { retain_handle(context); }
void distag_context_release(distag_context* context) { release_handle(context); }

distag_status distag_context_create(distag_worker* worker, distag_context** out_context, distag_error* err) {
  clear(out_context);
  return guard(__func__, err, [=] {
    distag_worker* live = worker == nullptr ? nullptr : &need_worker(worker);
    need_pointer(out_context, "out_context");
    if (live != nullptr) live->check_up();
    std::shared_ptr<Context> context =
        live == nullptr ? make_local_context() : live->core().dautograd().create_context();
    *out_context = new distag_context(std::move(context), live);
  });
}

uint64_t distag_context_get_id(distag_context* context) {
  const distag_context* live = peek(context);
  return live == nullptr ? 0 : live->id();
}

distag_status distag_backward(distag_context* context, distag_tensor* const* roots, size_t root_count,
                              const distag_backward_options* options, distag_error* err) {
  return guard(__func__, err, [=] {
    if (context == nullptr) refuse_missing_handle("context");
    Tensors tensors = need_tensors(roots, root_count, "roots");
    // Held: a callback in the pass may release the last reference.
    const auto held = Ref<distag_context>::share(&need(context, "context"));
    BackwardOptions made = make_backward_options(options, root_count);
    const RootFetches fetches = fetch_remote_roots(context, options, made.timeout);
    distag::backward(held->get(), std::move(tensors), fetches, std::move(made));
  });
}

distag_status distag_backward_async(distag_context* context, distag_tensor* const* roots, size_t root_count,
                                    const distag_backward_options* options, distag_future** out_future,
                                    distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    if (context == nullptr) refuse_missing_handle("context");
    Tensors tensors = need_tensors(roots, root_count, "roots");
    distag_context& live = need(context, "context");
    need_pointer(out_future, "out_future");
    BackwardOptions made = make_backward_options(options, root_count);
    if (live.worker() == nullptr) {
      refuse(Status::kUnsupported, "the context has no worker, so there is no thread to run it: use distag_backward");
    }
    RootFetches fetches = fetch_remote_roots(context, options, made.timeout);
    const auto future = distag::backward_async(live.shared(), std::move(tensors), std::move(fetches), std::move(made));
    const ReserveScope scope(live.worker()->reserve());
    *out_future = new distag_future(future, *live.worker());
  });
}

distag_status distag_get_gradients(distag_context* context, distag_gradients** out_gradients, distag_error* err) {
  clear(out_gradients);
  return guard(__func__, err, [=] {
    const auto held = Ref<distag_context>::share(&need(context, "context"));
    Context& live = held->get();
    need_pointer(out_gradients, "out_gradients");
    *out_gradients = new distag_gradients(live.gradients());
  });
}

distag_status distag_context_settle_async(distag_context* context, distag_future** out_future, distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    distag_context& live = need(context, "context");
    need_pointer(out_future, "out_future");
    auto settled = live.get().settle_async();  // throws without a worker
    const ReserveScope scope(live.worker()->reserve());
    *out_future = new distag_future(std::move(settled), *live.worker());
  });
}

void distag_gradients_retain(distag_gradients* gradients) { retain_handle(gradients); }
void distag_gradients_release(distag_gradients* gradients) { release_handle(gradients); }

size_t distag_gradients_get_count(distag_gradients* gradients) {
  const distag_gradients* live = peek(gradients);
  return live == nullptr ? 0 : live->count();
}

distag_tensor* distag_gradients_get_tensor(distag_gradients* gradients, size_t index) {
  return guard_or<distag_tensor*>(nullptr, [=]() -> distag_tensor* {
    distag_gradients* live = peek(gradients);
    return live == nullptr ? nullptr : live->leaf(index);
  });
}

distag_tensor* distag_gradients_get_gradient(distag_gradients* gradients, size_t index) {
  return guard_or<distag_tensor*>(nullptr, [=]() -> distag_tensor* {
    distag_gradients* live = peek(gradients);
    return live == nullptr ? nullptr : live->gradient(index);
  });
}

distag_tensor* distag_gradients_find(distag_gradients* gradients, distag_tensor* tensor) {
  return guard_or<distag_tensor*>(nullptr, [=]() -> distag_tensor* {
    distag_gradients* live = peek(gradients);
    const distag_tensor* leaf = peek(tensor);
    return live == nullptr || leaf == nullptr ? nullptr : live->find(leaf->tensor());
  });
}

distag_status distag_context_get_info(distag_context* context, distag_context_info* out_info, distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_info, sizeof(distag_context_info))) fill_struct(out_info, distag_context_info{});
    Context& live = need(context, "context").get();
    check_filled_struct(out_info, sizeof(distag_context_info), "distag_context_info");
    const ContextInfo info = live.info();
    distag_context_info filled{};
    filled.send_count = info.send_count;
    filled.recv_count = info.recv_count;
    filled.known_count = info.known_count;
    filled.gradient_count = info.gradient_count;
    filled.pass_count = info.pass_count;
    fill_struct(out_info, filled);
  });
}

distag_status distag_context_copy_known_ranks(distag_context* context, int32_t* ranks, size_t capacity,
                                              size_t* out_count, distag_error* err) {
  clear(out_count);
  return guard(__func__, err, [=] {
    Context& live = need(context, "context").get();
    check_array(ranks, capacity, "ranks");
    need_pointer(out_count, "out_count");
    const std::vector<int32_t> known = live.known_ranks();
    std::copy_n(known.begin(), std::min(capacity, known.size()), ranks);
    *out_count = known.size();
  });
}
