// Hooks of tensors: host code that sees gradients in backward passes.

#include "autograd/autograd.h"
#include "base/host_callback.h"
#include "base/host_code.h"
#include "capi/value.h"

using namespace distag;
using namespace distag::capi;

namespace {

struct HostHook {
  distag_tensor_hook function;
  HostData data;
};

// A gradient that the hook writes passes to distag, even if the hook fails.
Tensor run(const HostHook& hook, const Tensor& gradient) {
  const Lent<distag_tensor> lent(make_tensor(gradient));
  distag_tensor* written = nullptr;
  distag_error err = DISTAG_ERROR_INIT;
  const distag_status status = call_host([&] { return hook.function(hook.data.get(), lent.get(), &written, &err); });
  const auto given = take_written(written);
  if (status != DISTAG_OK) throw callback_error(status, err, "a hook of a tensor");
  if (written != nullptr && !given) fail(Status::kInvalidArgument, "wrote something that is no tensor handle");
  return given ? given->tensor() : Tensor();
}

}  // namespace

distag_status distag_tensor_add_hook(distag_tensor* tensor, distag_tensor_hook hook, void* user_data,
                                     distag_deleter destroy, uint64_t* out_hook_id, distag_error* err) {
  clear(out_hook_id);
  GivenData data(user_data, destroy);
  return guard(__func__, err, [&] {
    const Tensor& live = need(tensor, "tensor").tensor();
    if (hook == nullptr) refuse_null("hook");
    need_pointer(out_hook_id, "out_hook_id");
    auto host = std::make_shared<HostHook>(HostHook{hook, std::move(data)});
    *out_hook_id = autograd::add_hook(live, [host](const Tensor& gradient) { return run(*host, gradient); });
  });
}

distag_status distag_tensor_remove_hook(distag_tensor* tensor, uint64_t hook_id, distag_error* err) {
  return guard(__func__, err, [=] { autograd::remove_hook(need(tensor, "tensor").tensor(), hook_id); });
}
