#pragma once

namespace distag {

// The phases of a worker, in order, on its loop. A start that fails leads back to the first one, and an end leads to
// the last one from any other; no other step is taken twice.
enum class WorkerPhase { kCreated, kStarting, kStarted, kStopping, kStopped };

inline const char* phase_text(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kCreated:
      return "not started";
    case WorkerPhase::kStarting:
      return "starting";
    case WorkerPhase::kStarted:
      return "started already";
    case WorkerPhase::kStopping:
      return "shutting down";
    case WorkerPhase::kStopped:
      return "shut down";
  }
  return "in an unknown state";
}

}  // namespace distag
