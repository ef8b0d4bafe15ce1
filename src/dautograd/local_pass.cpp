#include "dautograd/local_pass.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/violation.h"
#include "dautograd/pass_plan.h"
#include "group/shared.h"

namespace distag {

using autograd::GraphTask;

namespace {

constexpr Nanos kFailAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

LocalPass::LocalPass(DautogradShared& shared, std::shared_ptr<DistributedContext> context, PassInfo info,
                     std::shared_ptr<GraphTask> task)
    : shared_(shared),
      context_(std::move(context)),
      info_(info),
      graph_(std::make_shared<PassGraph>(
          shared, static_cast<PassGraph::Owner&>(*this),
          task ? std::move(task)
               : std::make_shared<GraphTask>(make_recv_check(*context_->record), !info.fast, info.creates_graph))),
      gradient_pairs_(info.creates_graph ? std::make_unique<GradientPairs>(shared, *context_) : nullptr),
      reach_(*context_),
      joint_(shared, *graph_, reach_, context_->id(), info),
      begun_(shared.environment.loop.now()) {
  if (info_.planned) {
    expectation_ = std::make_unique<Expectation>();
  } else if (!info_.fast) {
    discovery_ = std::make_unique<Discovery>(shared_, static_cast<Discovery::Owner&>(*this), context_->id(), info_.pass,
                                             Discovery::PassKind{info_.retain_graph, info_.creates_graph});
  }
  shared_.open_passes.begin_part(info_.pass, shared_.self.incarnation);
  try {
    context_->record->begin_pass();
  } catch (...) {
    shared_.open_passes.end_part(info_.pass);
    throw;
  }
  ++shared_.counters.passes_run;
  ++shared_.counters.passes_open;
}

LocalPass::~LocalPass() {
  if (!is_closed_) graph_->close(false, {});
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

void LocalPass::set_observer(std::unique_ptr<PassObserver> lead) {
  assert_on_loop(shared_.environment.loop);
  own_observer_ = std::move(lead);
  observer_ = own_observer_.get();
}

// Where something of it finds no memory here, the pass fails.
void LocalPass::on_worked(const std::optional<Id>& walk, PassGraph::Outcome outcome) {
  assert_on_loop(shared_.environment.loop);
  const auto self = shared_from_this();
  try {
    take_outcome(walk, std::move(outcome));
  } catch (const std::bad_alloc&) {
    if (is_closed_) throw;
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
      fail_part(error);
    }
    return;
  }
  reach_.add(outcome.reached);
  const auto entries = joint_.add(std::move(outcome.reached_entries));
  is_finished_ = outcome.is_finished;
  for (Gradients::Entry& entry : outcome.gradients) staged_.push_back(std::move(entry));
  if (outcome.joint != nullptr) joint_.begin(outcome.joint);
  joint_.enter(std::move(outcome.entering));
  send_grads(std::move(outcome.leaving));
  if (outcome.has_put_off) graph_->take_up();
  if (walk && expectation_ != nullptr) {
    check_plan(!entries.empty());
  } else if (walk && discovery_ != nullptr) {
    *walk ? discovery_->ask(*walk, outcome.reached, entries) : search_or_plan(outcome.reached, entries);
  }
  report_if_done();
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
  observer_->on_planned(participants, has_entries);
}

// False when a search still goes on: then no part may run yet.
bool LocalPass::end_discovery() {
  if (is_searching()) return false;
  discovery_.reset();
  return true;
}

void LocalPass::on_discover(const Peer& from, const wire::Discover& discover) {
  assert_on_loop(shared_.environment.loop);
  if (reported_ == Report::kFailed) return;  // the initiator knows
  if (!check_history(from, discover.creates_graph)) return;
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
  if (reported_ == Report::kFailed || discovery_ == nullptr) return Heard::kStale;
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
      fail_part(shared_.sign(std::move(error.add_context(send->name()))));
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
  if (reported_ == Report::kFailed || joint_.is_searched()) return Heard::kStale;
  if (!end_discovery()) {
    fail_part(shared_.sign(Error(Status::kProtocol, "the pass was run before its discovery had ended here")));
    return Heard::kHandled;
  }
  joint_.note_searched();
  graph_->work(std::nullopt, [](GraphTask& task) { task.begin_joint(); });
  return Heard::kHandled;
}

Heard LocalPass::on_entered(const Peer& from, const wire::EntryName& entry) {
  assert_on_loop(shared_.environment.loop);
  if (reported_ == Report::kFailed || is_searching()) return Heard::kStale;
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

// Those to the initiator last: it may hear by the last one of all that this part is done. Nothing is reported before
// all are on their way.
void LocalPass::send_grads(std::vector<GraphTask::Leaving> leaving) {
  if (!info_.fast) {
    std::stable_partition(leaving.begin(), leaving.end(), [this](const GraphTask::Leaving& item) {
      return static_cast<const RecvNode&>(*item.recv).info().peer != info_.pass.maker;
    });
  }
  unnumbered_ += leaving.size();
  for (GraphTask::Leaving& item : leaving) send_grad(std::move(item));
}

void LocalPass::send_grad(GraphTask::Leaving leaving) {
  if (reported_ != Report::kNothing) return;
  const PairInfo& info = static_cast<const RecvNode&>(*leaving.recv).info();
  wire::Grad grad{context_->id(), info_.pass, info.pair, info_.retain_graph, info_.fast, std::move(leaving.live), {}};
  for (Tensor& gradient : leaving.gradients) {
    grad.gradients.push_back(gradient ? Value(std::move(gradient)) : Value());
  }
  grad.planned = expectation_ != nullptr;
  grad.creates_graph = info_.creates_graph;
  ++grads_sent_;
  grads_to_.insert(info.peer);
  const bool may_ride = !info_.fast && info.peer == info_.pass.maker;
  SendOptions options;
  options.on_number = [self = shared_from_this(), may_ride](wire::Message& message) {
    --self->unnumbered_;
    if (!self->is_closed_) self->report_if_done(may_ride ? std::get_if<wire::Grad>(&message.body) : nullptr);
  };
  try {
    if (gradient_pairs_ != nullptr) grad.recording = gradient_pairs_->on_send(info, grad.gradients);
    shared_.session->send(info.peer, std::move(grad), std::move(options));
  } catch (...) {
    fail_part(shared_.sign(current_error()));
  }
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
    fail_by_grad(
        shared_.sign(Error(Status::kGraphFreed,
                           "the graph of a call was freed by an earlier backward pass; use retain_graph there to "
                           "run another")));
  } else if (!info_.fast) {
    fail_by_grad(shared_.sign(Error(
        Status::kProtocol, fmt::format("gradients came for {}, which the pass has not reached", recorded->name()))));
  } else {
    fail_by_grad(shared_.sign(Error(
        Status::kInvalidState,
        fmt::format("{} were recorded while a FAST pass ran; wait for calls before the pass", recorded->name()))));
  }
  return nullptr;
}

bool LocalPass::check_history(const Peer& from, bool creates_graph) {
  assert_on_loop(shared_.environment.loop);
  if (creates_graph == info_.creates_graph) return true;
  if (reported_ == Report::kFailed) return false;
  fail_by_grad(shared_.sign(Error(
      Status::kUnsupported,
      fmt::format("create_graph: workers differ in whether the gradients of the pass have a history: the distag "
                  "of worker \"{}\" (rank {}), or of one that began the pass here, is too old for it: update it, or "
                  "run the pass without create_graph",
                  from.name, from.rank))));
  return false;
}

void LocalPass::on_grad(const Peer& from, wire::Grad& grad) {
  assert_on_loop(shared_.environment.loop);
  if (reported_ == Report::kFailed || !check_history(from, grad.creates_graph)) return;
  if (grad.planned != (expectation_ != nullptr)) {
    fail_by_grad(shared_.sign(Error(Status::kProtocol, "gradients came of another kind of pass")));
    return;
  }
  const std::shared_ptr<SendNode> send = find_live_send(from, grad.pair);
  if (send == nullptr) return;
  if (gradient_pairs_ != nullptr) gradient_pairs_->on_receive(send->info(), grad.recording, grad.gradients);
  Tensors gradients = take_gradients(*send, grad);
  Expectation::Gradient gradient{send, std::move(grad.live), std::move(gradients)};
  if (expectation_ != nullptr && !expectation_->is_checked()) {
    if (!expectation_->keep(std::move(gradient))) {
      fail_by_grad(shared_.sign(Error(Status::kProtocol, "gradients came twice for " + send->name())));
    }
    return;
  }
  if (!end_discovery()) {
    fail_part(shared_.sign(Error(Status::kProtocol, "the pass was run before its discovery had ended here")));
    return;
  }
  deliver(std::move(gradient));
}

void LocalPass::deliver(Expectation::Gradient gradient) {
  if (expectation_ != nullptr && !expectation_->is_of(gradient.send->info().pair, gradient.live)) {
    return misplan("gradients came for other values than it says");
  }
  ++grads_received_;
  gradient.send->note_fired();
  graph_->work(std::nullopt, [send = gradient.send, tensors = std::move(gradient.tensors)](GraphTask& task) mutable {
    task.deliver_source(*send, std::move(tensors));
  });
}

Tensors LocalPass::take_gradients(const SendNode& send, wire::Grad& grad) {
  if (grad.live.size() != send.slots()) violation("gradients for {} of {} values", grad.live.size(), send.slots());
  Tensors gradients(send.slots());
  auto next = grad.gradients.begin();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!grad.live[i]) continue;
    if (next == grad.gradients.end()) violation("too few gradients came for {}", send.name());
    const Value& value = *next++;
    if (value.is_null()) continue;
    const SendNode::Slot& slot = send.metadata()[i];
    const Tensor& gradient = value.as_tensor();
    if (gradient.shape() != slot.shape || gradient.dtype() != slot.dtype) {
      violation("{} is no gradient of {}{}", describe(gradient), dtype_name(slot.dtype), to_string(slot.shape));
    }
    gradients[i] = gradient;
  }
  if (next != grad.gradients.end()) violation("too many gradients came for {}", send.name());
  grad.gradients.clear();  // so that they have one holder
  return gradients;
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
  if (reported_ != Report::kNothing || is_searching()) return result;
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
  if (expectation_ != nullptr && !expectation_->is_checked()) return;
  if (!is_finished_ || !is_idle() || is_closed_ || reported_ != Report::kNothing) return;
  if (joint_.waits_to_begin()) return;
  reported_ = Report::kDone;
  const auto self = shared_from_this();
  try {
    observer_->on_done(last);
  } catch (const std::bad_alloc&) {
    if (is_closed_) throw;
    reported_ = Report::kNothing;  // it was not
    fail_part(shared_.sign(current_error()));
  }
}

