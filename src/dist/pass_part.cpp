#include "dist/pass_part.h"

#include <algorithm>
#include <map>
#include <utility>

namespace distag {

using autograd::GraphTask;

namespace {

// Up to here a graph is walked, run (where its nodes are cheap) and freed on the loop, in a fraction of a millisecond.
constexpr size_t kFewNodes = 32;

}  // namespace

PassPart::PassPart(DistShared& shared, std::shared_ptr<DistContext> context, PassInfo info,
                   std::shared_ptr<GraphTask> task)
    : kept_shared_(shared.shared_from_this()),
      shared_(shared),
      context_(std::move(context)),
      info_(info),
      task_(std::move(task)),
      strand_(std::make_shared<Strand>(shared.environment.compute)) {
  if (task_ == nullptr) task_ = std::make_shared<GraphTask>(make_recv_check(*context_->record));
  context_->record->begin_pass();
  ++shared_.counters.passes_run;
  ++shared_.counters.passes_open;
}

PassPart::~PassPart() = default;

GraphTask::CheckRecv PassPart::make_recv_check(const ContextRecord& context) {
  return [id = context.id(), number = context.number()](const autograd::Node& node) {
    const PairInfo& info = static_cast<const RecvNode&>(node).info();
    if (info.context == id) return;
    fail(Status::kInvalidArgument,
         "the pass is of context {}, but a root depends on {}, recorded in context {}; detach the value, or use one "
         "context",
         number, info.describe(), info.context_number);
  };
}

void PassPart::set_lead(std::unique_ptr<PassLead> lead) {
  own_lead_ = std::move(lead);
  lead_ = own_lead_.get();
}

// ---- work on the strand ----

// What is small is not worth the way to the pool and back.
void PassPart::work(const Id* request, Work action) {
  if (busy_ == 0) {
    Outcome outcome;
    ++busy_;
    const bool is_complete = advance(action, true, outcome);
    if (is_complete) {
      on_worked(request, std::move(outcome));
      return;
    }
    --busy_;
    action = nullptr;
  }
  post_work(request, std::move(action));
}

void PassPart::post_work(const Id* request, Work action) {
  ++busy_;
  strand_->post_or_drop([self = shared_from_this(), is_walk = request != nullptr,
                         id = request == nullptr ? Id() : *request, action = std::move(action)]() mutable {
    Outcome outcome;
    self->advance(action, false, outcome);
    action.reset();
    const std::shared_ptr<DistShared> shared = self->kept_shared_;
    shared->gate.run([self = std::move(self), is_walk, id, outcome = std::move(outcome)]() mutable {
      self->on_worked(is_walk ? &id : nullptr, std::move(outcome));
    });
  });
}

bool PassPart::advance(Work& action, bool is_on_loop, Outcome& outcome) {
  try {
    const auto check_stop = [this] {
      if (stop_) fail(Status::kCancelled, "the pass has ended");
    };
    check_stop();
    if (action) action(*task_);
    if (!task_->walk(is_on_loop ? kFewNodes : GraphTask::kNoLimit)) return false;
    GraphTask::RunOptions options;
    options.runs_host_code = &shared_.environment.functions == &shared_.environment.compute;
    options.max_cheap_nodes = is_on_loop ? kFewNodes : 0;
    options.check_stop = check_stop;
    if (!task_->run(options)) return false;
    outcome.reached = task_->take_reached();
    outcome.leaving = task_->take_leaving();
    outcome.host_steps = task_->take_host_steps();
    outcome.is_finished = task_->is_finished();
    if (outcome.is_finished) outcome.gradients = task_->take_gradients();
  } catch (...) {
    outcome.failed = true;
    outcome.error = current_error();
  }
  return true;
}

void PassPart::on_worked(const Id* request, Outcome outcome) {
  --busy_;
  if (is_closed_) {
    if (busy_ == 0) discard_graph();
    return;
  }
  if (reported_ == Report::kFailed) return;
  if (outcome.failed) {
    const Error error = shared_.sign(std::move(outcome.error));
    request == nullptr ? fail_part(error) : fail_request(*request, error);
    return;
  }
  note_reached(outcome.reached);
  is_finished_ = outcome.is_finished;
  if (is_finished_) staged_ = std::move(outcome.gradients);
  ++unnumbered_;  // nothing is reported before all of this is on its way
  for (GraphTask::HostStep& step : outcome.host_steps) post_host_step(std::move(step));
  for (GraphTask::Leaving& leaving : outcome.leaving) send_grad(std::move(leaving));
  --unnumbered_;
  if (request != nullptr) send_discovers(*request, outcome.reached);
  report_if_done();
}

void PassPart::note_reached(const std::vector<GraphTask::Reached>& reached) {
  for (const GraphTask::Reached& item : reached) {
    live_recvs_.insert(item.recv.get());
    peers_.insert(static_cast<const RecvNode&>(*item.recv).info().peer);
  }
}

void PassPart::post_host_step(GraphTask::HostStep step) {
  ++host_steps_;
  shared_.environment.functions.post_or_drop([self = shared_from_this(), step = std::move(step)]() mutable {
    bool failed = false;
    Error error;
    Tensors gradients;
    try {
      if (self->stop_) fail(Status::kCancelled, "the pass has ended");
      gradients = step.run();
    } catch (...) {
      failed = true;
      error = current_error();
    }
    const std::shared_ptr<DistShared> shared = self->kept_shared_;
    shared->gate.run([self = std::move(self), step = std::move(step), failed, error = std::move(error),
                      gradients = std::move(gradients)]() mutable {
      --self->host_steps_;
      if (self->is_closed_ || self->reported_ == Report::kFailed) return;
      if (failed) {
        self->fail_part(self->shared_.sign(std::move(error)));
      } else {
        self->finish_host_step(std::move(step), std::move(gradients));
      }
    });
  });
}

void PassPart::finish_host_step(GraphTask::HostStep step, Tensors gradients) {
  work(nullptr, [step = std::move(step), gradients = std::move(gradients)](GraphTask& task) mutable {
    task.finish_host_step(step, std::move(gradients));
  });
}

// ---- walks ----

void PassPart::expand_roots(std::vector<autograd::Edge> roots) {
  const Id root;
  requests_[root];
  work(&root, [roots = std::move(roots)](GraphTask& task) { task.expand(roots); });
}

void PassPart::go_on_from(std::vector<GraphTask::Reached> reached) {
  const Id root;
  requests_[root];
  note_reached(reached);
  send_discovers(root, reached);
}

void PassPart::on_discover(const Peer& from, const wire::Discover& discover) {
  if (discover.request.maker != from.incarnation || discover.pairs.empty() || requests_.contains(discover.request)) {
    fail(Status::kProtocol, "a DISCOVER without pairs, or with an id that is not its sender's or was used before");
  }
  if (reported_ == Report::kFailed) return;  // the initiator knows
  peers_.insert(from.incarnation);
  Request& request = requests_[discover.request];
  request.asker = from.incarnation;
  request.participants.insert(shared_.self.incarnation);
  std::vector<std::pair<std::shared_ptr<SendNode>, autograd::Bits>> sources;
  for (const wire::PairBits& item : discover.pairs) {
    auto found = context_->sends.find(Id{item.pair_maker, item.pair_counter});
    if (found == context_->sends.end()) {
      fail_request(discover.request,
                   shared_.sign(Error(Status::kGraphFreed,
                                      "the graph of a call was freed by an earlier backward pass; use retain_graph "
                                      "there to run another")));
      return;
    }
    const SendNode& send = *found->second;
    if (send.info().peer != from.incarnation || item.bits.size() != send.slots()) {
      fail(Status::kProtocol, "a DISCOVER for {}, which has {} values and went elsewhere", send.name(), send.slots());
    }
    if (std::find(item.bits.begin(), item.bits.end(), false) != item.bits.end()) is_partial_ = true;
    live_sends_.emplace(found->first, found->second);
    sources.emplace_back(found->second, item.bits);
  }
  work(&discover.request, [sources = std::move(sources)](GraphTask& task) {
    for (const auto& [send, bits] : sources) task.add_source(send, bits);
  });
}

// One message per peer, or more when it would be too long.
void PassPart::send_discovers(const Id& parent, const std::vector<GraphTask::Reached>& reached) {
  constexpr size_t kMaxBytes = 32 << 10;
  constexpr size_t kBytesPerPair = 64;
  std::map<Incarnation, std::vector<std::vector<wire::PairBits>>> messages;
  std::map<Incarnation, size_t> bytes;
  for (const GraphTask::Reached& item : reached) {
    const PairInfo& info = static_cast<const RecvNode&>(*item.recv).info();
    auto& lists = messages[info.peer];
    size_t& used = bytes[info.peer];
    if (lists.empty() || used > kMaxBytes) {
      lists.emplace_back();
      used = 0;
    }
    used += kBytesPerPair + item.slots.size();
    lists.back().push_back({info.pair.counter, info.pair.maker, item.slots});
  }
  for (auto& [peer, lists] : messages) {
    for (auto& pairs : lists) {
      const Id id = shared_.next_request();
      children_.emplace(id, Child{parent, peer});
      ++requests_.at(parent).open;
      try {
        shared_.session->send(peer,
                              wire::Discover{context_->id(), info_.pass, id, info_.retain_graph, std::move(pairs)});
      } catch (const Error& error) {
        fail_request(parent, shared_.sign(error));
        return;
      }
    }
  }
  if (requests_.at(parent).open == 0) end_request(parent);
}

void PassPart::on_discovered(const Peer& from, const wire::Discovered& discovered) {
  auto child = children_.find(discovered.request);
  if (child == children_.end() || child->second.to != from.incarnation) {
    fail(Status::kProtocol, "a DISCOVERED that answers nothing");
  }
  const Id parent = child->second.parent;
  children_.erase(child);
  auto request = requests_.find(parent);
  if (request == requests_.end()) return;  // failed already
  if (discovered.failed) {
    fail_request(parent, discovered.error);
    return;
  }
  request->second.participants.insert(discovered.participants.begin(), discovered.participants.end());
  if (--request->second.open == 0) end_request(parent);
}

void PassPart::end_request(const Id& id) {
  auto node = requests_.extract(id);
  Request& request = node.mapped();
  if (request.asker == 0) {
    lead_->on_planned(request.participants);
    return;
  }
  wire::Discovered answer{context_->id(), info_.pass, id, false, {}, {}};
  answer.participants.assign(request.participants.begin(), request.participants.end());
  shared_.tell(request.asker, std::move(answer));
}

void PassPart::fail_request(const Id& id, const Error& error) {
  auto node = requests_.extract(id);
  if (node.empty()) return;
  if (node.mapped().asker == 0) {
    fail_part(error);
  } else {
    shared_.tell(node.mapped().asker, wire::Discovered{context_->id(), info_.pass, id, true, error, {}});
  }
}

void PassPart::take_all_sends(std::vector<autograd::Edge> roots) {
  live_sends_ = context_->sends;
  std::vector<std::shared_ptr<SendNode>> sends;
  sends.reserve(live_sends_.size());
  for (const auto& [pair, send] : live_sends_) {
    sends.push_back(send);
    peers_.insert(send->info().peer);
  }
  work(nullptr, [roots = std::move(roots), sends = std::move(sends)](GraphTask& task) {
    task.expand(roots);
    for (const auto& send : sends) task.add_source(send, autograd::Bits(send->slots(), true));
  });
}

// ---- gradients ----

void PassPart::run_roots(std::vector<autograd::Edge> roots, Tensors seeds) {
  work(nullptr, [roots = std::move(roots), seeds = std::move(seeds)](GraphTask& task) mutable {
    for (size_t i = 0; i < roots.size(); ++i) task.deliver(roots[i], std::move(seeds[i]));
  });
}

void PassPart::send_grad(GraphTask::Leaving leaving) {
  if (reported_ != Report::kNothing) return;
  const PairInfo& info = static_cast<const RecvNode&>(*leaving.recv).info();
  wire::Grad grad{context_->id(), info_.pass, info.pair, info_.retain_graph, info_.fast, std::move(leaving.live), {}};
  for (Tensor& gradient : leaving.gradients) {
    grad.gradients.push_back(gradient ? Value(std::move(gradient)) : Value());
  }
  ++grads_sent_;
  grads_to_.insert(info.peer);
  ++unnumbered_;
  SendOptions options;
  options.on_number = [self = shared_from_this()](wire::Message&) {
    --self->unnumbered_;
    if (!self->is_closed_) self->report_if_done();
  };
  try {
    shared_.session->send(info.peer, std::move(grad), std::move(options));
  } catch (const Error& error) {
    fail_part(shared_.sign(error));
  }
}

std::shared_ptr<SendNode> PassPart::find_live_send(const Peer& from, const Id& pair) {
  auto found = live_sends_.find(pair);
  if (found != live_sends_.end()) {
    if (found->second->info().peer == from.incarnation) return found->second;
    fail(Status::kProtocol, "gradients for {}, which went elsewhere", found->second->name());
  }
  if (!info_.fast) fail(Status::kProtocol, "gradients for a call that the pass has not reached");
  auto recorded = context_->sends.find(pair);
  if (recorded == context_->sends.end()) {
    fail_part(shared_.sign(Error(Status::kGraphFreed,
                                 "the graph of a call was freed by an earlier backward pass; use retain_graph there to "
                                 "run another")));
  } else {
    fail_part(shared_.sign(Error(Status::kInvalidState,
                                 fmt::format("{} were recorded while a FAST pass ran; wait for calls before the pass",
                                             recorded->second->name()))));
  }
  return nullptr;
}

void PassPart::on_grad(const Peer& from, wire::Grad& grad) {
  if (reported_ == Report::kFailed) return;
  const std::shared_ptr<SendNode> send = find_live_send(from, grad.pair);
  if (send == nullptr) return;
  if (grad.live.size() != send->slots()) {
    fail(Status::kProtocol, "gradients for {} of {} values", grad.live.size(), send->slots());
  }
  Tensors gradients(send->slots());
  auto next = grad.gradients.begin();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!grad.live[i]) continue;
    if (next == grad.gradients.end()) fail(Status::kProtocol, "too few gradients came for {}", send->name());
    const Value& value = *next++;
    if (value.is_null()) continue;
    const SendNode::Slot& slot = send->metadata()[i];
    const Tensor& gradient = value.as_tensor();
    if (gradient.shape() != slot.shape || gradient.dtype() != slot.dtype) {
      fail(Status::kProtocol, "{} is no gradient of {}{}", describe(gradient), dtype_name(slot.dtype),
           to_string(slot.shape));
    }
    gradients[i] = gradient;
  }
  if (next != grad.gradients.end()) fail(Status::kProtocol, "too many gradients came for {}", send->name());
  grad.gradients.clear();  // so that they have one holder
  ++grads_received_;
  send->note_fired();
  work(nullptr, [send, gradients = std::move(gradients)](GraphTask& task) mutable {
    task.deliver_source(*send, std::move(gradients));
  });
}

