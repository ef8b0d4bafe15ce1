#include "dautograd/pass_initiator.h"

#include <utility>

#include "base/each_step.h"
#include "dautograd/passes.h"

namespace distag {
PassInitiator::PassInitiator(DautogradShared& shared, std::shared_ptr<DistributedContext> context, Plan plan,
                             Task on_over)
    : shared_(shared),
      context_(std::move(context)),
      plan_(std::move(plan)),
      on_over_(std::move(on_over)),
      rounds_(shared, participants_, static_cast<FastRounds::Owner&>(*this), context_->id(), plan_.info.pass),
      verdict_(shared, participants_, context_->id(), plan_.info.pass) {}

PassInitiator::~PassInitiator() = default;

void PassInitiator::begin() {
  assert_on_loop(shared_.environment.loop);
  part_ = std::make_shared<LocalPass>(shared_, context_, plan_.info, std::move(plan_.task));
  part_->state().observe(this);
  if (plan_.leader != nullptr) *plan_.leader = weak_from_this();
  if (context_->is_own) ++context_->open_passes;
  shared_.open_passes.add(plan_.info.pass, context_);
  context_->passes[plan_.info.pass] = {part_, shared_from_this()};
  participants_.add(shared_.self.incarnation);
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

bool PassInitiator::on_walked(const std::vector<autograd::GraphWalk::Reached>& reached) {
  assert_on_loop(shared_.environment.loop);
  if (reached.empty()) return false;  // the pass does not leave this worker
  if (!plan_.searches) {
    auto plan = make_pass_plan(context_->lineage, shared_.lineage.limits, shared_.self.incarnation, reached);
    if (plan && tell_plan(*std::move(plan))) return true;
  }
  ++shared_.counters.passes_searched;
  return false;
}

// False if the plan names workers that are gone.
bool PassInitiator::tell_plan(PassPlan plan) {
  const Incarnation self = shared_.self.incarnation;
  for (const auto& [worker, part] : plan.parts) {
    if (worker != self && shared_.is_gone(worker)) return false;
  }
  const auto alive = shared_from_this();
  follows_plan_ = is_planned_ = true;
  ++shared_.counters.passes_planned;
  for (const auto& [worker, part] : plan.parts) {
    participants_.add(worker);
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

// Searches under a new id: nothing of the old pass counts, and its participants are told so.
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
  --shared_.counters.passes_run;  // the pass counts as one with the next
  --shared_.counters.passes_failed;
  each([this, &next] { shared_.passes->begin(context_->id(), std::move(next)); });
  each([this] { finish(); });
  each.check();
}

void PassInitiator::on_planned(const std::set<Incarnation>& participants, bool has_entries) {
  assert_on_loop(shared_.environment.loop);
  has_entries_ = has_entries;
  for (Incarnation participant : participants) participants_.add(participant);
  if (!has_lost_participant()) run();
}

// A loss is between two workers: others may still reach a worker that this one has lost, but its DONE would never come.
bool PassInitiator::has_lost_participant() {
  for (const auto& [worker, participant] : participants_.all()) {
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
  if (follows_plan_) {  // the roots are needed again if the plan does not hold
    part_->run_roots(plan_.roots.edges, plan_.roots.seeds);
  } else {
    part_->run_roots(std::move(plan_.roots.edges), std::move(plan_.roots.seeds));
  }
}

// Joint steps begin everywhere, even where no gradient comes.
void PassInitiator::tell_to_go() {
  const auto self = shared_from_this();
  for (const auto& [worker, participant] : participants_.all()) {
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
    // The graph of a lost worker is lost too: a send whose gradient has to come from there reports that.
    if (holder == shared_.self.incarnation || shared_.is_gone(holder)) continue;
    participants_.add(holder);
    try {
      shared_.session->send(
          holder, wire::Start{context_->id(), plan_.info.pass, plan_.info.retain_graph, plan_.info.creates_graph});
    } catch (const Error& error) {
      abort(shared_.sign(error));
      return;
    }
  }
  rounds_.begin_soon();
  part_->way().begin(plan_.roots.edges, {}, {});
  if (!is_over_) run();
}

// ---- reports ----

void PassInitiator::on_joined(const Peer& from) {
  assert_on_loop(shared_.environment.loop);
  participants_.join(from.incarnation);
  if (plan_.info.fast) rounds_.add(from.incarnation);
}

void PassInitiator::on_done(wire::Grad*) {
  assert_on_loop(shared_.environment.loop);
  note_counts();
  participants_.of(shared_.self.incarnation).is_done = true;
  if (!has_lost_participant()) decide();
}

// A worker that got a GRAD takes part, even if it has joined the context so late that the creator did not know.
void PassInitiator::note_counts() {
  Participants::State& own = participants_.of(shared_.self.incarnation);
  own.grads_sent = part_->grads().sent();
  own.grads_received = part_->grads().received();
  if (!plan_.info.fast) return;
  for (const Incarnation receiver : part_->grads().receivers()) rounds_.add(receiver);
}

void PassInitiator::note_own(Participants::State& own) {
  note_counts();
  own.is_idle = part_->is_idle();
  if (own.is_idle) own.unreached = part_->waiting_calls();
}

void PassInitiator::on_done(const Peer& from, const wire::Done& done) {
  assert_on_loop(shared_.environment.loop);
  if (done.failed) {
    participants_.join(from.incarnation);
    if (follows_plan_ && done.replan) return search_instead();
    return abort(done.error);
  }
  if (plan_.info.creates_graph && !done.creates_graph) {
    return abort(Error(Status::kUnsupported,
                       fmt::format("create_graph: the distag of worker \"{}\" (rank {}) is too old for it across "
                                   "workers: update it there, or run the pass without create_graph",
                                   from.name, from.rank)));
  }
  participants_.note_done(from.incarnation, done.grads_sent, done.grads_received);
  if (plan_.info.fast) {
    for (const Incarnation receiver : done.grads_to) rounds_.add(receiver);
    rounds_.begin_soon();
  }
  if (!has_lost_participant()) decide();
}

void PassInitiator::on_failed(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  part_->way().is_misplanned() ? search_instead() : abort(error);
}

void PassInitiator::on_gone(Incarnation peer, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  if (participants_.contains(peer) || participants_.has_joined(peer)) {
    abort(shared_.sign(error));
  } else {
    part_->on_gone(peer, error);
  }
}

std::vector<std::string> PassInitiator::waits_for() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::string> result;
  for (const auto& [worker, participant] : participants_.all()) {
    if (!participant.is_done && worker != shared_.self.incarnation) result.push_back(shared_.describe(worker));
  }
  return result;
}

void PassInitiator::on_deadline() {
  assert_on_loop(shared_.environment.loop);
  std::string waits, lack;  // `lack`: from the first worker that has one
  for (const auto& [worker, participant] : participants_.all()) {
    if (participant.is_done) continue;
    waits += (waits.empty() ? "" : ", ") + shared_.describe(worker);
    if (lack.empty() && shared_.session != nullptr) lack = shared_.session->lack_text(worker);
  }
  const char* phase = is_planned_ ? "not done: " : "still finding out what the roots depend on, from ";
  // If this lasts, a worker breaks the protocol: it counts differently from the others.
  if (waits.empty() && is_planned_) {
    const Participants::Sums sums = participants_.sums();
    waits = fmt::format("all say that they are, but {} gradients were sent and {} received", sums.sent, sums.received);
  }
  abort(Error(Status::kDeadline,
              fmt::format("not done within {:g} s; {}{}{}",
                          static_cast<double>(plan_.timeout) / static_cast<double>(kSecond), phase, waits, lack)));
}

// ---- the end ----

void PassInitiator::decide() {
  const Participants::Sums sums = participants_.sums();
  if (!sums.are_done) return;
  if (sums.sent == sums.received) commit();
}

void PassInitiator::commit() {
  if (!plan_.future->claim()) {
    cancel();
    return;
  }
  const auto self = shared_from_this();
  // First: if there is no memory for it, no worker may hear of a commit.
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
  const Owed<Value> owed(plan_.future);  // if there is no memory to say more
  is_over_ = true;
  EachStep text;  // the shorter one says enough
  text([this, &error] {
    if (error.origin_rank() == shared_.self.rank) error.set_origin_rank(-1);
    error.add_context("backward pass");
  });
  if (part_ == nullptr) {  // the pass has not begun
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

void PassInitiator::tell_verdict(bool commits, const Error& error) {
  if (!commits) participants_.join(part_->take_peers());
  verdict_.tell(commits, error, shared_from_this());
}

void PassInitiator::finish() {
  if (deadline_timer_ != 0) shared_.environment.loop.cancel_timer(deadline_timer_);
  deadline_timer_ = 0;
  rounds_.stop();
  if (context_->is_own) --context_->open_passes;
  on_over_();
}

}  // namespace distag
