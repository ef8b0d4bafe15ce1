#include "base/system_error.h"

#include <cerrno>
#include <cstring>

namespace distag {

bool is_denied_call(int reason) { return reason == EPERM || reason == EACCES || reason == ENOSYS; }

Error system_error(const std::string& what, const char* call, int reason) {
  if (is_denied_call(reason)) {
    return Error(Status::kDenied,
                 fmt::format("{}: this system denies {} ({}); allow it in the sandbox of the process, as its seccomp "
                             "profile or container",
                             what, call, std::strerror(reason)));
  }
  const bool has_no_descriptor = reason == EMFILE || reason == ENFILE;
  const bool is_short = has_no_descriptor || reason == ENOMEM || reason == ENOBUFS;
  return Error(is_short ? Status::kOutOfMemory : Status::kInternal,
               fmt::format("{}: {}: {}{}", what, call, std::strerror(reason),
                           has_no_descriptor ? "; raise the limit of open files (ulimit -n)" : ""));
}

}  // namespace distag
