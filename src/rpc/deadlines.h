#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/loop.h"

namespace distag {

// Deadlines of many calls, few of which are ever reached. They form a heap, in which entries of finished calls stay
// until they are due or outnumber the others, and one timer runs for the earliest. Adding a deadline later than all
// others costs no search. On the loop.
class Deadlines {
 public:
  // `on_due` runs for a call that is still open at its deadline; it may add other deadlines.
  Deadlines(Loop& loop, std::function<bool(const Id&)> is_open, std::function<void(const Id&)> on_due);

  void add(const Id& call, Nanos when);  // kNever: does nothing
  // The call with this deadline is over.
  void note_end(Nanos when);
  void clear();  // before it is destroyed, if any deadline was added

 private:
  struct Entry {
    Nanos when;
    Id call;
  };
  static bool later(const Entry& a, const Entry& b) { return a.when > b.when; }

  void arm();
  void fire();
  void drop_ended();

  Loop& loop_;
  const std::function<bool(const Id&)> is_open_;
  const std::function<void(const Id&)> on_due_;
  std::vector<Entry> heap_;
  size_t ended_ = 0;  // entries of calls that are over
  Loop::TimerId timer_ = 0;
  Nanos timer_when_ = kNever;
};

}  // namespace distag
