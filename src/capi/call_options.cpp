#include "capi/call_options.h"

#include "base/host_callback.h"
#include "capi/invocation.h"
#include "capi/struct_check.h"

namespace distag::capi {
namespace {

constexpr size_t kMaxLabel = 127;  // the limit on the wire

// A malformed traceparent is dropped, as the standard demands: as if none were given.
void choose_trace_parent(CallOptions& made, const char* given, distag_worker* worker, distag_context* context) {
  if (given != nullptr) {
    if (*given == '\0') return;
    made.trace_parent = TraceParent::parse(given);
    if (made.trace_parent != nullptr) return;
    if (worker != nullptr) worker->core().rpc().note_trace_parent_dropped();
  }
  if (made.within != nullptr) {
    made.trace_parent = made.within->trace_parent();
    return;
  }
  if (context != nullptr) made.trace_parent = need(context, "context").trace_parent();
  if (made.trace_parent != nullptr) return;
  if (const auto* const current = current_trace_parent()) made.trace_parent = *current;
}

// Reads all options but the traceparent, which it returns as it is.
const char* read_given(CallOptions& made, const distag_call_options* given) {
  const distag_call_options options = read_struct(given, "distag_call_options", kFirstCallOptions);
  need_zero(options.reserved, "distag_call_options.reserved");
  made.timeout = need_timeout(options.timeout_ns, "distag_call_options.timeout_ns");
  if (options.within != nullptr) made.within = need(options.within, "distag_call_options.within").shared_call();
  if (options.label != nullptr) made.label = need_text(options.label, "distag_call_options.label");
  if (made.label.size() > kMaxLabel) {
    refuse(Status::kInvalidArgument, "distag_call_options.label has {} bytes, more than {}", made.label.size(),
           kMaxLabel);
  }
  return options.traceparent;
}

}  // namespace

CallOptions read_call_options(const distag_call_options* given, distag_worker* worker, distag_context* context) {
  CallOptions made;
  const char* const traceparent = given == nullptr ? nullptr : read_given(made, given);
  choose_trace_parent(made, traceparent, worker, context);
  return made;
}

}  // namespace distag::capi
