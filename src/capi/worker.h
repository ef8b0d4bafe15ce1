#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/host_callback.h"
#include "base/mutex.h"
#include "capi/boundary.h"
#include "worker/event_queue.h"
#include "worker/production.h"

namespace distag::capi {

class TakenCalls;

// The way from what the core keeps to its worker's handle, as long as that is there. Any thread.
class WorkerLink {
 public:
  explicit WorkerLink(distag_worker* worker) : worker_(worker) {}
  Ref<distag_worker> get();
  void cut();

 private:
  Mutex mutex_;
  distag_worker* worker_ GUARDED_BY(mutex_);
};

// A function that the host registered. Its user_data ends with the worker, when registering fails, or once it is
// withdrawn and no call needs it any more.
struct HostFunction {
  std::string name;
  distag_function function;
  HostData data;
};

}  // namespace distag::capi

// A worker. Thread-safe. While threads of the worker run, the host or the thread that releases it holds a reference; so
// it never ends on a thread of the worker.
struct distag_worker final : distag::capi::Handle {
 public:
  distag_worker(distag::ProductionOptions options, distag::HostData data, distag_member_callback on_member);
  ~distag_worker() override;

  // The host's last one shuts it down.
  bool release_by_host() noexcept override;
  // For callbacks; always the same.
  distag_worker* lent();

  distag::Worker& core() { return production_->worker(); }
  distag::Executor& functions() { return production_->functions(); }
  distag::HostExecutor* host() { return production_->host(); }
  // Throws INVALID_STATE for the pool executor.
  distag::HostExecutor& need_host();
  distag::EventQueue& events() { return events_; }
  distag::capi::TakenCalls& taken_calls() { return *taken_calls_; }
  // For what cannot fail and has to be made.
  distag::Reserve* reserve() { return production_->reserve(); }

  // Throws INVALID_STATE once it is down.
  void check_up() const;
  bool is_down() const { return settled_->is_done(); }

  // `run` holds the function.
  void register_function(std::shared_ptr<distag::capi::HostFunction> function, distag::Function run);
  // Withdraws it, and waits until no invocation of it runs and its user_data has ended.
  void unregister_function(const std::string& name, distag::Nanos timeout);
  std::shared_ptr<distag::Future<distag::Value>> start(distag::Nanos timeout);

  // Waits until it is down; the report, the same for all who ask. Throws DEADLINE naming the functions that still run.
  distag::Value shutdown(distag::Nanos timeout);
  std::shared_ptr<distag::Future<distag::Value>> shutdown_async(distag::Nanos timeout);
  // After an asynchronous shutdown: joins its threads, unless the caller is one of them. Throws DEADLINE likewise.
  void join(distag::Nanos timeout);

  const char* name();  // nullptr as long as it depends on the rank
  distag::WorkerStats stats();
  // Reports in JSON. Throw DEADLINE when the loop does not answer.
  std::string report();
  std::string report(distag::Context& context);

 private:
  using Outcome = distag::Future<distag::ShutdownReport>;
  std::shared_ptr<Outcome> begin_leaving(distag::Nanos timeout, distag::UniqueFunction<void(const Outcome&)> tell = {});
  void take_down(distag::Nanos timeout);
  void keep_report(const distag::ShutdownReport& report);
  void tell_of_shutdown(const distag::Future<distag::ShutdownReport>& outcome, distag::Future<distag::Value>& future);
  bool settle(distag::Nanos timeout, distag::Task before_last = {});
  void shut_down_for_good(bool is_thread) noexcept;

  distag::HostData data_;  // of the callbacks in the options
  const distag::ThreadHooks hooks_;
  const std::shared_ptr<distag::capi::WorkerLink> link_;
  std::unique_ptr<distag::ProductionWorker> production_;
  distag::EventQueue events_;  // ends before what its calls are of, as do those that were taken
  const std::unique_ptr<distag::capi::TakenCalls> taken_calls_;
  std::atomic<bool> was_started_{false};
  std::atomic<int> shutdowns_{0};  // that will mark the end of the events

  distag::capi::Lent<distag::capi::StandIn> lent_;

  distag::Mutex mutex_;
  std::vector<std::shared_ptr<distag::capi::HostFunction>> functions_ GUARDED_BY(mutex_);
  std::list<std::string> names_ GUARDED_BY(mutex_);  // those ever lent; the last one counts
  distag::Value report_ GUARDED_BY(mutex_);
  bool is_settling_ GUARDED_BY(mutex_) = false;
  const std::shared_ptr<distag::Future<distag::Unit>> settled_ = distag::Future<distag::Unit>::make();
};

namespace distag::capi {

inline distag_worker& need_worker(distag_worker* worker) { return need(worker, "worker"); }

// The function that rpc runs for one of the host, or for one that was offered and comes as an event.
Function make_function(distag_worker& worker, std::shared_ptr<HostFunction> function);
Function make_offer(distag_worker& worker, std::shared_ptr<HostFunction> function, uint64_t tag);
// Throws INVALID_STATE once the worker has left: no event would come.
void check_takes_events(distag_worker& worker);

distag_member to_member(const MemberRecord& record);

// Checks the options and says what they ask for.
ProductionOptions make_production_options(const distag_worker_options& options, std::shared_ptr<FrameMemory> memory);

// The allocator of the host; nullptr when there is none. Its destroy runs after the last block came back, also when
// this throws.
std::shared_ptr<FrameMemory> make_frame_memory(const distag_allocator* allocator);

}  // namespace distag::capi
