#include "base/executor.h"

#include <utility>

#include "base/host_pump.h"
#include "base/lead.h"
#include "base/parker.h"

namespace distag {
namespace {

thread_local WaitPolicy* installed_policy = nullptr;

}  // namespace

WaitPolicy* exchange_wait_policy(WaitPolicy* policy) { return std::exchange(installed_policy, policy); }

void give_up_this_thread() noexcept {
  if (installed_policy != nullptr) installed_policy->give_up_thread();
}

void check_can_wait() {
  if (installed_policy != nullptr) installed_policy->check();
}

bool wait(Completion& completion, Nanos timeout) {
  if (installed_policy == nullptr && HostPump::any()) {
    const NoLead none;
    return HostPump::wait(completion, timeout);
  }
  return wait_and_run_nothing(completion, timeout);
}

bool wait_and_run_nothing(Completion& completion, Nanos timeout) {
  if (installed_policy != nullptr) return installed_policy->wait(completion, timeout);
  return lead_or_park(completion, timeout);
}

}  // namespace distag
