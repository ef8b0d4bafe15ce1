#pragma once

#include <string>
#include <utility>

#include "base/task.h"

namespace distag {

enum class LogLevel : int { kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

// Takes a worker's log records. The sink may be called on any thread; the worker's composition root forwards records to
// the executor, so no host code runs here.
class Log {
 public:
  using Sink = UniqueFunction<void(LogLevel, std::string)>;

  Log() = default;
  Log(LogLevel level, Sink sink) : level_(level), sink_(std::move(sink)) {}

  bool enabled(LogLevel level) const { return sink_room() && level <= level_; }
  void write(LogLevel level, std::string text) {
    if (enabled(level)) sink_(level, std::move(text));
  }

 private:
  bool sink_room() const { return static_cast<bool>(sink_); }

  LogLevel level_ = LogLevel::kWarning;
  Sink sink_;
};

}  // namespace distag
