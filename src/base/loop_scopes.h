#pragma once

#include <atomic>
#include <string>

#include "base/executor.h"
#include "base/host_code.h"
#include "base/lead.h"
#include "base/no_cancel.h"
#include "base/reserve.h"

// The marks that a loop sets on the threads that run it, and its count of the threads that wait for it.
namespace distag {

class RefusingPolicy final : public WaitPolicy {
 public:
  explicit RefusingPolicy(const std::string& loop_name) : loop_name_(loop_name) {}
  void check() override {
    fail(Status::kInvalidState,
         "a callback on the loop thread \"{}\" may not wait: use the _async call and go on in its callback",
         loop_name_);
  }
  bool wait(Completion&, Nanos) override {
    check();
    return false;
  }

 private:
  const std::string& loop_name_;
};

// Installs the wait policy, reserve and executor for host code of a loop on the thread that runs it. A host may end
// a thread of its own by pthread_cancel, but not in the middle of a loop's work.
class RunScope {
 public:
  RunScope(WaitPolicy& policy, Reserve* reserve, Executor* host_code)
      : reserve_(reserve), policy_(exchange_wait_policy(&policy)), host_code_(exchange_host_code_executor(host_code)) {}
  ~RunScope() {
    exchange_host_code_executor(host_code_);
    exchange_wait_policy(policy_);
  }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

 private:
  const NoCancel no_cancel_;
  const NoLead no_lead_;
  const ReserveScope reserve_;
  WaitPolicy* const policy_;
  Executor* const host_code_;
};

// Counts the calling thread as waiting while this lives.
class Waiting {
 public:
  explicit Waiting(std::atomic<int>& count) : count_(count), is_alone_(count.fetch_add(1) == 0) {}
  ~Waiting() { count_.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  bool is_alone() const { return is_alone_; }

 private:
  std::atomic<int>& count_;
  const bool is_alone_;
};

}  // namespace distag
