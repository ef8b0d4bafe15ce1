#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace distag {

// Writes at most one record per second, and with the next one how many were left out: for what others can cause as
// often as they like. For one thread.
class LogThrottle {
 public:
  void write(Log& log, LogLevel level, Nanos now, std::string text) {
    write_made(log, level, now, [&text] { return std::move(text); });
  }

  // The same; a text that is left out is not made.
  template <typename Make>
  void write_made(Log& log, LogLevel level, Nanos now, Make make) {
    if (now < next_) {
      ++left_out_;
      return;
    }
    next_ = now + kSecond;
    std::string text = make();
    if (left_out_ != 0) text += fmt::format(" ({} more like it since the record before)", std::exchange(left_out_, 0));
    log.write(level, std::move(text));
  }

 private:
  Nanos next_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace distag
