#include "group/all_gather.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/named_future.h"
#include "base/not_started.h"
#include "wire/codec.h"
#include "wire/encoder.h"

namespace distag {
namespace {

// The most bytes of a reason that stands beside another one.
constexpr size_t kMostOfReason = 200;

// The answer to a late call names the members that did not come; it is awaited this much longer.
constexpr Nanos kPatience = kSecond;

std::string describe(const Ranks& ranks) { return fmt::format("all_gather of {}", describe_ranks(ranks)); }

Ranks ascending(const std::vector<int32_t>& given) {
  Ranks ranks = given;
  std::sort(ranks.begin(), ranks.end());
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice != ranks.end()) fail(Status::kInvalidArgument, "all_gather: rank {} is named twice", *twice);
  return ranks;
}

// Whether the value may be the reason why the request was not sent.
bool is_of_value(const Error& error) {
  switch (error.status()) {
    case Status::kOutOfMemory:
    case Status::kDisconnected:
    case Status::kPeerRestarted:
    case Status::kDeadline:
    case Status::kCancelled:
    case Status::kProtocol:  // the round is over
      return false;
    default:
      return !error.may_have_run();
  }
}

}  // namespace

void AllGather::check_serving() const {
  const GroupPhase phase = shared_.phase.load(std::memory_order_acquire);
  if (phase == GroupPhase::kServing) return;
  fail(Status::kInvalidState, "all_gather: {}",
       phase == GroupPhase::kCreated ? kNotStarted : "the worker was shut down");
}

std::shared_ptr<Future<Value>> AllGather::begin(const Value& value, std::optional<std::vector<int32_t>> ranks,
                                                Nanos timeout) {
  check_serving();
  auto turn = std::make_shared<Turn>();
  turn->order = ranks ? std::move(*ranks) : group();
  turn->ranks = ascending(turn->order);
  for (const int32_t rank : turn->ranks) {
    if (!shared_.membership.find_by_rank(rank)) {
      fail(Status::kInvalidArgument, "all_gather: there is no rank {} in the group", rank);
    }
  }
  if (!std::binary_search(turn->ranks.begin(), turn->ranks.end(), shared_.self.rank)) {
    fail(Status::kInvalidArgument, "{}: its own rank {} is not among them", describe(turn->ranks), shared_.self.rank);
  }
  try {
    turn->value = wire::prepare(value);
    if (value.depth() >= kMaxValueDepth) {
      fail(Status::kInvalidArgument, "a value nests {} deep, and the list of all values more than {} deep",
           value.depth(), kMaxValueDepth);
    }
  } catch (...) {
    turn->value = Value();
    turn->failure = current_error();
    if (turn->failure->status() == Status::kOutOfMemory) throw;
  }
  turn->timeout = timeout;
  turn->deadline = deadline_after(shared_.loop.now(), timeout);
  turn->future = make_named<Value>(fmt::format("{} by {}", describe(turn->ranks), describe_peer(shared_.self)));
  turn->future->set_canceller([weak = weak_from_this(), weak_turn = std::weak_ptr(turn), &loop = shared_.loop] {
    const auto self = weak.lock();
    const auto cancelled = weak_turn.lock();
    if (self == nullptr || cancelled == nullptr) return;
    loop.post_or_drop([self, cancelled] { self->on_cancelled(cancelled); });
  });
  if (!run_on(shared_.loop, [self = shared_from_this(), turn] { self->try_to_enqueue(turn); })) {
    fail(Status::kInvalidState, "{}: the worker was shut down", describe(turn->ranks));
  }
  return turn->future;
}

std::vector<int32_t> AllGather::group() const {
  std::vector<int32_t> ranks;
  for (const MemberRecord& member : shared_.membership.all()) {
    // In a static group the round needs all members, even lost ones.
    if (shared_.is_open_world && member.state != Standing::kMember) continue;
    if (ranks.empty() || ranks.back() != member.peer.rank) ranks.push_back(member.peer.rank);
  }
  return ranks;
}

void AllGather::try_to_enqueue(const TurnPointer& turn) {
  try {
    enqueue(turn);
  } catch (...) {
    give_up(turn, current_error());
  }
}

