// Reports in JSON, for people and tools.

#include "capi/context.h"
#include "capi/text_copy.h"
#include "capi/worker.h"
#include "tensor/deferred.h"

using namespace distag;
using namespace distag::capi;

namespace {

// Empty in a process that has made no deferred tensors.
std::string deferred_report() {
  const DeferredCounts counts = deferred_counts();
  if (counts.tensors == 0 && counts.bytes_made_here == 0 && counts.bytes_made_whole == 0) return {};
  return fmt::format(R"(,"deferred":{{"alive":{},"bytes_made_here":{},"bytes_made_whole":{}}})", counts.tensors,
                     counts.bytes_made_here, counts.bytes_made_whole);
}

}  // namespace

distag_status distag_worker_copy_report(distag_worker* worker, char* buffer, size_t capacity, size_t* out_size,
                                        distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    copy_text(live.report(), buffer, capacity, out_size);
  });
}

distag_status distag_worker_copy_group_report(distag_worker* worker, int64_t timeout_ns, char* buffer, size_t capacity,
                                              size_t* out_size, distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    copy_text(live.group_report(need_timeout(timeout_ns, "timeout_ns")), buffer, capacity, out_size);
  });
}

distag_status distag_context_copy_report(distag_context* context, char* buffer, size_t capacity, size_t* out_size,
                                         distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    const auto held = Ref<distag_context>::share(&need(context, "context"));
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    Context& live = held->get();
    copy_text(held->worker() != nullptr ? held->worker()->report(live) : write_local_report(live), buffer, capacity,
              out_size);
  });
}

distag_status distag_copy_handle_report(char* buffer, size_t capacity, size_t* out_size, distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    std::string text = handle_report();
    text.pop_back();  // the brace at its end
    copy_text(text + deferred_report() + "}", buffer, capacity, out_size);
  });
}
