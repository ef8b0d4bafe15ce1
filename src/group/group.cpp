#include "group/group.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/each_step.h"
#include "group/all_gather.h"
#include "group/gather_rounds.h"
#include "group/gather_tree.h"
#include "group/shared.h"
#include "group/shutdown_vote.h"

namespace distag {

struct Group::State {
  State(GroupShared& given, Nanos given_lease)
      : shared(given),
        lease(given_lease),
        vote(shared, {[this] { return is_idle(); }, [this] { leave(true, shut_down()); }}),
        all_gather(std::make_shared<AllGather>(shared)),
        gather_tree(std::make_shared<GatherTree>(
            shared, GatherTree::Receiver{
                        [this](const Ranks& ranks, int64_t turn) { return all_gather->expects(ranks, turn); },
                        [this](const Ranks& ranks, const Value& values) { all_gather->take(ranks, values); }})),
        gather_rounds(shared,
                      [this](const Ranks& ranks, const std::vector<int64_t>& turns, const Value& values,
                             GatherTree::Done done) { gather_tree->spread(ranks, turns, values, std::move(done)); }) {}

  GroupShared& shared;
  const Nanos lease;
  ShutdownVote vote;
  const std::shared_ptr<AllGather> all_gather;
  const std::shared_ptr<GatherTree> gather_tree;
  GatherRounds gather_rounds;
  std::vector<std::function<bool()>> idle_checks;

  // State of the shutdown.
  const std::shared_ptr<Future<ShutdownReport>> left = Future<ShutdownReport>::make();
  Nanos deadline = kNever;
  Loop::TimerId timer = 0;
  bool is_leaving = false;
  bool leaves_quiet = false;
  std::optional<Error> leaves_for;
  TaskPlace leave_place;