std::vector<std::string> PassPart::waiting_calls() const {
  std::vector<std::string> result;
  for (const auto& node : task_->waiting_sources()) result.push_back(static_cast<const SendNode&>(*node).info().call);
  return result;
}

std::vector<std::string> PassPart::waits_for() const {
  std::vector<std::string> result;
  for (const auto& [id, child] : children_) {
    result.push_back(shared_.describe(child.to) + ", to search on from what came from it");
  }
  if (reported_ != Report::kNothing || is_searching()) return result;
  if (!is_idle()) {
    result.emplace_back("tasks of this worker");
  } else if (task_ != nullptr) {
    for (const auto& node : task_->waiting_sources()) result.push_back("the gradient of " + node->name());
  }
  return result;
}

// ---- the end ----

void PassPart::report_if_done() {
  if (!is_finished_ || !is_idle() || is_closed_ || reported_ != Report::kNothing) return;
  reported_ = Report::kDone;
  lead_->on_done();
}

void PassPart::fail_part(const Error& error) {
  if (reported_ != Report::kNothing) return;
  reported_ = Report::kFailed;
  stop_ = true;
  lead_->on_failed(error);
}

void PassPart::on_gone(Incarnation peer, const Error& error) {
  if (peers_.contains(peer)) fail_part(shared_.sign(error));
}

