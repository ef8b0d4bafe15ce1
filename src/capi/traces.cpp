// Traces: where they are written, and spans of the host in them.

#include <cstdlib>

#include "base/executor.h"
#include "base/not_started.h"
#include "capi/struct_check.h"
#include "capi/worker.h"

using namespace distag;
using namespace distag::capi;

namespace {

constexpr uint64_t kLeastMaxBytes = uint64_t{64} << 10;
constexpr Nanos kStopPatience = 10 * kSecond;
constexpr size_t kLongestSpanLabel = 127;

TraceOptions need_options(const distag_trace_options* given) {
  const distag_trace_options options = read_struct(given, "distag_trace_options");
  need_zero(options.detail, "detail");
  TraceOptions made;
  if (options.max_bytes != 0) made.max_bytes = options.max_bytes;
  if (made.max_bytes < kLeastMaxBytes) {
    refuse(Status::kInvalidArgument, "max_bytes is {}: give {} or more", options.max_bytes, kLeastMaxBytes);
  }
  const char* const folder = options.folder != nullptr ? options.folder : std::getenv("DISTAG_TRACE");
  if (folder == nullptr || *folder == '\0') {
    refuse(Status::kInvalidArgument, "folder is NULL or empty, and so is DISTAG_TRACE in the environment: give one");
  }
  made.folder = need_text(folder, "folder");
  return made;
}

}  // namespace

distag_status distag_worker_start_trace(distag_worker* worker, const distag_trace_options* options, distag_error* err) {
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    if (live.hosted().is_down()) refuse(Status::kInvalidState, "the worker is shut down");
    if (!live.core().is_started()) refuse(Status::kInvalidState, "{}", kNotStarted);
    TraceOptions wanted = need_options(options);
    live.hosted().tracer().start(std::move(wanted), true);
  });
}

distag_status distag_worker_stop_trace(distag_worker* worker, distag_error* err) {
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    check_can_wait();
    if (!live.hosted().tracer().stop(kStopPatience)) {
      refuse(Status::kDeadline, "the trace is not on the disk after {} s: stop it again", kStopPatience / kSecond);
    }
  });
}

distag_status distag_trace_begin(distag_worker* worker, const char* label, uint64_t* out_span, distag_error* err) {
  clear(out_span);
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    std::string text = need_text(label, "label");
    need_pointer(out_span, "out_span");
    if (text.size() > kLongestSpanLabel) {
      refuse(Status::kInvalidArgument, "label has {} bytes: at most {}", text.size(), kLongestSpanLabel);
    }
    *out_span = live.hosted().tracer().begin_span(std::move(text));
  });
}

void distag_trace_end(distag_worker* worker, uint64_t span) {
  guard_or<int>(0, [worker, span] {
    distag_worker* live = peek(worker);
    if (live != nullptr && span != 0) live->hosted().tracer().end_span(span);
    return 0;
  });
}
