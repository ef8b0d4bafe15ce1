// Reports in JSON, for people and tools.

#include <algorithm>

#include "capi/context.h"
#include "capi/worker.h"

using namespace distag;
using namespace distag::capi;

namespace {

// As much as there is room for, and a NUL.
void copy_text(const std::string& text, char* buffer, size_t capacity, size_t* out_size) {
  if (capacity > 0) {
    const size_t size = std::min(capacity - 1, text.size());
    std::copy_n(text.data(), size, buffer);
    buffer[size] = '\0';
  }
  *out_size = text.size();
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

distag_status distag_context_copy_report(distag_context* context, char* buffer, size_t capacity, size_t* out_size,
                                         distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    const auto held = Ref<distag_context>::share(&need(context, "context"));
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    Context& live = held->get();
    copy_text(held->worker() == nullptr ? write_local_report(live) : held->worker()->report(live), buffer, capacity,
              out_size);
  });
}

distag_status distag_copy_handle_report(char* buffer, size_t capacity, size_t* out_size, distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    copy_text(handle_report(), buffer, capacity, out_size);
  });
}
