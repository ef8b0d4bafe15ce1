#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "capi/boundary.h"
#include "worker/hosted_worker.h"

namespace distag::capi {

class TakenCalls;

// Leads from what the core keeps to the worker's handle, as long as that exists. Any thread: its mutex guards the life
// of a handle, which may end while another thread asks for it.
class WorkerLink {
 public:
  explicit WorkerLink(distag_worker* worker) : worker_(worker) {}
  Ref<distag_worker> get();
  void cut();

 private:
  Mutex mutex_;
  distag_worker* worker_ GUARDED_BY(mutex_);
};

}  // namespace distag::capi

// A worker. Thread-safe. While threads of the worker run, the host or the thread that releases it holds a reference; so
// it never ends on a thread of the worker.
struct distag_worker final : distag::capi::Handle {
 public:
  distag_worker(distag::ThreadedOptions options, distag::HostData data, distag_member_callback on_member);
  ~distag_worker() override;

  // The host's last release shuts the worker down.
  bool release_by_host() noexcept override;
  // The handle for callbacks; always the same.
  distag_worker* lent();

  distag::HostedWorker& hosted() { return *hosted_; }
  distag::Worker& core() { return hosted_->core(); }
  distag::Executor& functions() { return hosted_->functions(); }
  distag::HostExecutor* host() { return hosted_->host(); }
  // Throws INVALID_STATE for the pool executor.
  distag::HostExecutor& need_host();
  distag::EventQueue& events() { return hosted_->events(); }
  distag::capi::TakenCalls& taken_calls() { return *taken_calls_; }
  // For objects that have to be made even if memory is short.
  distag::Reserve* reserve() { return hosted_->reserve(); }

  // Whether the calling thread is in a callback of the worker, or one of its threads. Callbacks are marked with
  // hosted().
  bool runs_callback() const { return distag::runs_callback_of(hosted_.get()); }
  // Throws INVALID_STATE once it is down.
  void check_up() const;

  // As in HostedWorker; a bad outcome there is an error here.
  void register_function(std::shared_ptr<distag::HostFunction> function, distag::Function run,
                         std::vector<std::string> callers);
  void unregister_function(const std::string& name, distag::Nanos timeout);
  std::shared_ptr<distag::Future<distag::Value>> start(distag::Nanos timeout);
  distag::Value shutdown(distag::Nanos timeout);
  // Reports in JSON. Throw DEADLINE when the loop does not answer.
  std::string report();
  std::string report(distag::Context& context);
  std::string group_report(distag::Nanos timeout);

 private:
  const std::shared_ptr<distag::capi::WorkerLink> link_;
  std::unique_ptr<distag::HostedWorker> hosted_;
  const std::unique_ptr<distag::capi::TakenCalls> taken_calls_;  // ends before the worker of its calls
  distag::capi::Lent<distag::capi::StandIn> lent_;
};

namespace distag::capi {

inline distag_worker& need_worker(distag_worker* worker) { return need(worker, "worker"); }

// The functions that rpc runs for one of the host, and for one that was offered and whose calls come as events.
Function make_function(distag_worker& worker, std::shared_ptr<HostFunction> function, distag_function run);
Function make_offer(distag_worker& worker, std::shared_ptr<HostFunction> function, uint64_t tag);
// Throws INVALID_STATE once the worker has left: no event would come.
void check_takes_events(distag_worker& worker);

distag_member to_member(const MemberRecord& record);

// A name that a worker can have. Throws INVALID_ARGUMENT naming `what`.
std::string need_worker_name(const char* text, const char* what);
// A list of such names.
std::vector<std::string> need_worker_names(const char* const* names, size_t count, const char* what);
// A text, or `fallback` if `text` is NULL.
std::string text_or(const char* text, const char* fallback, const char* name);
// Checks the keys and the roles, and sets them in `made`.
void make_security(const distag_security_options* given, ThreadedOptions& made);

// Checks the options and converts them.
ThreadedOptions make_threaded_options(const distag_worker_options& options, std::shared_ptr<FrameMemory> memory);

// The allocator of the host; nullptr when it gave none. Its destroy runs after the last block came back, also when
// this throws.
std::shared_ptr<FrameMemory> make_frame_memory(const distag_allocator* allocator);

}  // namespace distag::capi