void LocalPass::fail_part(const Error& error) {
  if (reported_ != Report::kNothing) return;
  reported_ = Report::kFailed;
  ended_with_ = error.status();
  graph_->stop();
  try {
    observer_->on_failed(error);
  } catch (const std::bad_alloc&) {
    fail_later();
  }
}

// Its initiator would wait for ever.
void LocalPass::fail_later() {
  if (is_closed_) return;
  Loop& loop = shared_.environment.loop;
  loop.start_timer(again_, loop.now() + kFailAgain, [alive = shared_.weak_from_this(), self = shared_from_this()] {
    const auto shared = alive.lock();
    if (shared == nullptr || shared->passes == nullptr || self->is_closed_) return;
    try {
      self->observer_->on_failed(Error(Status::kOutOfMemory, "no memory"));
    } catch (const std::bad_alloc&) {
      self->fail_later();
    }
  });
}

// Its initiator takes a part that is done for whole, and would wait for the gradient to be counted.
void LocalPass::fail_by_grad(const Error& error) {
  if (reported_ != Report::kDone) return fail_part(error);
  observer_->on_failed(error);
}

void LocalPass::on_gone(Incarnation peer, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  if (reach_.needs(peer)) fail_part(shared_.sign(error));
}

void LocalPass::end(const Error& why) {
  assert_on_loop(shared_.environment.loop);
  const auto self = shared_from_this();
  fail_part(shared_.sign(why));
  if (!is_closed_) drop(why.status());
}

