#pragma once

#include <memory>

#include "base/each_step.h"
#include "group/group.h"
#include "worker/start.h"

namespace distag {

// The end of a worker, once, whatever leads to it. By the rules: the group is left, the rooms end what is open, the
// links close in turns, and the report is the last that happens. A step that fails is a failure of the loop, which
// tries all of it again by shorter ways; each step may be repeated. On the loop.
class Ending {
 public:
  Ending(const WorkerEnvironment& environment, WorkerPhase& phase, Layers& layers, GroupLinks& links, WorkerView& view,
         EventLog& events, Start& start)
      : loop_(environment.loop),
        log_(environment.log),
        phase_(phase),
        layers_(layers),
        links_(links),
        view_(view),
        events_(events),
        start_(start) {}

  // Completes with the end, also with one by a failure; any thread.
  const std::shared_ptr<Future<ShutdownReport>>& report() const { return report_; }

  // Again: an earlier deadline counts.
  void begin(Nanos deadline);
  void on_loop_failure(const Error& error) noexcept;

 private:
  void close_soon(const std::shared_ptr<Future<ShutdownReport>>& left);
  void close_in_turns(const ShutdownReport& report);
  EachStep stop_parts();
  void close(ShutdownReport report, bool is_last_attempt = false);
  void end(ShutdownReport report);
  void end_by_failure(const Error& error);
  void note_failure(const Error& error);

  Loop& loop_;
  Log& log_;
  WorkerPhase& phase_;
  Layers& layers_;
  GroupLinks& links_;
  WorkerView& view_;
  EventLog& events_;
  Start& start_;
  const std::shared_ptr<Future<ShutdownReport>> report_ = Future<ShutdownReport>::make();
  int failures_ = 0;  // of tasks of the loop
};

}  // namespace distag
