#pragma once

#include <deque>
#include <string>
#include <utility>

#include "base/clock.h"

namespace distag {

// The last things that happened to a worker, for its report. On the loop.
class EventLog {
 public:
  struct Event {
    Nanos when;
    std::string text;
  };
  static constexpr size_t kMost = 64;

  void add(Nanos now, std::string text) {
    if (events_.size() == kMost) events_.pop_front();
    events_.push_back({now, std::move(text)});
  }
  const std::deque<Event>& events() const { return events_; }

 private:
  std::deque<Event> events_;
};

}  // namespace distag
