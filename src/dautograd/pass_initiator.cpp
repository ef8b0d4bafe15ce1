#include "dautograd/pass_initiator.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "dautograd/passes.h"

namespace distag {
namespace {

// Delays of the rounds of a FAST pass that does not move: the first, and what they double up to.
constexpr Nanos kFirstProbe = 100 * kMillisecond;
constexpr Nanos kLastProbe = 2 * kSecond;
constexpr Nanos kTellAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

PassInitiator::PassInitiator(DautogradShared& shared, std::shared_ptr<DistributedContext> context, Plan plan,
                             Task on_over)
    : shared_(shared), context_(std::move(context)), plan_(std::move(plan)), on_over_(std::move(on_over)) {}

PassInitiator::~PassInitiator() = default;

void PassInitiator::begin() {
  assert_on_loop(shared_.environment.loop);
  part_ = std::make_shared<LocalPass>(shared_, context_, plan_.info, std::move(plan_.task));
  part_->state().observe(this);
  if (plan_.leader != nullptr) *plan_.leader = weak_from_this();
  if (context_->is_own) ++context_->open_passes;
  shared_.open_passes.add(plan_.info.pass, context_);
  context_->passes[plan_.info.pass] = {part_, shared_from_this()};
  participants_[shared_.self.incarnation];
  if (plan_.deadline != kNever) {
    deadline_timer_ = shared_.environment.loop.start_timer(plan_.deadline, [this] {
      deadline_timer_ = 0;
      on_deadline();
    });
  }
  if (!plan_.info.fast) {
    part_->way().begin(plan_.roots.edges, std::move(plan_.reached), std::move(plan_.entries));
  } else if (context_->is_own) {
    begin_fast({context_->holders.begin(), context_->holders.end()});
  } else {
    shared_.tell(context_->id().maker, wire::Holders{context_->id(), plan_.info.pass, false, {}});
  }
}

// ---- plans ----

bool PassInitiator::on_walked(const std::vector<autograd::GraphTask::Reached>& reached) {
  assert_on_loop(shared_.environment.loop);
  if (reached.empty()) return false;  // it does not leave this worker
  if (!plan_.searches) {
    auto plan = make_pass_plan(context_->lineage, shared_.lineage.limits, shared_.self.incarnation, reached);
    if (plan && tell_plan(*std::move(plan))) return true;
  }
  ++shared_.counters.passes_searched;
  return false;
}

// False where it names workers that are not there.
bool PassInitiator::tell_plan(PassPlan plan) {
  const Incarnation self = shared_.self.incarnation;
  for (const auto& [worker, part] : plan.parts) {
    if (worker != self && shared_.is_gone(worker)) return false;
  }
  const auto alive = shared_from_this();
  follows_plan_ = is_planned_ = true;
  ++shared_.counters.passes_planned;
  for (const auto& [worker, part] : plan.parts) {
    participants_[worker];
    for (const wire::PairBits& send : part.sends) planned_.push_back({send.pair_maker, send.pair_counter});
  }
  for (auto& [worker, part] : plan.parts) {
    if (worker == self) continue;
    try {
      shared_.session->send(worker, wire::Expect{context_->id(), plan_.info.pass, plan_.info.retain_graph,
                                                 std::move(part.sends), part.check, plan_.info.creates_graph});
    } catch (...) {
      abort(shared_.sign(current_error()));
    }
    if (is_over_) return true;
  }
  part_->follow_plan(plan.parts[self].sends, plan.parts[self].check);
  return true;
}

// Under a new id: nothing of the old one counts, and who takes part in it hears so.
void PassInitiator::search_instead() {
  if (is_over_) return;
  const auto self = shared_from_this();
  Plan next;
  try {
    next.roots = plan_.roots;
  } catch (...) {
    abort(current_error());
    return;
  }
  next.info = {shared_.next_pass(), plan_.info.retain_graph, false, false, plan_.info.creates_graph};
  next.timeout = plan_.timeout;
  next.deadline = plan_.deadline;
  next.future = plan_.future;
  next.searches = true;
  next.leader = plan_.leader;
  is_over_ = true;
  EachStep each;
  each([this] { tell_verdict(false, Error(Status::kCancelled, "the plan of the pass did not hold")); });
  each([this] { part_->drop(Status::kCancelled); });
  --shared_.counters.passes_run;  // it is one with the next
  --shared_.counters.passes_failed;
  each([this, &next] { shared_.passes->begin(context_->id(), std::move(next)); });
  each([this] { finish(); });
  each.check();
}

void PassInitiator::on_planned(const std::set<Incarnation>& participants, bool has_entries) {
  assert_on_loop(shared_.environment.loop);
  has_entries_ = has_entries;
  for (Incarnation participant : participants) participants_[participant];
  if (!has_lost_participant()) run();
}

// A loss is between two workers: others may still hear one that this worker does not, but its DONE would never come.
bool PassInitiator::has_lost_participant() {
  for (const auto& [worker, participant] : participants_) {
    const Error* gone = participant.is_done ? nullptr : shared_.session->gone(worker);
    if (gone == nullptr) continue;
    abort(shared_.sign(*gone));
    return true;
  }
  return false;
}

void PassInitiator::run() {
  is_planned_ = true;
  if (has_entries_) tell_to_go();
  if (is_over_) return;
  if (follows_plan_) {  // they are needed once more where it does not hold
    part_->run_roots(plan_.roots.edges, plan_.roots.seeds);
  } else {
    part_->run_roots(std::move(plan_.roots.edges), std::move(plan_.roots.seeds));
  }
}

// Joint steps begin everywhere, also where no gradient comes.
void PassInitiator::tell_to_go() {
  const auto self = shared_from_this();
  for (const auto& [worker, participant] : participants_) {
    if (worker == shared_.self.incarnation) continue;
    try {
      shared_.session->send(worker, wire::Go{context_->id(), plan_.info.pass});
    } catch (...) {
      abort(shared_.sign(current_error()));
      return;
    }
  }
}

void PassInitiator::on_holders(const std::vector<Incarnation>& holders) {
  assert_on_loop(shared_.environment.loop);
  if (!plan_.info.fast || is_planned_) return;
  if (holders.empty()) {
    abort(Error(Status::kInvalidState, "the context has ended at its creator"));
    return;
  }
  // A worker that joined below this one is known here, while the news may still be on its way to the creator.
  std::set<Incarnation> all = context_->holders;
  all.insert(holders.begin(), holders.end());
  begin_fast({all.begin(), all.end()});
}

void PassInitiator::begin_fast(const std::vector<Incarnation>& holders) {
  const auto self = shared_from_this();
  for (Incarnation holder : holders) {
    // The graph of one that is gone is gone too: a send whose gradient has to come from there says so.
    if (holder == shared_.self.incarnation || shared_.is_gone(holder)) continue;
    participants_[holder];
    try {
      shared_.session->send(
          holder, wire::Start{context_->id(), plan_.info.pass, plan_.info.retain_graph, plan_.info.creates_graph});
    } catch (const Error& error) {
      abort(shared_.sign(error));
      return;
    }
  }
  schedule_probe(kFirstProbe);
  part_->way().begin(plan_.roots.edges, {}, {});
  if (!is_over_) run();
}

// ---- reports ----

void PassInitiator::on_joined(const Peer& from) {
  assert_on_loop(shared_.environment.loop);
  joined_.insert(from.incarnation);
  if (plan_.info.fast) add_participant(from.incarnation);
}

void PassInitiator::on_done(wire::Grad*) {
  assert_on_loop(shared_.environment.loop);
  note_own();
  participants_[shared_.self.incarnation].is_done = true;
  if (!has_lost_participant()) decide();
}

void PassInitiator::note_own() {
  Participant& own = participants_[shared_.self.incarnation];
  own.grads_sent = part_->grads().sent();
  own.grads_received = part_->grads().received();
  note_targets({part_->grads().receivers().begin(), part_->grads().receivers().end()});
}

// A worker that got a GRAD takes part, even if it has joined the context so late that the creator did not know.
void PassInitiator::note_targets(const std::vector<Incarnation>& grads_to) {
  if (!plan_.info.fast) return;
  for (Incarnation worker : grads_to) add_participant(worker);
}

// A round of probes that is under way does not ask the new one: another has to. Asked for first, as it may find no
// memory: the message that names the new one is heard again then.
void PassInitiator::add_participant(Incarnation worker) {
  if (participants_.contains(worker)) return;
  if (probe_timer_ == 0) schedule_probe(kFirstProbe);
  participants_.try_emplace(worker);
}

void PassInitiator::on_done(const Peer& from, const wire::Done& done) {
  assert_on_loop(shared_.environment.loop);
  if (done.failed) {
    joined_.insert(from.incarnation);
    if (follows_plan_ && done.replan) return search_instead();
    return abort(done.error);
  }
  if (plan_.info.creates_graph && !done.creates_graph) {
    return abort(Error(Status::kUnsupported,
                       fmt::format("create_graph: the distag of worker \"{}\" (rank {}) is too old for it across "
                                   "workers: update it there, or run the pass without create_graph",
                                   from.name, from.rank)));
  }
  Participant& participant = participants_[from.incarnation];
  participant.is_done = true;
  participant.grads_sent = done.grads_sent;
  participant.grads_received = done.grads_received;
  note_targets(done.grads_to);
  if (plan_.info.fast) schedule_probe(kFirstProbe);
  if (!has_lost_participant()) decide();
}

void PassInitiator::on_failed(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  part_->way().is_misplanned() ? search_instead() : abort(error);
}

void PassInitiator::on_gone(Incarnation peer, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  if (participants_.contains(peer) || joined_.contains(peer)) {
    abort(shared_.sign(error));
  } else {
    part_->on_gone(peer, error);
  }
}

std::vector<std::string> PassInitiator::waits_for() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::string> result;
  for (const auto& [worker, participant] : participants_) {
    if (!participant.is_done && worker != shared_.self.incarnation) result.push_back(shared_.describe(worker));
  }
  return result;
}

void PassInitiator::on_deadline() {
  assert_on_loop(shared_.environment.loop);
  std::string waits;
  uint64_t sent = 0;
  uint64_t received = 0;
  for (const auto& [worker, participant] : participants_) {
    if (!participant.is_done) waits += (waits.empty() ? "" : ", ") + shared_.describe(worker);
    sent += participant.grads_sent;
    received += participant.grads_received;
  }
  const char* phase = is_planned_ ? "not done: " : "still finding out what the roots depend on, from ";
  // For longer than a moment only a worker that breaks the protocol counts otherwise than the others.
  if (waits.empty() && is_planned_) {
    waits = fmt::format("all say that they are, but {} gradients were sent and {} received", sent, received);
  }
  abort(Error(Status::kDeadline,
              fmt::format("not done within {:g} s; {}{}",
                          static_cast<double>(plan_.timeout) / static_cast<double>(kSecond), phase, waits)));
}

// ---- the end ----

// Each DONE names the receivers of its GRADs, so no participant is left out.
void PassInitiator::decide() {
  uint64_t sent = 0;
  uint64_t received = 0;
  for (const auto& [worker, participant] : participants_) {
    if (!participant.is_done) return;
    sent += participant.grads_sent;
    received += participant.grads_received;
  }
  if (sent == received) commit();
}

void PassInitiator::commit() {
  if (!plan_.future->claim()) {
    cancel();
    return;
  }
  const auto self = shared_from_this();
  // First, as without memory for it no worker may hear of a commit.
  try {
    part_->commit();
  } catch (...) {
    abort(current_error());
    return;
  }
  is_over_ = true;
  if (!plan_.info.retain_graph) {
    for (const Id& pair : planned_) context_->lineage.forget(shared_.lineage, pair);
  }
  EachStep each;
  each([this] { tell_verdict(true, Error()); });
  each([this] { plan_.future->complete(Value()); });
  each([this] { finish(); });
  each.check();
}

void PassInitiator::cancel() {
  assert_on_loop(shared_.environment.loop);
  abort(Error(Status::kCancelled, "cancelled by the caller"));
}

void PassInitiator::abort(Error error) {
  assert_on_loop(shared_.environment.loop);
  if (is_over_) return;
  const auto self = shared_from_this();
  const Owed<Value> owed(plan_.future);  // when there is no memory to say more
  is_over_ = true;
  EachStep text;  // the shorter one says enough
  text([this, &error] {
    if (error.origin_rank() == shared_.self.rank) error.set_origin_rank(-1);
    error.add_context("backward pass");
  });
  if (part_ == nullptr) {  // it has not begun
    plan_.future->fail(std::move(error));
    return;
  }
  EachStep each;
  each([this, &error] { tell_verdict(false, error); });
  each([this, &error] { part_->drop(error.status()); });
  each([this, &error] { plan_.future->fail(std::move(error)); });
  each([this] { finish(); });
  each.check();
}

// Workers that there is no memory to tell hear it later: without the verdict they would wait for ever.
void PassInitiator::tell_verdict(bool commits, const Error& error) {
  if (!commits) joined_.merge(part_->take_peers());
  EachStep each;
  each([this, commits, &error] { tell_those_left(commits, error); });
  if (!each.has_failed()) return;
  EachStep text;
  text([this, &error] { verdict_ = error; });
  if (text.has_failed()) verdict_ = Error(Status::kOutOfMemory, "no memory");
  Loop& loop = shared_.environment.loop;
  loop.start_timer(tell_again_, loop.now() + kTellAgain,
                   [alive = shared_.weak_from_this(), self = shared_from_this(), commits] {
                     const auto shared = alive.lock();
                     const Error why = std::move(self->verdict_);
                     if (shared != nullptr && shared->passes != nullptr) self->tell_verdict(commits, why);
                   });
}

// Each that is told is forgotten.
void PassInitiator::tell_those_left(bool commits, const Error& error) {
  auto tell = [this, commits, &error](Incarnation worker) {
    if (worker == shared_.self.incarnation || shared_.is_gone(worker)) return;
    shared_.tell(worker, wire::Verdict{context_->id(), plan_.info.pass, commits, error});
  };
  while (!participants_.empty()) {
    const Incarnation worker = participants_.begin()->first;
    tell(worker);
    participants_.erase(worker);
    joined_.erase(worker);
  }
  while (!joined_.empty()) {
    tell(*joined_.begin());
    joined_.erase(joined_.begin());
  }
}

void PassInitiator::finish() {
  if (deadline_timer_ != 0) shared_.environment.loop.cancel_timer(deadline_timer_);
  if (probe_timer_ != 0) shared_.environment.loop.cancel_timer(probe_timer_);
  deadline_timer_ = probe_timer_ = 0;
  if (context_->is_own) --context_->open_passes;
  on_over_();
}

// ---- FAST: nothing can move ----

void PassInitiator::schedule_probe(Nanos delay) {
  Loop& loop = shared_.environment.loop;
  if (probe_timer_ != 0) loop.cancel_timer(probe_timer_);
  probe_delay_ = delay;
  probe_timer_ = loop.start_timer(loop.now() + delay, [this] {
    probe_timer_ = 0;
    probe();
  });
}

void PassInitiator::probe() {
  assert_on_loop(shared_.environment.loop);
  if (has_lost_participant()) return;
  ++round_;
  for (auto& [worker, participant] : participants_) {
    if (participant.is_done || worker == shared_.self.incarnation) continue;
    shared_.tell(worker, wire::Probe{context_->id(), plan_.info.pass, round_});
  }
  judge_round();
}

void PassInitiator::on_probe_answer(const Peer& from, const wire::ProbeAnswer& answer) {
  assert_on_loop(shared_.environment.loop);
  auto found = participants_.find(from.incarnation);
  if (answer.round != round_ || found == participants_.end()) return;
  Participant& participant = found->second;
  participant.round = answer.round;
  if (!participant.is_done) {
    participant.is_idle = answer.idle;
    participant.grads_sent = answer.grads_sent;
    participant.grads_received = answer.grads_received;
    participant.unreached = answer.unreached;
    note_targets(answer.grads_to);
  }
  judge_round();
}

void PassInitiator::judge_round() {
  Participant& own = participants_[shared_.self.incarnation];
  if (!own.is_done) {
    note_own();
    own.round = round_;
    own.is_idle = part_->is_idle();
    if (own.is_idle) own.unreached = part_->waiting_calls();
  }
  std::vector<uint64_t> counts;
  uint64_t sent = 0;
  uint64_t received = 0;
  bool is_still = true;
  for (const auto& [worker, participant] : participants_) {
    if (!participant.is_done && participant.round != round_) return;
    is_still = is_still && (participant.is_done || participant.is_idle);
    sent += participant.grads_sent;
    received += participant.grads_received;
    counts.insert(counts.end(), {worker, participant.grads_sent, participant.grads_received});
  }
  if (std::exchange(judged_round_, round_) == round_) return;
  if (!is_still || sent != received) {
    counts.clear();
  } else if (counts == last_counts_) {
    abort(Error(Status::kUnreachedSend, describe_unreached()));
    return;
  }
  last_counts_ = std::move(counts);
  schedule_probe(std::min(2 * probe_delay_, kLastProbe));
}

std::string PassInitiator::describe_unreached() const {
  constexpr size_t kMostNamed = 20;
  std::set<std::string> calls;
  for (const auto& [worker, participant] : participants_) {
    if (!participant.is_done) calls.insert(participant.unreached.begin(), participant.unreached.end());
  }
  std::string text;
  size_t named = 0;
  for (const std::string& call : calls) {
    if (++named > kMostNamed) break;
    text += (text.empty() ? "" : ", ") + call;
  }
  if (calls.size() > kMostNamed) text += fmt::format(" and {} more", calls.size() - kMostNamed);
  return fmt::format(
      "the roots do not depend on all that was recorded: {} failed, or its results were not used; use SMART, which "
      "finds out what they depend on",
      text);
}

}  // namespace distag
