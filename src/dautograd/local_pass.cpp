#include "dautograd/local_pass.h"

#include <algorithm>
#include <utility>

#include "base/violation.h"
#include "dautograd/pass_plan.h"

namespace distag {

using autograd::GraphTask;

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
      joint_(shared, *graph_, reach_, context_->id(), info) {
  if (info_.planned) {
    expectation_ = std::make_unique<Expectation>();
  } else if (!info_.fast) {
    discovery_ = std::make_unique<Discovery>(shared_, static_cast<Discovery::Owner&>(*this), context_->id(), info_.pass,
                                             Discovery::PassKind{info_.retain_graph, info_.creates_graph});
  }
  state_.begin();
}

LocalPass::~LocalPass() {
  if (!state_.is_over()) graph_->close(false, {});
}

GraphTask::CheckRecv LocalPass::make_recv_check(const ContextRecord& context) {
  return [id = context.id(), number = context.number()](const autograd::Node& node) {
    const PairInfo& info = static_cast<const RecvNode&>(node).info();
    if (info.context == id) return;
    fail(Status::kInvalidArgument,
         "the pass is of context {}, but a root depends on {}, recorded in context {}; detach the value, or use one "
         "context",
         number, info.describe(), info.context_number);
  };
}

// Where something of it finds no memory here, the pass fails.
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
    if (walk && expectation_ != nullptr) {
      misplan(error.message());
    } else if (walk && discovery_ != nullptr) {
      discovery_->fail(*walk, error);
    } else {
      state_.fail(error);
    }
    return;
  }
  reach_.add(outcome.reached);
  const auto entries = joint_.add(std::move(outcome.reached_entries));
  is_finished_ = outcome.is_finished;
  for (Gradients::Entry& entry : outcome.gradients) staged_.push_back(std::move(entry));
  if (outcome.joint != nullptr) joint_.begin(outcome.joint);
  joint_.enter(std::move(outcome.entering));
  grads_.send(std::move(outcome.leaving), expectation_ != nullptr, shared_from_this());
  if (outcome.has_put_off) graph_->take_up();
  if (walk && expectation_ != nullptr) {
    check_plan(!entries.empty());
  } else if (walk && discovery_ != nullptr) {
    *walk ? discovery_->ask(*walk, outcome.reached, entries) : search_or_plan(outcome.reached, entries);
  }
  report_if_done(nullptr);
}

// ---- walks ----

void LocalPass::expand_roots(std::vector<autograd::Edge> roots) {
  assert_on_loop(shared_.environment.loop);
  discovery_->open_root();
  graph_->work(Id(), [roots = std::move(roots)](GraphTask& task) { task.expand(roots); });
}

void LocalPass::go_on_from(std::vector<GraphTask::Reached> reached,
                           std::vector<std::shared_ptr<autograd::Node>> entries) {
  assert_on_loop(shared_.environment.loop);
  discovery_->open_root();
  reach_.add(reached);
  search_or_plan(reached, joint_.add(std::move(entries)));
}

void LocalPass::on_planned(const std::set<Incarnation>& participants, bool has_entries) {
  assert_on_loop(shared_.environment.loop);
  state_.observer().on_planned(participants, has_entries);
}

// False when a search still goes on: then no part may run yet.
bool LocalPass::end_discovery() {
  if (is_searching()) return false;
  discovery_.reset();
  return true;
}

