// Calls of functions of other workers.

#include "base/lead.h"
#include "base/wait_or_cancel.h"
#include "capi/call_options.h"
#include "capi/call_request.h"
#include "capi/future.h"

using namespace distag;
using namespace distag::capi;

namespace distag::capi {

Id need_context_of(distag_worker& worker, distag_context* context) {
  const distag_context* live = need_or_null(context, "context");
  if (live == nullptr) return {};
  if (live->worker() != &worker) {
    refuse(Status::kInvalidArgument, "the context {:#x} is {}", live->id(),
           live->worker() == nullptr ? "one without a worker: give it one when it is created" : "of another worker");
  }
  return live->get().global_id();
}

CallRequest make_call_request(distag_worker& worker, const CallArguments& given) {
  CallRequest request;
  request.args = need_values(given.args, given.arg_count, "args");
  worker.check_up();
  request.context = need_context_of(worker, given.context);
  request.to = need_text(given.to, "to");
  request.function = need_text(given.function, "function");
  CallOptions options = read_call_options(given.options, &worker, given.context);
  request.timeout = options.timeout;
  request.within = std::move(options.within);
  request.label = std::move(options.label);
  request.trace_parent = std::move(options.trace_parent);
  return request;
}

}  // namespace distag::capi

distag_status distag_call(distag_worker* worker, distag_context* context, const char* to, const char* function,
                          distag_value* const* args, size_t arg_count, const distag_call_options* options,
                          distag_value** out_result, distag_error* err) {
  clear(out_result);
  return guard(__func__, err, [=] {
    // Held: other threads may release their references during the wait.
    const auto held = Ref<distag_worker>::share(&need_worker(worker));
    CallRequest request = make_call_request(*held, {context, to, function, args, arg_count, options});
    // Refused before anything is sent.
    check_can_wait();
    request.has_time = true;
    const Lead lead(held->core().loop());
    const auto future = held->core().rpc().call(std::move(request));
    wait_or_cancel(*future);
    const Value& result = future->value();
    if (out_result != nullptr) *out_result = make_value(result);
  });
}

distag_status distag_call_async(distag_worker* worker, distag_context* context, const char* to, const char* function,
                                distag_value* const* args, size_t arg_count, const distag_call_options* options,
                                distag_future** out_future, distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    CallRequest request = make_call_request(live, {context, to, function, args, arg_count, options});
    need_pointer(out_future, "out_future");
    *out_future = new distag_future(live.core().rpc().call(std::move(request)), live);
  });
}
