#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "rpc/open_call.h"
#include "rpc/running_functions.h"

namespace distag {

// The progress of one call from a peer. Any thread.
//
//   queued  -> running   begin(): a thread takes the call, if it is open and RunningFunctions is not closed
//   queued  -> over      close(): the call ended in the queue and never runs
//   running -> returned  note_returned(): the function has returned or thrown
//
// A run that has begun counts as a running function of the worker until end_run().
class CallStage {
 public:
  explicit CallStage(Nanos arrived) : arrived_(arrived) {}

  bool begin(RunningFunctions& running, const std::string& function, Nanos now) {
    if (!running.begin(run_, function)) return false;
    if (move(Stage::kQueued, Stage::kRunning)) {
      begun_.store(now, std::memory_order_relaxed);
      return true;
    }
    running.end(run_);
    return false;
  }
  void note_returned() { stage_.store(Stage::kReturned); }
  void end_run(RunningFunctions& running) {
    note_returned();
    running.end(run_);
  }
  // Returns whether the function has begun.
  bool close() {
    is_cancelled_.store(true, std::memory_order_release);
    return !move(Stage::kQueued, Stage::kOver);
  }

  bool is_queued() const { return stage_.load() == Stage::kQueued; }
  bool is_running() const { return stage_.load() == Stage::kRunning; }
  bool has_returned() const { return stage_.load() == Stage::kReturned; }
  bool is_cancelled() const { return is_cancelled_.load(std::memory_order_acquire); }

  Nanos arrived() const { return arrived_; }
  // Time from the arrival to the start of the function; negative: the function has not begun.
  Nanos queued() const {
    const Nanos begun = begun_.load(std::memory_order_relaxed);
    return begun == kNever ? -1 : begun - arrived_;
  }
  // For reports on an open call.
  OpenCall::Stage described() const {
    if (is_queued()) return OpenCall::Stage::kWaiting;
    return has_returned() ? OpenCall::Stage::kDeferred : OpenCall::Stage::kRunning;
  }

 private:
  enum class Stage : uint8_t { kQueued, kRunning, kReturned, kOver };

  bool move(Stage from, Stage to) { return stage_.compare_exchange_strong(from, to); }

  const Nanos arrived_;
  std::atomic<Stage> stage_{Stage::kQueued};
  std::atomic<bool> is_cancelled_{false};
  std::atomic<Nanos> begun_{kNever};
  RunningFunctions::Run run_;
};

}  // namespace distag
