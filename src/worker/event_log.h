#pragma once

#include <deque>
#include <string>
#include <utility>

#include "base/loop.h"
#include "base/trace.h"

namespace distag {

// The latest events of a worker, for its report; all of them are also written to its trace. On the loop.
class EventLog {
 public:
  struct Event {
    Nanos when;
    std::string text;
  };
  static constexpr size_t kMost = 64;

  EventLog(const Loop& loop, Trace& trace) : loop_(loop), trace_(trace) {}

  void add(std::string text) {
    trace_.add_instant(TraceCategory::kMember, text);
    if (events_.size() == kMost) events_.pop_front();
    events_.push_back({loop_.now(), std::move(text)});
  }
  const std::deque<Event>& events() const { return events_; }

 private:
  const Loop& loop_;
  Trace& trace_;
  std::deque<Event> events_;
};

}  // namespace distag