  static Error shut_down() { return {Status::kCancelled, "the worker was shut down"}; }
  bool is_idle() const;
  void begin_shutdown(Nanos wanted);
  void leave(bool is_quiet, const Error& why);
  void try_to_say_leave() noexcept;
  void say_leave();
  ShutdownReport end_service(bool is_quiet, const Error& why);
  void on_gone(const Peer& peer, Standing standing, const Error& error);
};

Group::Group(Environment environment) : shared_(std::make_shared<GroupShared>(environment.loop, environment.random)) {
  state_ = std::make_shared<State>(*shared_, environment.lease);
}

Group::~Group() {
  shared_->phase.store(GroupPhase::kStopped);
  state_->gather_rounds.abandon();
}

void Group::set_service(GroupService& service) { shared_->service = &service; }

void Group::add_idle_check(std::function<bool()> is_idle) { state_->idle_checks.push_back(std::move(is_idle)); }

void Group::begin(Session& session, std::vector<Peer> members, bool is_open_world) {
  assert_on_loop(shared_->loop);
  shared_->session = &session;
  shared_->is_open_world = is_open_world;
  shared_->self = session.self();
  for (const Peer& member : members) {
    shared_->membership.add(member);
    shared_->peer_of(member);
  }
  shared_->phase.store(GroupPhase::kServing);
}

Session& Group::session() { return *shared_->session; }
const Membership& Group::membership() const { return shared_->membership; }
const std::shared_ptr<GroupShared>& Group::shared() const { return shared_; }

// ---- peers ----

void Group::send(const Peer& to, wire::Body body, Task on_acknowledged) {
  assert_on_loop(shared_->loop);
  if (shared_->session == nullptr || is_gone(to.incarnation)) return;
  SendOptions options;
  options.on_number = [shared = shared_.get(), to](wire::Message&) { ++shared->peer_of(to).requests_sent; };
  options.on_acknowledged = std::move(on_acknowledged);
  try {
    shared_->session->send(to.incarnation, std::move(body), std::move(options));
  } catch (const Error&) {
    // The peer is lost; the loop will report that.
  }
}

void Group::fence(Incarnation peer, const Error& why) {
  assert_on_loop(shared_->loop);
  if (shared_->session != nullptr) shared_->session->fence(peer, why);
}

void Group::count_received(const Peer& from) {
  assert_on_loop(shared_->loop);
  ++shared_->peer_of(from).requests_received;
}

std::shared_ptr<const Peer> Group::find_peer(Incarnation incarnation) const {
  assert_on_loop(shared_->loop);
  const auto found = shared_->peers.find(incarnation);
  return found == shared_->peers.end() ? nullptr : found->second.peer;
}

bool Group::is_gone(Incarnation incarnation) const {
  assert_on_loop(shared_->loop);
  if (!shared_->peers.contains(incarnation)) return true;
  return shared_->session == nullptr || shared_->session->gone(incarnation) != nullptr;
}

void Group::on_lost(const Peer& peer, const Error& error) {
  assert_on_loop(shared_->loop);
  state_->on_gone(peer, Standing::kLost, error);
}

void Group::on_left(const Peer& peer) {
  assert_on_loop(shared_->loop);
  state_->on_gone(peer, Standing::kLeft,
                  Error(Status::kDisconnected, fmt::format("{} has left the group", describe_peer(peer))));
}

void Group::on_lack(const Peer& peer, const Error& lack, bool is_long) {
  assert_on_loop(shared_->loop);
  shared_->service->on_lack(peer, lack, is_long);
}

void Group::State::on_gone(const Peer& peer, Standing standing, const Error& error) {
  shared.membership.set_state(peer.incarnation, standing);
  gather_rounds.on_peer_gone(peer, error);
  shared.service->on_gone(peer, error);
  vote.on_members_changed();
}

void Group::on_joined(const Peer& peer) {
  assert_on_loop(shared_->loop);
  // The earlier member of this rank is gone: nothing is counted for it any more.
  const auto before = shared_->membership.find_by_rank(peer.rank);
  if (before && before->peer.incarnation != peer.incarnation) shared_->peers.erase(before->peer.incarnation);
  shared_->membership.add(peer);
  shared_->peer_of(peer);
  state_->vote.on_members_changed();
}

// ---- messages ----

Heard Group::handle(const Peer& from, wire::Message& message) {
  assert_on_loop(shared_->loop);
  if (const auto* ask = std::get_if<wire::ShutdownPoll>(&message.body)) {
    if (!state_->vote.on_ask(from, *ask)) return Heard::kRefused;
  } else if (auto* answer = std::get_if<wire::ShutdownAnswer>(&message.body)) {
    state_->vote.on_answer(from, std::move(*answer));
  } else {
    state_->vote.on_verdict(from, std::get<wire::ShutdownVerdict>(message.body));
  }
  return Heard::kHandled;
}

// ---- gathering ----

std::shared_ptr<Future<Value>> Group::all_gather(const Value& value, std::optional<std::vector<int32_t>> ranks,
                                                 Nanos timeout) {
  return state_->all_gather->begin(value, std::move(ranks), timeout);
}

std::vector<std::vector<int32_t>> Group::missing_at_gatherings(size_t most) const {
  assert_on_loop(shared_->loop);
  return state_->gather_rounds.missing(most);
}

std::vector<Group::Function> Group::functions() {
  State* const state = state_.get();
  return {{AllGather::kFunction, [state](const GroupCall& call) { state->gather_rounds.on_call(call); }},
          {GatherTree::kFunction, [state](const GroupCall& call) { state->gather_tree->on_call(call); }}};
}

// ---- shutdown ----

bool Group::State::is_idle() const {
  return shared.service->is_idle() &&
         std::all_of(idle_checks.begin(), idle_checks.end(), [](const auto& check) { return check(); });
}

std::shared_ptr<Future<ShutdownReport>> Group::shutdown(Nanos deadline) {
  assert_on_loop(shared_->loop);
  state_->begin_shutdown(deadline);
  return state_->left;
}

void Group::State::begin_shutdown(Nanos wanted) {
  if (is_leaving) return;
  if (shared.session == nullptr) {
    is_leaving = true;
    left->complete(end_service(true, shut_down()));
    return;
  }
  if (wanted < deadline) {
    deadline = wanted;
    if (timer != 0) shared.loop.cancel_timer(std::exchange(timer, 0));
    if (deadline <= shared.loop.now()) {
      leave(false, shut_down());
      return;
    }
    timer = shared.loop.start_timer(deadline, [this] {
      timer = 0;
      leave(false, shut_down());
    });
  }
  if (shared.is_open_world) shared.service->refuse_new();
  vote.begin();
}

bool Group::leave_for(const Error& why) {
  assert_on_loop(shared_->loop);
  if (state_->is_leaving) return false;
  state_->leave(false, why);
  return true;
}

void Group::cut_off() {
  assert_on_loop(shared_->loop);
  GroupShared& shared = state_->shared;
  if (shared.session == nullptr) return;
  state_->is_leaving = true;
  if (state_->timer != 0) shared.loop.cancel_timer(std::exchange(state_->timer, 0));
  EachStep each;
  each([this] { state_->end_service(false, Error(Status::kCancelled, "shut down")); });
  shared.session = nullptr;  // in any case: the session is destroyed next
  each.check();
}

// The last step: no new work begins, open work ends, and the streams send LEAVE.
void Group::State::leave(bool is_quiet, const Error& why) {
  assert_on_loop(shared.loop);
  if (is_leaving) return;
  leaves_for = why;
  leaves_quiet = is_quiet;
  is_leaving = true;
  if (timer != 0) shared.loop.cancel_timer(std::exchange(timer, 0));
  shared.phase.store(GroupPhase::kStopped);
  vote.stop();
  all_gather->stop();
  shared.service->end_calls(why, [this] { try_to_say_leave(); });
}

// If there is no memory, a task tries again; if that fails as well, the worker ends with that failure.
void Group::State::try_to_say_leave() noexcept {
  EachStep each;
  each([this] { say_leave(); });
  if (each.has_failed()) shared.loop.post_or_drop(leave_place, [this] { say_leave(); });
}

void Group::State::say_leave() {
  if (shared.session == nullptr) return;  // cut_off() has run
  ShutdownReport report = end_service(leaves_quiet, *leaves_for);
  const Nanos patience = deadline_after(shared.loop.now(), lease);
  shared.session->leave(std::min(deadline, patience), [this, report = std::move(report)] {
    shared.session = nullptr;
    shared.membership.set_state(shared.self.incarnation, Standing::kLeft);
    left->complete(report);
  });
}

ShutdownReport Group::State::end_service(bool is_quiet, const Error& why) {
  shared.phase.store(GroupPhase::kStopped);
  ShutdownReport report;
  EachStep each;
  each([this] { vote.stop(); });
  each([this] { all_gather->stop(); });
  each([this, &why, &report] { shared.service->end(why, report); });
  each([this] { gather_rounds.stop(); });
  each.check();
  report.missing = vote.missing();
  report.clean = is_quiet && report.missing.empty() && report.open_calls == 0 && report.leaked_rrefs.empty();
  return report;
}

}  // namespace distag