void LocalPass::on_discover(const Peer& from, const wire::Discover& discover) {
  assert_on_loop(shared_.environment.loop);
  if (!state_.takes(from, discover.creates_graph)) return;
  if (discovery_ == nullptr) fail(Status::kInvalidState, "the pass runs already");
  reach_.need(from.incarnation);
  discovery_->open(discover);
  std::vector<std::pair<std::shared_ptr<SendNode>, autograd::Bits>> sources;
  for (const wire::PairBits& item : discover.pairs) {
    const Id pair{item.pair_maker, item.pair_counter};
    const auto found = find_send(*context_, pair);
    if (found == nullptr) {
      discovery_->fail(discover.request,
                       shared_.sign(Error(Status::kGraphFreed,
                                          "the graph of a call was freed by an earlier backward pass; use retain_graph "
                                          "there to run another")));
      return;
    }
    const SendNode& send = *found;
    if (send.info().peer != from.incarnation || item.bits.size() != send.slots()) {
      violation("a DISCOVER for {}, which has {} values and went elsewhere", send.name(), send.slots());
    }
    if (std::find(item.bits.begin(), item.bits.end(), false) != item.bits.end()) graph_->note_partial();
    reach_.add(found);
    sources.emplace_back(found, item.bits);
  }
  std::vector<std::shared_ptr<autograd::Node>> entries;
  for (const wire::EntryName& name : discover.entries) {
    auto entry = joint_.find(from, name);
    if (entry == nullptr) {
      discovery_->fail(discover.request,
                       shared_.sign(Error(Status::kInvalidState,
                                          fmt::format("nothing is left of call {}, to_local: its function must return "
                                                      "its part, or keep it",
                                                      name.call))));
      return;
    }
    entries.push_back(std::move(entry));
  }
  entries = joint_.add(std::move(entries));
  graph_->work(discover.request, [sources = std::move(sources), entries = std::move(entries)](GraphTask& task) {
    for (const auto& [send, bits] : sources) task.add_source(send, bits);
    for (const auto& entry : entries) task.add_entry(entry);
  });
}

Heard LocalPass::on_discovered(const Peer& from, const wire::Discovered& discovered) {
  assert_on_loop(shared_.environment.loop);
  if (state_.is_failed() || discovery_ == nullptr) return Heard::kStale;
  return discovery_->on_discovered(from, discovered);
}

void LocalPass::take_all_sends(std::vector<autograd::Edge> roots) {
  assert_on_loop(shared_.environment.loop);
  reach_.add_all(all_sends(*context_));
  std::vector<std::shared_ptr<SendNode>> sends;
  sends.reserve(reach_.sends().size());
  for (const auto& [pair, send] : reach_.sends()) {
    sends.push_back(send);
    if (const Error* gone = shared_.session->gone(send->info().peer)) {
      Error error = *gone;
      state_.fail(shared_.sign(std::move(error.add_context(send->name()))));
      return;
    }
  }
  graph_->work(std::nullopt, [roots = std::move(roots), sends = std::move(sends)](GraphTask& task) {
    task.expand(roots);
    for (const auto& send : sends) task.add_source(send, autograd::Bits(send->slots(), true));
  });
}

// ---- joint steps ----

Heard LocalPass::on_go() {
  assert_on_loop(shared_.environment.loop);
  if (state_.is_failed() || joint_.is_searched()) return Heard::kStale;
  if (!end_discovery()) {
    state_.fail(shared_.sign(Error(Status::kProtocol, "the pass was run before its discovery had ended here")));
    return Heard::kHandled;
  }
  joint_.note_searched();
  graph_->work(std::nullopt, [](GraphTask& task) { task.begin_joint(); });
  return Heard::kHandled;
}

Heard LocalPass::on_entered(const Peer& from, const wire::EntryName& entry) {
  assert_on_loop(shared_.environment.loop);
  if (state_.is_failed() || is_searching()) return Heard::kStale;
  joint_.enter_elsewhere(from, entry);
  return Heard::kHandled;
}

// ---- gradients ----

void LocalPass::run_roots(std::vector<autograd::Edge> roots, Tensors seeds) {
  assert_on_loop(shared_.environment.loop);
  end_discovery();
  joint_.note_searched();
  graph_->work(std::nullopt, [roots = std::move(roots), seeds = std::move(seeds),
                              has_entries = !joint_.is_empty()](GraphTask& task) mutable {
    if (has_entries) task.begin_joint();
    for (size_t i = 0; i < roots.size(); ++i) task.deliver(roots[i], std::move(seeds[i]));
  });
}