// Fails a turn for which there is no memory. If it was under way, the next turn of its ranks begins.
void AllGather::give_up(const TurnPointer& turn, Error why) {
  cancel_timer(*turn);
  EachStep each;
  each([&turn, &why] { turn->future->fail(std::move(why)); });
  each([&turn] {
    if (turn->call != nullptr) turn->call->cancel();
  });
  if (turn->is_under_way) {
    send_next_soon(turn);
  } else {
    remove(*turn);
  }
}

void AllGather::remove(const Turn& turn) {
  const auto found = turns_.find(turn.ranks);
  if (found == turns_.end()) return;
  std::erase_if(found->second, [&turn](const TurnPointer& other) { return other.get() == &turn; });
  if (found->second.empty()) turns_.erase(found);
}

void AllGather::enqueue(const TurnPointer& turn) {
  const auto found = turns_.find(turn->ranks);
  if (found == turns_.end() ? turns_.size() >= kMostSets : found->second.size() >= kMostTurns) {
    fail(Status::kOverloaded,
         "{}: {} of them wait, or others of {} sets of ranks, and no more may: wait for earlier ones "
         "first",
         describe(turn->ranks), kMostTurns, kMostSets);
  }
  std::deque<TurnPointer>& queue = turns_[turn->ranks];
  queue.push_back(turn);
  if (queue.size() == 1) {
    send(turn);
  } else if (turn->deadline != kNever) {
    turn->timer = shared_.loop.start_timer(turn->deadline, [this, turn] { on_due(turn); });
  }
}

void AllGather::send(const TurnPointer& turn) {
  turn->is_under_way = true;
  turn->number = static_cast<int64_t>(shared_.random.next() >> 1);
  GatherRequest request{turn->ranks, kForever, turn->number, std::move(turn->value), turn->failure};
  if (turn->deadline != kNever) {
    request.time_left = std::max<Nanos>(0, turn->deadline - shared_.loop.now());
  }
  if (turn->deadline != kNever) {
    const Nanos latest = deadline_after(turn->deadline, kPatience);
    turn->timer = shared_.loop.start_timer(latest, [this, turn] { on_late(*turn); });
  }
  std::shared_ptr<Future<Value>> answer;
  try {
    check_serving();
    for (const int32_t rank : turn->ranks) shared_.check_rank_present(rank);
    // The callee answers at the deadline. Until then the values may still come.
    const Peer first = shared_.membership.find_by_rank(turn->ranks.front())->peer;
    answer = shared_.service->ask(first, kFunction, std::move(request).encode());
  } catch (...) {
    answer = Future<Value>::make();
    answer->fail(current_error());
  }
  turn->call = answer;
  answer->on_done([weak = weak_from_this(), turn, raw = answer.get()] {
    if (const auto self = weak.lock()) self->on_answer(turn, *raw);
  });
}

bool AllGather::expects(const Ranks& ranks, int64_t turn) const {
  assert_on_loop(shared_.loop);
  const auto found = turns_.find(ranks);
  return found != turns_.end() && !found->second.empty() && found->second.front()->number == turn;
}

void AllGather::take(const Ranks& ranks, const Value& values) {
  assert_on_loop(shared_.loop);
  const TurnPointer turn = turns_.at(ranks).front();
  if (turn->has_values) return;
  const Value::List& given = values.as_list();
  Value::List ordered;
  for (const int32_t rank : turn->order) {
    const auto place = std::lower_bound(turn->ranks.begin(), turn->ranks.end(), rank) - turn->ranks.begin();
    ordered.push_back(given[static_cast<size_t>(place)]);
  }
  Value result = Value::list(std::move(ordered));
  turn->has_values = true;
  cancel_timer(*turn);
  turn->future->complete(std::move(result));
}

void AllGather::on_answer(const TurnPointer& turn, const Future<Value>& answer) {
  cancel_timer(*turn);
  try {
    answer.value();
    if (!turn->has_values) fail(Status::kProtocol, "the round is over, and its values have not come");
  } catch (...) {
    Error error = current_error();
    const bool is_unsent = is_of_value(error) && !turn->failure;
    if (is_unsent && !turn->future->is_done()) {
      turn->failure = std::move(error);
      turn->value = Value();
      return try_to_send(turn);
    }
    EachStep each;  // without memory for the context it still fails
    each([&error, &turn] { add_own_reason(*turn, error); });
    each([&error, &turn] {
      const bool is_late = error.status() == Status::kDeadline;
      error.add_context(describe(turn->ranks) + (is_late ? " after " + describe_time(turn->timeout) : ""));
    });
    each([&error, &turn] { turn->future->fail(std::move(error)); });  // has no effect if the values have come
  }
  send_next_soon(turn);
}

