#include "base/executor.h"

#include <utility>

#include "base/host_pump.h"
#include "base/lead.h"
#include "base/parker.h"
#include "base/process.h"

namespace distag {
namespace {

thread_local WaitPolicy* installed_policy = nullptr;
thread_local uint32_t installed_in = 0;  // process_generation()

// In a child forked on a thread with a policy, the pool or loop of that policy does not exist.
WaitPolicy* policy_of_this_process() {
  return installed_policy == nullptr || installed_in == process_generation() ? installed_policy : nullptr;
}

}  // namespace

WaitPolicy* exchange_wait_policy(WaitPolicy* policy) {
  WaitPolicy* const before = policy_of_this_process();
  installed_policy = policy;
  installed_in = process_generation();
  return before;
}

void give_up_this_thread() noexcept {
  if (WaitPolicy* const policy = policy_of_this_process()) policy->give_up_thread();
}

void check_can_wait() {
  if (WaitPolicy* const policy = policy_of_this_process()) policy->check();
}

bool wait(Completion& completion, Nanos timeout) {
  if (policy_of_this_process() == nullptr && HostPump::any()) {
    const NoLead none;
    return HostPump::wait(completion, timeout);
  }
  return wait_and_run_nothing(completion, timeout);
}

bool wait_and_run_nothing(Completion& completion, Nanos timeout) {
  if (WaitPolicy* const policy = policy_of_this_process()) return policy->wait(completion, timeout);
  return lead_or_park(completion, timeout);
}

}  // namespace distag
