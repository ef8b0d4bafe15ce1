#include "dautograd/local_pass.h"

#include <utility>

#include "dautograd/fast_way.h"
#include "dautograd/plan_way.h"
#include "dautograd/search_way.h"

namespace distag {

using autograd::GraphTask;
using autograd::GraphWalk;

LocalPass::LocalPass(DautogradShared& shared, std::shared_ptr<DistributedContext> context, PassInfo info,
                     std::shared_ptr<GraphTask> task)
    : shared_(shared),
      context_(std::move(context)),
      info_(info),
      graph_(std::make_shared<PassGraph>(
          shared, static_cast<PassGraph::Owner&>(*this),
          task ? std::move(task)
               : std::make_shared<GraphTask>(make_recv_check(*context_->record), !info.fast, info.creates_graph))),
      state_(shared, *graph_, *this, context_->record, info),
      grads_(shared, *graph_, state_, *context_, info),
      reach_(*context_),
      joint_(shared, *graph_, reach_, context_->id(), info),
      way_(make_way()) {
  state_.begin();
}

PassWay::Part LocalPass::rest() { return {shared_, *context_, info_, *graph_, state_, reach_, grads_, joint_}; }

std::unique_ptr<PassWay> LocalPass::make_way() {
  if (info_.planned) return std::make_unique<PlanWay>(rest());
  if (info_.fast) return std::make_unique<FastWay>(rest());
  return std::make_unique<SearchWay>(rest());
}

LocalPass::~LocalPass() {
  if (!state_.is_over()) graph_->close(false, {});
}

GraphWalk::CheckRecv LocalPass::make_recv_check(const ContextRecord& context) {
  return [id = context.id(), number = context.number()](const autograd::Node& node) {
    const PairInfo& info = static_cast<const RecvNode&>(node).info();
    if (info.context == id) return;
    fail(Status::kInvalidArgument,
         "the pass is of context {}, but a root depends on {}, recorded in context {}; detach the value, or use one "
         "context",
         number, info.describe(), info.context_number);
  };
}

// If a step finds no memory here, the pass fails.
void LocalPass::on_worked(const std::optional<Id>& walk, PassGraph::Outcome outcome) {
  assert_on_loop(shared_.environment.loop);
  const auto self = shared_from_this();
  try {
    take_outcome(walk, std::move(outcome));
  } catch (const std::bad_alloc&) {
    if (state_.is_over()) throw;
    fail_here(shared_.sign(current_error()));
  }
}

void LocalPass::take_outcome(const std::optional<Id>& walk, PassGraph::Outcome outcome) {
  if (outcome.failed) {
    const Error error = shared_.sign(std::move(outcome.error));
    walk ? way_->on_walk_failed(*walk, error) : state_.fail(error);
    return;
  }
  reach_.add(outcome.reached);
  const auto entries = joint_.add(std::move(outcome.reached_entries));
  is_finished_ = outcome.is_finished;
  for (Gradients::Entry& entry : outcome.gradients) staged_.push_back(std::move(entry));
  if (outcome.joint != nullptr) joint_.begin(outcome.joint);
  joint_.enter(std::move(outcome.entering));
  grads_.send(std::move(outcome.leaving), way_->is_planned(), shared_from_this());
  if (outcome.has_put_off) graph_->take_up();
  if (walk) way_->on_walked(*walk, outcome.reached, entries);
  report_if_done(nullptr);
}

void LocalPass::follow_plan(const std::vector<wire::PairBits>& sends, uint64_t check) {
  assert_on_loop(shared_.environment.loop);
  auto plan = std::make_unique<PlanWay>(rest());
  PlanWay& way = *plan;
  way_ = std::move(plan);  // the search that asks for this touches nothing of its own any more
  way.follow(sends, check);
}

// ---- joint steps ----

Heard LocalPass::on_go() {
  assert_on_loop(shared_.environment.loop);
  if (state_.is_failed() || joint_.is_searched()) return Heard::kStale;
  if (!way_->end_search()) {
    state_.fail(shared_.sign(Error(Status::kProtocol, "the pass was run before its discovery had ended here")));
    return Heard::kHandled;
  }
  joint_.note_searched();
  graph_->work(std::nullopt, [](GraphTask& task) { task.begin_joint(); });
  return Heard::kHandled;
}

Heard LocalPass::on_entered(const Peer& from, const wire::EntryName& entry) {
  assert_on_loop(shared_.environment.loop);
  if (state_.is_failed() || way_->is_searching()) return Heard::kStale;
  joint_.enter_elsewhere(from, entry);
  return Heard::kHandled;
}

// ---- gradients ----

void LocalPass::run_roots(std::vector<autograd::Edge> roots, Tensors seeds) {
  assert_on_loop(shared_.environment.loop);
  way_->end_search();
  joint_.note_searched();
  graph_->work(std::nullopt, [roots = std::move(roots), seeds = std::move(seeds),
                              has_entries = !joint_.is_empty()](GraphTask& task) mutable {
    if (has_entries) task.begin_joint();
    for (size_t i = 0; i < roots.size(); ++i) task.deliver(roots[i], std::move(seeds[i]));
  });
}

void LocalPass::on_grad(const Peer& from, wire::Grad& grad) {
  assert_on_loop(shared_.environment.loop);
  if (!state_.takes(from, grad.creates_graph)) return;
  if (grad.planned != way_->is_planned()) {
    state_.fail_by_grad(shared_.sign(Error(Status::kProtocol, "gradients came of another kind of pass")));
    return;
  }
  const std::shared_ptr<SendNode> send = way_->find_send(from, grad.pair);
  if (send != nullptr) way_->take(grads_.take(send, grad));
}

std::vector<std::string> LocalPass::waiting_calls() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::string> result;
  for (const auto& node : graph_->waiting_sources()) result.push_back(static_cast<const SendNode&>(*node).info().call);
  return result;
}

