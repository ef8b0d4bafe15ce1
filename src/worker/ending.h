#pragma once

#include <memory>

#include "base/each_step.h"
#include "group/group.h"
#include "worker/start.h"

namespace distag {

// The end of a worker, once, for any cause. In an orderly end the worker leaves the group, the layers end what is open,
// the links close in turns, and the report completes last. A step that fails is a failure of the loop, which tries all
// steps again by shorter ways; each step may be repeated. On the loop.
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

  // Completes with the end, also after a failure; any thread.
  const std::shared_ptr<Future<ShutdownReport>>& report() const { return report_; }

  // May be called again: the earlier deadline counts.
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
