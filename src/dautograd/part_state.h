#pragma once

#include <memory>

#include "dautograd/context_record.h"
#include "dautograd/dautograd_shared.h"
#include "dautograd/pass_graph.h"
#include "dautograd/pass_info.h"
#include "dautograd/pass_observer.h"

namespace distag {

class LocalPass;

// Whether the part of a pass on one worker runs, and what it reports to its observer. On the loop.
//
//   running -> done     report_done(): all nodes have run, and all GRADs are numbered
//   running -> failed   fail(); the graph stops
//   done    -> failed   the report of the end finds no memory
//   any     -> over     close(); nothing is reported after that
//
// A part counts as one that is open on this worker, and in its context, from begin() to close().
class PartState {
 public:
  using Holder = std::enable_shared_from_this<LocalPass>;

  // `holder` is the part that has this as a member.
  PartState(DautogradShared& shared, PassGraph& graph, Holder& holder, std::shared_ptr<ContextRecord> context,
            const PassInfo& info);

  // The last step that may fail when the part is made. Throws why the context is over, and has done nothing then.
  void begin();
  void observe(std::unique_ptr<PassObserver> observer);  // owned
  void observe(PassObserver* observer) { observer_ = observer; }
  PassObserver& observer() const { return *observer_; }

  bool is_running() const { return state_ == State::kRunning; }
  bool is_done() const { return state_ == State::kDone; }
  bool is_failed() const { return state_ == State::kFailed; }
  bool is_over() const { return state_ == State::kOver; }
  Nanos age() const { return shared_.environment.loop.now() - begun_; }

  // Whether a message of the pass counts here: the part has not failed, and gradients have a history where it comes
  // from if they have one here. If the two differ, the part fails.
  bool takes(const Peer& from, bool creates_graph);
  // `last` may be nullptr: see PassObserver.
  void report_done(wire::Grad* last);
  // The first failure counts.
  void fail(const Error& error);
  // A gradient has come that fits nothing here. The initiator takes a part that is done as complete, and would wait for
  // the gradient to be counted: it is told even then.
  void fail_by_grad(const Error& error);
  // Why the part ends, for traces; the first counts.
  void note_end(Status why);
  void close();

 private:
  enum class State { kRunning, kDone, kFailed, kOver };

  void fail_later();
  void trace() const;

  DautogradShared& shared_;
  PassGraph& graph_;
  Holder& holder_;
  const std::shared_ptr<ContextRecord> context_;
  const PassInfo info_;
  const Nanos begun_;
  State state_ = State::kRunning;
  Status ended_with_ = Status::kOk;
  std::unique_ptr<PassObserver> own_observer_;
  PassObserver* observer_ = nullptr;  // as long as the part is not over
  TaskPlace again_;                   // for the next attempt to tell the initiator
};

}  // namespace distag
