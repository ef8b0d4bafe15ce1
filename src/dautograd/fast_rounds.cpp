#include "dautograd/fast_rounds.h"

#include <algorithm>
#include <set>
#include <utility>

namespace distag {
namespace {

// Delays of the rounds of a FAST pass that does not move: the first, and the limit up to which they double.
constexpr Nanos kFirstProbe = 100 * kMillisecond;
constexpr Nanos kLastProbe = 2 * kSecond;

}  // namespace

void FastRounds::begin_soon() {
  assert_on_loop(shared_.environment.loop);
  schedule(kFirstProbe);
}

// A round under way does not ask a new participant: another has to. Scheduled first, as that may find no memory: then
// the message that names the new participant is handled again.
void FastRounds::add(Incarnation worker) {
  assert_on_loop(shared_.environment.loop);
  if (participants_.contains(worker)) return;
  if (timer_ == 0) schedule(kFirstProbe);
  participants_.add(worker);
}

void FastRounds::stop() {
  assert_on_loop(shared_.environment.loop);
  if (timer_ != 0) shared_.environment.loop.cancel_timer(std::exchange(timer_, 0));
}

void FastRounds::schedule(Nanos delay) {
  Loop& loop = shared_.environment.loop;
  if (timer_ != 0) loop.cancel_timer(timer_);
  delay_ = delay;
  timer_ = loop.start_timer(loop.now() + delay, [this] {
    timer_ = 0;
    begin();
  });
}

void FastRounds::begin() {
  if (owner_.has_lost_participant()) return;
  ++round_;
  for (const auto& [worker, state] : participants_.all()) {
    if (state.is_done || worker == shared_.self.incarnation) continue;
    shared_.tell(worker, wire::Probe{context_, pass_, round_});
  }
  judge();
}

void FastRounds::on_answer(const Peer& from, const wire::ProbeAnswer& answer) {
  assert_on_loop(shared_.environment.loop);
  if (answer.round != round_ || !participants_.contains(from.incarnation)) return;
  Participants::State& state = participants_.of(from.incarnation);
  state.round = answer.round;
  if (!state.is_done) {
    state.is_idle = answer.idle;
    state.grads_sent = answer.grads_sent;
    state.grads_received = answer.grads_received;
    state.unreached = answer.unreached;
    for (const Incarnation receiver : answer.grads_to) add(receiver);
  }
  judge();
}

void FastRounds::judge() {
  Participants::State& own = participants_.of(shared_.self.incarnation);
  if (!own.is_done) {
    own.round = round_;
    owner_.note_own(own);
  }
  std::vector<uint64_t> counts;
  bool is_still = true;
  for (const auto& [worker, state] : participants_.all()) {
    if (!state.is_done && state.round != round_) return;
    is_still = is_still && (state.is_done || state.is_idle);
    counts.insert(counts.end(), {worker, state.grads_sent, state.grads_received});
  }
  if (std::exchange(judged_, round_) == round_) return;
  const Participants::Sums sums = participants_.sums();
  if (!is_still || sums.sent != sums.received) {
    counts.clear();
  } else if (counts == last_counts_) {
    owner_.on_unreached(Error(Status::kUnreachedSend, describe_unreached()));
    return;
  }
  last_counts_ = std::move(counts);
  schedule(std::min(2 * delay_, kLastProbe));
}

std::string FastRounds::describe_unreached() const {
  constexpr size_t kMostNamed = 20;
  std::set<std::string> calls;
  for (const auto& [worker, state] : std::as_const(participants_).all()) {
    if (!state.is_done) calls.insert(state.unreached.begin(), state.unreached.end());
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