void PassPart::end(const Error& why) {
  const auto self = shared_from_this();
  fail_part(shared_.sign(why));
  if (!is_closed_) drop();
}

void PassPart::commit() {
  context_->record->commit(info_.pass, std::move(staged_));
  if (!info_.retain_graph) {
    frees_graph_ = true;
    for (const auto& [pair, send] : live_sends_) context_->sends.erase(pair);
    context_->recv_count -= std::min(context_->recv_count, live_recvs_.size());
    context_->note_counts();
  }
  close();
}

void PassPart::drop() {
  context_->record->forget(info_.pass);
  ++shared_.counters.passes_failed;
  close();
}

void PassPart::close() {
  const auto self = shared_from_this();
  is_closed_ = true;
  stop_ = true;
  lead_ = nullptr;
  --shared_.counters.passes_open;
  context_->record->end_pass();
  context_->passes.erase(info_.pass);
  if (busy_ == 0) discard_graph();
}

void PassPart::discard_graph() {
  const bool is_small = task_->visited() <= kFewNodes && !is_partial_;
  Task discard = [task = std::move(task_), sends = std::move(live_sends_), staged = std::move(staged_),
                  frees = frees_graph_]() mutable {
    if (frees) task->free_saved();
    sends.clear();
    task.reset();
  };
  if (is_small) {
    discard();
  } else {
    shared_.environment.compute.post_or_drop(std::move(discard));
  }
}

}  // namespace distag