// The part of the graph that the pass has reached depends on its initiator too: a GRAD that does not fit to it need not
// be its sender's fault.
std::shared_ptr<SendNode> LocalPass::find_live_send(const Peer& from, const Id& pair) {
  if (expectation_ != nullptr) return find_planned_send(from, pair);
  if (auto found = reach_.find(pair)) {
    if (found->info().peer == from.incarnation) return found;
    violation("gradients for {}, which went elsewhere", found->name());
  }
  const auto recorded = find_send(*context_, pair);
  if (recorded == nullptr) {
    state_.fail_by_grad(
        shared_.sign(Error(Status::kGraphFreed,
                           "the graph of a call was freed by an earlier backward pass; use retain_graph there to "
                           "run another")));
  } else if (!info_.fast) {
    state_.fail_by_grad(shared_.sign(Error(
        Status::kProtocol, fmt::format("gradients came for {}, which the pass has not reached", recorded->name()))));
  } else {
    state_.fail_by_grad(shared_.sign(Error(
        Status::kInvalidState,
        fmt::format("{} were recorded while a FAST pass ran; wait for calls before the pass", recorded->name()))));
  }
  return nullptr;
}

void LocalPass::on_grad(const Peer& from, wire::Grad& grad) {
  assert_on_loop(shared_.environment.loop);
  if (!state_.takes(from, grad.creates_graph)) return;
  if (grad.planned != (expectation_ != nullptr)) {
    state_.fail_by_grad(shared_.sign(Error(Status::kProtocol, "gradients came of another kind of pass")));
    return;
  }
  const std::shared_ptr<SendNode> send = find_live_send(from, grad.pair);
  if (send == nullptr) return;
  PassGrads::Gradient gradient = grads_.take(send, grad);
  if (expectation_ != nullptr && !expectation_->is_checked()) {
    if (!expectation_->keep(std::move(gradient))) {
      state_.fail_by_grad(shared_.sign(Error(Status::kProtocol, "gradients came twice for " + send->name())));
    }
    return;
  }
  if (!end_discovery()) {
    state_.fail(shared_.sign(Error(Status::kProtocol, "the pass was run before its discovery had ended here")));
    return;
  }
  deliver(std::move(gradient));
}

void LocalPass::deliver(PassGrads::Gradient gradient) {
  if (expectation_ != nullptr && !expectation_->is_of(gradient.send->info().pair, gradient.live)) {
    return misplan("gradients came for other values than it says");
  }
  grads_.deliver(std::move(gradient));
}

std::vector<std::string> LocalPass::waiting_calls() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::string> result;
  for (const auto& node : graph_->waiting_sources()) result.push_back(static_cast<const SendNode&>(*node).info().call);
  return result;
}

std::vector<std::string> LocalPass::waits_for() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::string> result;
  if (discovery_ != nullptr) {
    for (const Incarnation asked : discovery_->asked()) {
      result.push_back(shared_.describe(asked) + ", to search on from what came from it");
    }
  }
  if (!state_.is_running() || is_searching()) return result;
  if (expectation_ != nullptr && !expectation_->is_told()) result.emplace_back("the plan of what it has to do");
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
  if (expectation_ != nullptr && !expectation_->is_checked()) return;
  if (joint_.waits_to_begin()) return;
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
  // Its initiator may commit what is not whole here.
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
  if (discovery_ != nullptr) discovery_->fail_all(shared_.sign(error));
  drop(error.status());
}

void LocalPass::close(bool frees_graph) {
  const auto self = shared_from_this();
  state_.close();
  discovery_.reset();
  joint_.end();
  context_->passes.erase(info_.pass);
  GradientPairs::Sends uncounted;
  if (grads_.pairs() != nullptr) uncounted = grads_.pairs()->drop();
  graph_->close(frees_graph, {reach_.take_sends(), std::move(staged_), std::move(uncounted)});
}

}  // namespace distag
