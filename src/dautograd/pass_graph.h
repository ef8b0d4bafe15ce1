#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/graph_task.h"
#include "autograd/joint.h"
#include "base/strand.h"
#include "base/task.h"
#include "dautograd/dautograd_shared.h"
#include "dautograd/nodes.h"

namespace distag {

// The graph of one pass on one worker, and the work on it: one piece at a time on a strand, or a little right on the
// loop. Everything on the loop but the work itself. Held by its part, and by the work beyond the part's end.
class PassGraph : public std::enable_shared_from_this<PassGraph> {
 public:
  using Work = UniqueFunction<void(autograd::GraphTask&)>;

  // The results that a piece of work leaves for the loop.
  struct Outcome {
    bool failed = false;
    Error error;
    bool is_finished = false;
    bool has_put_off = false;  // gradients of leaves: the owner calls take_up() once the others have left
    std::vector<autograd::GraphWalk::Reached> reached;
    std::vector<std::shared_ptr<autograd::Node>> reached_entries;
    std::vector<autograd::GraphTask::Entering> entering;
    std::shared_ptr<const autograd::JointSaved> joint;  // joint steps may begin
    std::vector<autograd::GraphTask::Leaving> leaving;
    std::vector<autograd::GraphTask::HostStep> host_steps;  // begun by the time that the owner sees this
    std::vector<Gradients::Entry> gradients;
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    // `walk` is the request that the work walked for; none for other work. Not after stop() or close().
    virtual void on_worked(const std::optional<Id>& walk, Outcome outcome) = 0;
  };

  // `task` may have walked already.
  PassGraph(DautogradShared& shared, Owner& owner, std::shared_ptr<autograd::GraphTask> task);

  // Begins with `action`, then walks and runs what it can.
  void work(const std::optional<Id>& walk, Work action);
  void take_up();
  // Not all values of some send are live: the others may hold a large graph.
  void note_partial() { is_partial_ = true; }

  // Runs the joint steps of a mesh, on a thread that may wait for others. Their gradients come as those of other work.
  void run_joint(std::shared_ptr<autograd::JointRun> run);

  bool is_idle() const { return busy_ == 0 && host_steps_ == 0 && joint_runs_ == 0; }
  // Sources whose gradients have not come; only when idle, and before close().
  std::vector<std::shared_ptr<autograd::Node>> waiting_sources() const { return task_->waiting_sources(); }

  // Gives up between two nodes; nothing more is reported.
  void stop() { stop_ = true; }
  // The rest of a pass, which may take long to free.
  struct Leftovers {
    std::unordered_map<Id, std::shared_ptr<SendNode>> sends;
    std::vector<Gradients::Entry> staged;
    std::unordered_map<Id, std::shared_ptr<SendNode>> gradient_sends;
  };
  // Stops for good: frees what the pass held, and with `frees_saved` the graph itself. `leftovers` go with it. Needs no
  // memory.
  void close(bool frees_saved, Leftovers leftovers) noexcept;

 private:
  struct JointEnd {
    TaskPlace place;
    std::optional<Error> error;
    std::vector<Gradients::Entry> gradients;
  };

  void post_work(const std::optional<Id>& walk, Work action);
  // False when the limits left some of it.
  bool advance(Work& action, bool is_on_loop, Outcome& outcome);
  void on_worked(const std::optional<Id>& walk, Outcome outcome);
  void post_host_step(autograd::GraphTask::HostStep step);
  void on_host_step(autograd::GraphTask::HostStep step, std::optional<Error> error, Tensors gradients);
  void work_or_fail(Work action, bool is_large);
  void post_gradients(std::vector<autograd::Edge> edges, Tensors gradients);
  void on_joint_over(JointEnd& end);
  void discard() noexcept;
  void free_all();

  const std::shared_ptr<DautogradShared> shared_;  // the strand may outlive the Dautograd
  Owner* owner_;                                   // nullptr once closed
  std::shared_ptr<autograd::GraphTask> task_;      // touched by the strand, and by the loop while busy_ is 0
  const std::shared_ptr<Strand> strand_;
  std::atomic<bool> stop_{false};
  size_t busy_ = 0;        // pieces of work on the strand
  size_t host_steps_ = 0;  // on the functions executor
  size_t joint_runs_ = 0;
  bool is_partial_ = false;
  bool frees_saved_ = false;
  Leftovers leftovers_;
};

}  // namespace distag