std::vector<std::string> LocalPass::waits_for() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::string> result = way_->waits_for();
  if (!state_.is_running() || way_->is_searching()) return result;
  if (joint_.waits_for_others()) result.emplace_back("the word that all have searched");
  if (joint_.are_running()) result.emplace_back("the steps that all members of a mesh make together");
  if (!is_idle()) {
    result.emplace_back("tasks of this worker");
  } else {
    for (const auto& node : graph_->waiting_sources()) result.push_back("the gradient of " + node->name());
  }
  return result;
}

// ---- the end ----

void LocalPass::report_if_done(wire::Grad* last) {
  if (!state_.is_running() || !is_finished_ || !is_idle()) return;
  if (!way_->may_be_done() || joint_.waits_to_begin()) return;
  state_.report_done(last);
}

void LocalPass::on_gone(Incarnation peer, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  if (reach_.needs(peer)) state_.fail(shared_.sign(error));
}

void LocalPass::end(const Error& why) {
  assert_on_loop(shared_.environment.loop);
  const auto self = shared_from_this();
  state_.fail(shared_.sign(why));
  if (!state_.is_over()) drop(why.status());
}

void LocalPass::fail_here(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  const auto self = shared_from_this();
  if (!state_.is_done()) return state_.fail(error);
  // The initiator may commit a pass that is not complete here.
  context_->record->lose_verdict(
      info_.pass, Error(error.status(), fmt::format("gradients: the end of pass {} failed here: {}", info_.pass.counter,
                                                    error.message())));
  drop(error.status());
}

void LocalPass::commit_if_done() {
  assert_on_loop(shared_.environment.loop);
  if (state_.is_done()) return commit();
  context_->record->lose_verdict(
      info_.pass, Error(Status::kProtocol, fmt::format("gradients: {} committed pass {}, which has not run here",
                                                       shared_.describe(info_.pass.maker), info_.pass.counter)));
  drop(Status::kProtocol);
}

void LocalPass::commit() {
  assert_on_loop(shared_.environment.loop);
  if (grads_.pairs() != nullptr) grads_.pairs()->prepare_commit();
  context_->record->commit(info_.pass, std::move(staged_));
  if (grads_.pairs() != nullptr) {
    grads_.pairs()->commit();
    context_->note_counts();
  }
  if (!info_.retain_graph) {
    reach_.forget_pairs(shared_.lineage);
    context_->note_counts();
  }
  close(!info_.retain_graph);
}

void LocalPass::drop(Status why) {
  assert_on_loop(shared_.environment.loop);
  state_.note_end(why);
  context_->record->forget(info_.pass);
  ++shared_.counters.passes_failed;
  close(false);
}

void LocalPass::lose_initiator(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  const auto self = shared_from_this();
  way_->on_initiator_lost(error);
  drop(error.status());
}

void LocalPass::close(bool frees_graph) {
  const auto self = shared_from_this();
  state_.close();
  joint_.end();
  context_->passes.erase(info_.pass);
  GradientPairs::Sends uncounted;
  if (grads_.pairs() != nullptr) uncounted = grads_.pairs()->drop();
  graph_->close(frees_graph, {reach_.take_sends(), std::move(staged_), std::move(uncounted)});
}

}  // namespace distag
