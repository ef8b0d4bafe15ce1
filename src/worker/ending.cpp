#include "worker/ending.h"

#include <optional>
#include <utility>

namespace distag {

void Ending::begin(Nanos deadline) {
  assert_on_loop(loop_);
  switch (phase_) {
    case WorkerPhase::kStarting:
      start_.abandon(Error(Status::kCancelled, "the worker was shut down"));
      [[fallthrough]];
    case WorkerPhase::kCreated:
      close(ShutdownReport{});
      return;
    case WorkerPhase::kStarted:
    case WorkerPhase::kStopping:
      break;
    case WorkerPhase::kStopped:
      return;
  }
  const bool first = phase_ == WorkerPhase::kStarted;
  if (first) events_.add("shutdown began");
  phase_ = WorkerPhase::kStopping;
  std::shared_ptr<Future<ShutdownReport>> left = layers_.group.shutdown(deadline);
  if (first) close_soon(left);
}

// The report completes inside of group and session: a task of its own takes these down.
void Ending::close_soon(const std::shared_ptr<Future<ShutdownReport>>& left) {
  left->on_done([this, outcome = left.get()] {
    loop_.post_or_drop([this, report = outcome->value()] {
      if (links_.transport) links_.transport->let_last_words_go();
      stop_parts().check();
      close_in_turns(report);
    });
  });
}

void Ending::close_in_turns(const ShutdownReport& report) {
  if (phase_ == WorkerPhase::kStopped) return;
  if (links_.session->close_some()) {
    loop_.post_or_drop([this, report] { close_in_turns(report); });
  } else {
    end(report);
  }
}

EachStep Ending::stop_parts() {
  EachStep each;
  layers_.stop(each);
  each([this] { links_.end_rendezvous(); });
  each([this] { view_.stop(links_.session ? std::optional(links_.stats()) : std::nullopt); });
  return each;
}

void Ending::close(ShutdownReport report, bool is_last_attempt) {
  if (phase_ == WorkerPhase::kStopped) return;
  const EachStep each = stop_parts();
  if (!is_last_attempt) each.check();  // failed steps are tried again by end_by_failure
  end(std::move(report));
}

void Ending::end(ShutdownReport report) {
  phase_ = WorkerPhase::kStopped;
  start_.drop();
  report_->complete(std::move(report));
}

// ---- failure of the loop ----

void Ending::on_loop_failure(const Error& error) noexcept {
  assert_on_loop(loop_);
  for (bool is_done = false; !is_done;) {
    try {
      end_by_failure(error);
      is_done = true;
    } catch (...) {
      // Tries again, by a shorter way.
    }
  }
}

void Ending::note_failure(const Error& error) {
  EachStep each;  // without memory to log it, the worker ends all the same
  each([this, &error] {
    log_.write(LogLevel::kError, "the worker ends, as a task of its loop failed: " + error.message());
  });
}

// First tries an orderly end: a start is abandoned, or LEAVE is sent. A further failure, or one of a shutdown that is
// leaving, cuts this short, for some attempts; at last it only completes the futures of those who wait.
void Ending::end_by_failure(const Error& error) {
  if (phase_ == WorkerPhase::kCreated || phase_ == WorkerPhase::kStopped) return;
  ShutdownReport report;
  report.clean = false;
  switch (failures_++) {
    case 0:
      note_failure(error);
      if (phase_ == WorkerPhase::kStarting) {
        start_.abandon(error);
        failures_ = 0;
        return;
      }
      phase_ = WorkerPhase::kStopping;
      if (!layers_.group.leave_for(error)) return close(std::move(report));
      return close_soon(layers_.group.shutdown(0));
    case 1:
    case 2:
    case 3:
    case 4:
      return close(std::move(report));
    default:
      EachStep each;
      each([this, &report] { close(report, true); });
      phase_ = WorkerPhase::kStopped;
      start_.drop_outcome();
      report_->complete(std::move(report));
  }
}

}  // namespace distag
