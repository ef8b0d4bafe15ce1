#include "dautograd/context_handle.h"

#include <utility>

#include "autograd/roots.h"
#include "base/executor.h"
#include "base/future_deadline.h"
#include "base/lead.h"
#include "base/wait_or_cancel.h"
#include "dautograd/context_table.h"
#include "dautograd/joint_id.h"
#include "dautograd/passes.h"
#include "group/shared.h"

namespace distag {

using autograd::GraphTask;

namespace {

void post_begin(const std::shared_ptr<DautogradShared>& shared, const Id& context, PassInitiator::Plan plan) {
  shared->gate.run([shared, context, owed = Owed<Value>(plan.future),
                    plan = std::make_unique<PassInitiator::Plan>(std::move(plan))]() mutable {
    if (shared->passes == nullptr) return;
    owed.take();
    shared->passes->begin(context, std::move(*plan));
  });
}

// The step outlives a wait that fails.
Tensors run_host_step(Executor& functions, const std::shared_ptr<GraphTask::HostStep>& step) {
  auto future = Future<Tensors>::make();
  functions.post_or_drop([owed = Owed<Tensors>(future), step]() mutable {
    const auto result = owed.take();
    try {
      result->complete(step->run());
    } catch (...) {
      result->fail(current_error());
    }
  });
  wait(*future, kForever);
  return future->value();
}

// The passes of a joint context are calls of all members of its mesh, by handles of another kind.
void check_not_joint(const ContextRecord& record) {
  if (!is_joint(record.id())) return;
  fail(
      Status::kInvalidState,
      "backward: {:#x} is a joint context: its passes are collective calls of the members of its mesh, by the contexts "
      "that they made (context_create_joint)",
      record.number());
}

PassInitiator::Plan make_plan(DautogradShared& shared, autograd::Roots roots, const BackwardOptions& options) {
  PassInitiator::Plan plan;
  plan.roots = std::move(roots);
  plan.info.pass = shared.next_pass();
  plan.info.retain_graph = options.retain_graph || options.create_graph;
  plan.info.fast = options.mode == BackwardMode::kFast;
  plan.info.creates_graph = options.create_graph;
  plan.timeout = options.timeout;
  plan.deadline = deadline_after(shared.environment.loop.now(), options.timeout);
  plan.future = Future<Value>::make();
  plan.future->set_operation("backward pass");
  return plan;
}

// Runs a pass that does not leave this worker, on the calling thread.
void run_here(DautogradShared& shared, ContextRecord& record, PassInitiator::Plan& plan) {
  GraphTask& task = *plan.task;
  Executor& functions = shared.environment.functions;
  GraphTask::RunOptions options;
  options.runs_host_code = &functions == &shared.environment.compute;
  if (plan.deadline != kNever) {
    options.check_stop = [&plan, &clock = shared.environment.loop.clock()] {
      if (clock.now() < plan.deadline) return;
      fail(Status::kDeadline, "not done within {:g} s",
           static_cast<double>(plan.timeout) / static_cast<double>(kSecond));
    };
  }
  for (size_t i = 0; i < plan.roots.edges.size(); ++i) {
    task.deliver(plan.roots.edges[i], std::move(plan.roots.seeds[i]));
  }
  while (!task.is_finished()) {
    task.run(options);
    for (GraphTask::HostStep& step : task.take_host_steps()) {
      const auto kept = std::make_shared<GraphTask::HostStep>(std::move(step));
      Tensors gradients = run_host_step(functions, kept);
      task.finish_host_step(*kept, std::move(gradients));
    }
  }
  record.check();
  record.commit(plan.info.pass, task.take_gradients());
  if (!plan.info.retain_graph) task.walk().free_saved();
}

}  // namespace

ContextHandle::~ContextHandle() {
  if (!keeps_) return;
  shared_->gate.run_soon([shared = shared_, id = record_->id()] {
    if (shared->contexts == nullptr) return;
    shared->contexts->on_handle_gone(id);
  });
}

// Walks on this thread, and runs there if the graph does not leave this worker.
void ContextHandle::backward(const Tensors& roots, const BackwardOptions& options) {
  check_not_joint(*record_);
  record_->check();
  PassInitiator::Plan plan =
      make_plan(*shared_, autograd::check_roots(roots, options.seeds, options.create_graph), options);
  check_can_wait();
  if (!plan.info.fast) {
    plan.task = std::make_shared<GraphTask>(LocalPass::make_recv_check(*record_), true, options.create_graph);
    try {
      plan.task->walk().expand(plan.roots.edges);
      plan.task->walk().run();
      plan.reached = plan.task->walk().take_reached();
      plan.entries = plan.task->walk().take_reached_entries();
      if (plan.reached.empty() && plan.entries.empty()) {
        run_local(plan);
        return;
      }
    } catch (...) {
      Error error = current_error();
      throw shared_->sign(std::move(error)).set_origin_rank(-1).add_context("backward pass");
    }
  }
  const auto future = plan.future;
  const Lead lead(shared_->environment.loop);
  post_begin(shared_, record_->id(), std::move(plan));
  wait_or_cancel(*future);
  future->value();
}

void ContextHandle::run_pass(autograd::Roots roots, const BackwardOptions& options) {
  record_->check();
  check_can_wait();
  PassInitiator::Plan plan = make_plan(*shared_, std::move(roots), options);
  const auto future = plan.future;
  const Lead lead(shared_->environment.loop);
  post_begin(shared_, record_->id(), std::move(plan));
  wait_or_cancel(*future);
  future->value();
}

std::shared_ptr<Future<Value>> ContextHandle::settle_async() {
  auto settled = record_->settle();
  if (settled->is_done()) return settled;
  const Nanos lease = shared_->environment.lease;
  // By the gate: if the loop is gone, no deadline is set, but then the end of the context has completed `settled`.
  shared_->gate.run([shared = shared_, record = record_, settled, lease] {
    Loop& loop = shared->environment.loop;
    set_deadline(loop, settled, deadline_after(loop.now(), lease), [record, lease] { return record->late(lease); });
  });
  return settled;
}

void ContextHandle::run_local(PassInitiator::Plan& plan) {
  auto& counters = shared_->counters;
  Trace& trace = shared_->group.shared()->trace;
  TraceScope scope(trace, TraceCategory::kPass, "backward");
  TraceEvent event;
  event.category = TraceCategory::kPass;
  event.begin = shared_->environment.loop.now();
  record_->begin_pass();
  ++counters.passes_run;
  ++counters.passes_open;
  const auto end = [&](Status status) {
    --counters.passes_open;
    record_->end_pass();
    event.status = status;
    event.end = shared_->environment.loop.now();
    trace.keep(event, "pass");
  };
  try {
    run_here(*shared_, *record_, plan);
  } catch (...) {
    ++counters.passes_failed;
    end(current_error().status());
    throw;
  }
  end(Status::kOk);
}

std::shared_ptr<Future<Value>> ContextHandle::backward_async(const Tensors& roots, const BackwardOptions& options) {
  check_not_joint(*record_);
  record_->check();
  PassInitiator::Plan plan =
      make_plan(*shared_, autograd::check_roots(roots, options.seeds, options.create_graph), options);
  auto future = plan.future;
  const auto leader = std::make_shared<std::weak_ptr<PassInitiator>>();
  plan.leader = leader;
  future->set_canceller([shared = shared_, leader] {
    shared->gate.run([leader] {
      if (const auto initiator = leader->lock()) initiator->cancel();
    });
  });
  post_begin(shared_, record_->id(), std::move(plan));
  return future;
}

}  // namespace distag