void LocalPass::fail_here(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  const auto self = shared_from_this();
  if (reported_ != Report::kDone) return fail_part(error);
  // Its initiator may commit what is not whole here.
  context_->record->lose_verdict(
      info_.pass, Error(error.status(), fmt::format("gradients: the end of pass {} failed here: {}", info_.pass.counter,
                                                    error.message())));
  drop(error.status());
}

void LocalPass::commit_if_done() {
  assert_on_loop(shared_.environment.loop);
  if (is_done()) return commit();
  context_->record->lose_verdict(
      info_.pass, Error(Status::kProtocol, fmt::format("gradients: {} committed pass {}, which has not run here",
                                                       shared_.describe(info_.pass.maker), info_.pass.counter)));
  drop(Status::kProtocol);
}

void LocalPass::commit() {
  assert_on_loop(shared_.environment.loop);
  if (gradient_pairs_ != nullptr) gradient_pairs_->prepare_commit();
  context_->record->commit(info_.pass, std::move(staged_));
  if (gradient_pairs_ != nullptr) {
    gradient_pairs_->commit();
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
  ended_with_ = ended_with_ == Status::kOk ? why : ended_with_;
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

void LocalPass::trace() const {
  TraceEvent event;
  event.category = TraceCategory::kPass;
  event.status = ended_with_;
  event.begin = begun_;
  event.end = shared_.environment.loop.now();
  const bool is_own = info_.pass.maker == shared_.self.incarnation;
  event.is_part = !is_own;
  const Peer* of = is_own || shared_.session == nullptr ? nullptr : shared_.session->find(info_.pass.maker);
  shared_.group.shared()->trace.add_ended(event, is_own ? "pass" : "pass of another", of == nullptr ? "" : of->name);
}

void LocalPass::close(bool frees_graph) {
  const auto self = shared_from_this();
  trace();
  is_closed_ = true;
  observer_ = nullptr;
  discovery_.reset();
  joint_.end();
  --shared_.counters.passes_open;
  context_->record->end_pass();
  context_->passes.erase(info_.pass);
  shared_.open_passes.end_part(info_.pass);
  GradientPairs::Sends uncounted;
  if (gradient_pairs_ != nullptr) uncounted = gradient_pairs_->drop();
  graph_->close(frees_graph, {reach_.take_sends(), std::move(staged_), std::move(uncounted)});
}

}  // namespace distag
