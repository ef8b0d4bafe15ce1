#include "capi/call_options.h"

#include "capi/invocation.h"
#include "capi/struct_check.h"

namespace distag::capi {
namespace {

constexpr size_t kMaxLabel = 127;  // as it travels

}  // namespace

CallOptions read_call_options(const distag_call_options* given) {
  const distag_call_options options = read_struct(given, "distag_call_options");
  need_zero(options.reserved, "distag_call_options.reserved");
  CallOptions made;
  made.timeout = need_timeout(options.timeout_ns, "distag_call_options.timeout_ns");
  if (options.within != nullptr) made.within = need(options.within, "distag_call_options.within").shared_call();
  if (options.label != nullptr) made.label = need_text(options.label, "distag_call_options.label");
  if (made.label.size() > kMaxLabel) {
    refuse(Status::kInvalidArgument, "distag_call_options.label has {} bytes, more than {}", made.label.size(),
           kMaxLabel);
  }
  return made;
}

}  // namespace distag::capi