// A turn may fail before its own failure has reached all members, for instance since others do not come. Its error then
// has both reasons.
void AllGather::add_own_reason(const Turn& turn, Error& error) {
  if (!turn.failure) return;
  const std::string reason = wire::mend_text(turn.failure->message(), kMostOfReason);
  if (error.message().find(reason) != std::string::npos) return;  // the answer of the round
  error.add_context(fmt::format("the value of this worker cannot be sent ({}); besides", reason));
}

// Posts a task, as the code that ended the turn may be in the middle of its work.
void AllGather::send_next_soon(const TurnPointer& turn) {
  shared_.loop.post_or_drop(turn->next, [weak = weak_from_this(), turn] {
    if (const auto self = weak.lock()) self->send_next(*turn);
  });
}

void AllGather::send_next(const Turn& turn) {
  remove(turn);
  const auto found = turns_.find(turn.ranks);
  if (found == turns_.end() || found->second.front()->is_under_way) return;
  const TurnPointer next = found->second.front();
  cancel_timer(*next);
  try_to_send(next);
}

void AllGather::try_to_send(const TurnPointer& turn) {
  try {
    send(turn);
  } catch (...) {
    give_up(turn, current_error());
  }
}

// Whether the turn waits only for an answer: all turns before it have completed for their callers.
bool AllGather::is_next(const Turn& turn) const {
  const std::deque<TurnPointer>& queue = turns_.at(turn.ranks);
  return queue.size() > 1 && queue[1].get() == &turn && queue[0]->future->is_done();
}

bool AllGather::try_to_go_on(const TurnPointer& turn) {
  const Nanos latest = deadline_after(turn->deadline, kPatience);
  if (shared_.loop.now() >= latest) return false;
  try {
    turn->timer = shared_.loop.start_timer(latest, [this, turn] { on_due(turn); });
    return true;
  } catch (...) {
    return false;  // without memory it ends at its deadline
  }
}

void AllGather::on_due(const TurnPointer& turn) {
  assert_on_loop(shared_.loop);
  turn->timer = 0;
  if (is_next(*turn) && try_to_go_on(turn)) return;
  std::erase(turns_.at(turn->ranks), turn);
  Error error(Status::kDeadline,
              fmt::format("after {} an earlier one of these ranks is not complete", describe_time(turn->timeout)));
  add_own_reason(*turn, error);
  turn->future->fail(std::move(error.add_context(describe(turn->ranks))));
}

// The member that should answer does not, though it lives. No caller waits for the values, but the turn is not over.
void AllGather::on_late(Turn& turn) {
  assert_on_loop(shared_.loop);
  turn.timer = 0;
  const int32_t first = turn.ranks.front();
  Error error(Status::kDeadline, fmt::format("after {} there is no answer of rank {}{}", describe_time(turn.timeout),
                                             first, shared_.lack_text_of_rank(first)));
  error.set_origin_rank(first);
  add_own_reason(turn, error);
  turn.future->fail(std::move(error.add_context(describe(turn.ranks))));
}

// A waiting turn leaves the queue. The turn under way withdraws its call, which ends the turn.
void AllGather::on_cancelled(const TurnPointer& turn) {
  cancel_timer(*turn);
  if (turn->call != nullptr) return turn->call->cancel();
  remove(*turn);
}

void AllGather::cancel_timer(Turn& turn) {
  if (turn.timer != 0) shared_.loop.cancel_timer(std::exchange(turn.timer, 0));
}

void AllGather::stop() {
  assert_on_loop(shared_.loop);
  for (auto& [ranks, queue] : std::exchange(turns_, {})) {
    for (const TurnPointer& turn : queue) {
      cancel_timer(*turn);
      fail_dropped(*turn->future);
    }
  }
}

}  // namespace distag
