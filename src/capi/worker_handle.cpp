#include "capi/worker.h"

#include <utility>

#include "base/host_code.h"
#include "base/not_started.h"
#include "base/parker.h"
#include "capi/taken_calls.h"

using namespace distag;
using namespace distag::capi;

distag_worker::distag_worker(ThreadedOptions options, HostData data, distag_member_callback on_member)
    : Handle(Kind::kWorker), link_(std::make_shared<WorkerLink>(this)), taken_calls_(std::make_unique<TakenCalls>()) {
  if (on_member != nullptr) {
    lent();  // made before a callback depends on it
    options.on_member = [this, on_member, user_data = data.get()](const MemberRecord& record) {
      const distag_member member = to_member(record);
      distag_worker* const worker = lent();
      call_host([&] { on_member(user_data, worker, &member); });
    };
  }
  hosted_ = std::make_unique<HostedWorker>(std::move(options), std::move(data));
  core().rrefs().set_host(link_);
}

distag_worker::~distag_worker() { link_->cut(); }

distag_worker* distag_worker::lent() {
  // The constructor makes it, where that matters, before there is a reserve.
  const ReserveScope scope(hosted_ ? reserve() : current_reserve());
  return lent_.get([this] { return new StandIn(*this); })->as<distag_worker>();
}

bool distag_worker::release_by_host() noexcept {
  if (is_of_parent()) return Handle::release_by_host();
  const auto held = Ref<distag_worker>::share(this);
  const Dropped dropped = drop_host_reference();
  if (dropped == Dropped::kLast) {
    retain();  // until it has ended
    hosted_->end_for_good([this] {
      taken_calls_->end_all();
      release();
    });
  }
  return dropped != Dropped::kNone;
}

HostExecutor& distag_worker::need_host() {
  if (host() != nullptr) return *host();
  refuse(Status::kInvalidState, "the worker runs its callbacks on its pool; make it with DISTAG_EXECUTOR_HOST");
}

void distag_worker::check_up() const {
  if (hosted_->is_down()) refuse(Status::kInvalidState, "the worker is shut down");
}

void distag_worker::register_function(std::shared_ptr<HostFunction> function, Function run,
                                      std::vector<std::string> callers) {
  check_up();
  hosted_->register_function(std::move(function), std::move(run), std::move(callers));
}

void distag_worker::unregister_function(const std::string& name, Nanos timeout) {
  check_up();
  check_can_wait();
  switch (hosted_->unregister_function(name, timeout)) {
    case HostedWorker::Withdrawal::kDone:
      return;
    case HostedWorker::Withdrawal::kUnknown:
      refuse(Status::kNotFound, "there is no function \"{}\"", name);
    case HostedWorker::Withdrawal::kFromWithinItself:
      refuse(Status::kInvalidState, "\"{}\" is called from within itself: it cannot end before", name);
    case HostedWorker::Withdrawal::kStillRuns:
      refuse(Status::kDeadline, "\"{}\" is withdrawn, but still runs after {} ms", name, timeout / kMillisecond);
  }
}

std::shared_ptr<Future<Value>> distag_worker::start(Nanos timeout) {
  check_up();
  return hosted_->start(timeout);
}

Value distag_worker::shutdown(Nanos timeout) {
  if (runs_callback()) {
    refuse(Status::kInvalidState, "called from a callback of this worker: use distag_worker_shutdown_async");
  }
  check_can_wait();
  std::optional<Value> report = hosted_->shutdown(timeout);
  if (!report) refuse(Status::kDeadline, "the worker did not leave its group in time: its loop does not answer");
  return *std::move(report);
}

namespace {

constexpr Nanos kReportPatience = kSecond;

// Parks rather than wait(), which might run callbacks; on the loop itself it is refused.
template <typename Snapshot>
std::string write(const std::shared_ptr<Future<Snapshot>>& snapshot) {
  check_can_wait();
  if (!park_until_done(*snapshot, kReportPatience)) {
    refuse(Status::kDeadline, "the worker is busy: its loop did not answer within {} ms",
           kReportPatience / kMillisecond);
  }
  // An unknown context fails with another status.
  const Error* error = snapshot->error();
  if (error != nullptr && error->status() == Status::kCancelled) {
    refuse(Status::kInvalidState, "the worker is shut down");
  }
  return write_report(snapshot->value());
}

}  // namespace

std::string distag_worker::report() {
  if (!core().is_started() || hosted_->is_down()) return write_report(core().snapshot_at_rest());
  return write(core().fetch_snapshot());
}

std::string distag_worker::report(Context& context) {
  check_up();
  return write(core().fetch_snapshot(context.global_id()));
}

std::string distag_worker::group_report(Nanos timeout) {
  check_up();
  if (!core().is_started()) refuse(Status::kInvalidState, "{}", kNotStarted);
  check_can_wait();
  const auto report = core().fetch_group_report(timeout);
  if (!park_until_done(*report, timeout == kForever ? kForever : deadline_after(timeout, kReportPatience))) {
    refuse(Status::kDeadline, "the worker is busy: its loop did not answer in time");
  }
  const Error* const error = report->error();
  if (error == nullptr) return report->value();
  if (error->status() == Status::kCancelled) refuse(Status::kInvalidState, "the worker is shut down");
  throw *error;
}

namespace distag::capi {

Ref<distag_worker> WorkerLink::get() {
  MutexLock lock(mutex_);
  if (worker_ == nullptr || !worker_->try_retain()) return {};
  return Ref<distag_worker>::adopt(worker_);
}

void WorkerLink::cut() {
  MutexLock lock(mutex_);
  worker_ = nullptr;
}

}  // namespace distag::capi
