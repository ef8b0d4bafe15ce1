#include "dautograd/pass_graph.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "base/each_step.h"

namespace distag {

using autograd::GraphTask;
using autograd::GraphWalk;

namespace {

// Up to kFewNodes a graph is walked, run (if its nodes are cheap) and freed on the loop, in a fraction of a
// millisecond; while no other pass is open here, so is a graph that passes over no more than kFewBytes. Another thread
// would often run it on another core, whose cache has nothing of it.
constexpr size_t kFewNodes = 32;
constexpr size_t kFewBytes = size_t{8} << 20;

}  // namespace

PassGraph::PassGraph(DautogradShared& shared, Owner& owner, std::shared_ptr<GraphTask> task)
    : shared_(shared.shared_from_this()),
      owner_(&owner),
      task_(std::move(task)),
      strand_(std::make_shared<Strand>(shared.environment.compute)) {}

// Work that is small is not worth the way to the pool and back.
void PassGraph::work(const std::optional<Id>& walk, Work action) {
  assert_on_loop(shared_->environment.loop);
  if (busy_ == 0) {
    Outcome outcome;
    ++busy_;
    const bool is_complete = advance(action, true, outcome);
    if (is_complete) {
      on_worked(walk, std::move(outcome));
      return;
    }
    --busy_;
    action = nullptr;
  }
  post_work(walk, std::move(action));
}

void PassGraph::take_up() {
  assert_on_loop(shared_->environment.loop);
  post_work(std::nullopt, [](GraphTask& task) { task.take_up(); });
}

// The room for the outcome is made before the work, so that its end is reported without memory.
void PassGraph::post_work(const std::optional<Id>& walk, Work action) {
  auto room = std::make_unique<Outcome>();
  Task task = [self = shared_from_this(), walk, action = std::move(action), outcome = std::move(room)]() mutable {
    self->advance(action, false, *outcome);
    action.reset();
    const std::shared_ptr<DautogradShared> shared = self->shared_;
    shared->gate.run([self = std::move(self), walk, outcome = std::move(outcome)]() mutable {
      self->on_worked(walk, std::move(*outcome));
    });
  };
  strand_->post_or_drop(std::move(task));
  ++busy_;
}

bool PassGraph::advance(Work& action, bool is_on_loop, Outcome& outcome) {
  try {
    const auto check_stop = [this] {
      if (stop_) fail(Status::kCancelled, "the pass has ended");
    };
    check_stop();
    if (action) action(*task_);
    if (!task_->walk().run(is_on_loop ? kFewNodes : GraphWalk::kNoLimit)) return false;
    GraphTask::RunOptions options;
    options.runs_host_code = &shared_->environment.functions == &shared_->environment.compute;
    if (is_on_loop) {
      options.max_nodes = kFewNodes;
      options.max_bytes = shared_->open_passes.size() <= 1 ? kFewBytes : 0;
    }
    options.check_stop = check_stop;
    if (!task_->run(options)) return false;
    outcome.reached = task_->walk().take_reached();
    outcome.reached_entries = task_->walk().take_reached_entries();
    outcome.entering = task_->take_entering();
    outcome.joint = task_->take_joint();
    outcome.leaving = task_->take_leaving();
    outcome.host_steps = task_->take_host_steps();
    outcome.is_finished = task_->is_finished();
    outcome.has_put_off = task_->has_put_off();
    if (outcome.is_finished) outcome.gradients = task_->take_gradients();
  } catch (...) {
    outcome.failed = true;
    outcome.error = current_error();
  }
  return true;
}

void PassGraph::on_worked(const std::optional<Id>& walk, Outcome outcome) {
  assert_on_loop(shared_->environment.loop);
  const auto self = shared_from_this();
  --busy_;
  if (owner_ == nullptr) {
    if (busy_ == 0) discard();
    return;
  }
  if (stop_) return;
  for (GraphTask::HostStep& step : outcome.host_steps) post_host_step(std::move(step));
  owner_->on_worked(walk, std::move(outcome));
}

// ---- host code ----

void PassGraph::post_host_step(GraphTask::HostStep step) {
  shared_->environment.functions.post_or_drop([self = shared_from_this(), step = std::move(step)]() mutable {
    std::optional<Error> error;
    Tensors gradients;
    try {
      if (self->stop_) fail(Status::kCancelled, "the pass has ended");
      gradients = step.run();
    } catch (...) {
      error = current_error();
    }
    const std::shared_ptr<DautogradShared> shared = self->shared_;
    shared->gate.run([self = std::move(self), step = std::move(step), error = std::move(error),
                      gradients = std::move(gradients)]() mutable {
      self->on_host_step(std::move(step), std::move(error), std::move(gradients));
    });
  });
  ++host_steps_;
}

void PassGraph::on_host_step(GraphTask::HostStep step, std::optional<Error> error, Tensors gradients) {
  assert_on_loop(shared_->environment.loop);
  --host_steps_;
  if (stop_) return;
  if (error) {
    Outcome outcome;
    outcome.failed = true;
    outcome.error = *std::move(error);
    owner_->on_worked(std::nullopt, std::move(outcome));
    return;
  }
  work(std::nullopt, [step = std::move(step), gradients = std::move(gradients)](GraphTask& task) mutable {
    task.finish_host_step(step, std::move(gradients));
  });
}

// ---- joint steps ----

// The room for its end is made before it begins.
void PassGraph::run_joint(std::shared_ptr<autograd::JointRun> run) {
  assert_on_loop(shared_->environment.loop);
  auto room = std::make_shared<JointEnd>();
  shared_->environment.compute.post_or_drop(
      [self = shared_from_this(), run = std::move(run), end = std::move(room)]() mutable {
        const std::shared_ptr<DautogradShared> shared = self->shared_;
        try {
          end->gradients = run->run([&self](std::vector<autograd::Edge> edges, Tensors gradients) {
            self->post_gradients(std::move(edges), std::move(gradients));
          });
        } catch (...) {
          end->error = current_error();
        }
        run.reset();
        TaskPlace& place = end->place;
        shared->gate.run(place, [self = std::move(self), end = std::move(end)] { self->on_joint_over(*end); });
      });
  ++joint_runs_;
}

// For a result of joint steps, whose end nothing else reports. Large gradients are not added up on the loop.
void PassGraph::work_or_fail(Work action, bool is_large) {
  try {
    is_large ? post_work(std::nullopt, std::move(action)) : work(std::nullopt, std::move(action));
  } catch (const std::bad_alloc&) {
    if (owner_ == nullptr) throw;
    Outcome outcome;
    outcome.failed = true;
    outcome.error = current_error();
    owner_->on_worked(std::nullopt, std::move(outcome));
  }
}

void PassGraph::post_gradients(std::vector<autograd::Edge> edges, Tensors gradients) {
  shared_->gate.run([self = shared_from_this(), edges = std::move(edges), gradients = std::move(gradients)]() mutable {
    if (self->stop_) return;
    const bool is_large = std::any_of(gradients.begin(), gradients.end(), [](const Tensor& gradient) {
      return gradient && gradient.byte_size() > autograd::kSmallTensor;
    });
    Work deliver = [edges = std::move(edges), gradients = std::move(gradients)](GraphTask& task) mutable {
      for (size_t i = 0; i < edges.size(); ++i) task.deliver(edges[i], std::move(gradients[i]));
    };
    self->work_or_fail(std::move(deliver), is_large);
  });
}

void PassGraph::on_joint_over(JointEnd& end) {
  assert_on_loop(shared_->environment.loop);
  --joint_runs_;
  if (stop_) return;
  if (end.error) {
    Outcome outcome;
    outcome.failed = true;
    outcome.error = *std::move(end.error);
    owner_->on_worked(std::nullopt, std::move(outcome));
    return;
  }
  work_or_fail(
      [gradients = std::move(end.gradients)](GraphTask& task) mutable { task.add_gradients(std::move(gradients)); },
      false);
}

// ---- the end ----

void PassGraph::close(bool frees_saved, Leftovers leftovers) noexcept {
  assert_on_loop(shared_->environment.loop);
  stop_ = true;
  owner_ = nullptr;
  frees_saved_ = frees_saved;
  leftovers_ = std::move(leftovers);
  if (busy_ == 0) discard();
}

// Frees at once if the graph is small, or if there is no memory for a task.
void PassGraph::discard() noexcept {
  if (task_ == nullptr) return;
  const bool is_small = task_->walk().visits().size() <= kFewNodes && !is_partial_;
  EachStep each;
  if (!is_small) {
    each([this] { shared_->environment.compute.post_or_drop([self = shared_from_this()] { self->free_all(); }); });
  }
  if (is_small || each.has_failed()) each([this] { free_all(); });
}

void PassGraph::free_all() {
  const std::shared_ptr<GraphTask> task = std::move(task_);
  const Leftovers leftovers = std::move(leftovers_);
  if (frees_saved_) task->walk().free_saved();
}

}  // namespace distag
