#include "capi/host_callback.h"

#include <algorithm>
#include <cstring>

#include "base/host_code.h"
#include "base/process.h"
#include "tensor/utf8.h"

namespace distag::capi {
namespace {

thread_local const CallbackScope* innermost_scope = nullptr;
thread_local const void* thread_owner = nullptr;

}  // namespace

HostData::HostData(void* user_data, distag_deleter destroy)
    : user_data_(user_data), destroy_(destroy), generation_(process_generation()) {}

void HostData::run_destroy() noexcept {
  const distag_deleter destroy = std::exchange(destroy_, nullptr);
  Task then = std::move(on_destroyed_);
  if ((destroy == nullptr && !then) || generation_ != process_generation()) return;
  try {
    if (!then) {
      // Small enough to need no memory: a task that cannot be made would never run.
      run_host_code([destroy, user_data = user_data_] { call_host([&] { destroy(user_data); }); });
      return;
    }
    run_host_code([destroy, user_data = user_data_, then = std::move(then)]() mutable {
      if (destroy != nullptr) call_host([&] { destroy(user_data); });
      if (then) then();
    });
  } catch (...) {
    // The executor refused the task and dropped it, which ran it.
  }
}

CallbackScope::CallbackScope(const void* owner) : owner_(owner), outer_(innermost_scope) { innermost_scope = this; }

CallbackScope::~CallbackScope() { innermost_scope = outer_; }

bool runs_callback_of(const void* owner) {
  if (thread_owner == owner) return true;
  for (const CallbackScope* scope = innermost_scope; scope != nullptr; scope = scope->outer_) {
    if (scope->owner_ == owner) return true;
  }
  return false;
}

void set_thread_owner(const void* worker) { thread_owner = worker; }

Error callback_error(distag_status status, const distag_error& err, const std::string& what) {
  const auto code = static_cast<Status>(status);
  const bool is_known = status >= DISTAG_E_USER || (status > 0 && std::strcmp(status_name(code), "UNKNOWN") != 0);
  std::string message(err.message, strnlen(err.message, sizeof(err.message)));
  if (!is_valid_utf8(message)) {
    std::replace_if(
        message.begin(), message.end(), [](char byte) { return static_cast<unsigned char>(byte) >= 0x80; }, '?');
  }
  if (message.empty()) message = fmt::format("{} failed with status {} and no message", what, status);
  Error error(is_known ? code : Status::kRemote, std::move(message));
  // The failure of a call that the callback made keeps the place where it arose.
  if (err.code == status) error.set_origin_rank(err.origin_rank);
  return error;
}

}  // namespace distag::capi
