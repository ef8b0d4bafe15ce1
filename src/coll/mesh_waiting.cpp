// Calls that wait: where the members are that they wait for, and for how long.

#include "coll/mesh_waiting.h"

#include <algorithm>
#include <utility>

#include "coll/mesh.h"
#include "group/shared.h"

namespace distag {

// The timer runs until the missing members are asked again where they are, or until the deadline.
void MeshWaiting::start_timer(const std::shared_ptr<OpenCollective>& call) {
  assert_on_loop(place_.environment.loop);
  constexpr Nanos kAskAfter = kSecond;
  const Nanos half = call->deadline == kNever ? kAskAfter : (call->deadline - call->begun) / 2;
  const Nanos patience = std::max(std::min(kAskAfter, half), kMillisecond);
  const Nanos when = std::min(place_.environment.loop.now() + patience, call->deadline);
  call->timer = place_.environment.loop.start_timer(when, [this, call] { on_timer(call); });
}

// Without memory to wait on, or for the names of the missing members, the call ends as if it had failed here alone.
void MeshWaiting::on_timer(const std::shared_ptr<OpenCollective>& call) {
  assert_on_loop(place_.environment.loop);
  call->timer = 0;
  if (call->is_over) return;
  try {
    if (place_.environment.loop.now() < call->deadline) {
      start_timer(call);
      const bool is_oldest = &lines_.of(call->line).oldest() == call.get();
      is_oldest ? ask_where(*call) : ask_unheard(*call);  // the oldest one asks again and again, for all
    } else {
      end_.end_now(deadline_error(*call), true);
    }
  } catch (const std::bad_alloc&) {
    end_.end_alone(current_error(), call->line);
  }
}

Error MeshWaiting::deadline_error(const OpenCollective& call) const {
  const Missing members = describe_awaited(call);
  Error error(Status::kDeadline, fmt::format("{}: after {} call {}, {}, waits for {}", place_.where(call.line),
                                             describe_time(call.timeout), call.number, call.text,
                                             members.text.empty() ? "its own work" : members.text));
  return error.set_origin_rank(members.rank);
}

// The missing members, then those that keep them waiting, then the resource that a missing member lacks.
MeshWaiting::Missing MeshWaiting::describe_awaited(const OpenCollective& call) const {
  Missing members;
  const size_t count = call.missing().size();
  const std::vector<int64_t> chain = awaited(call);
  for (size_t i = 0; i < chain.size(); ++i) {
    const char* const separator = i == 0 ? "" : i < count ? ", " : "; ";
    members.text += separator + place_.describe_member(chain[i]) + whereabouts_of(chain[i], call);
  }
  std::string lack;  // from the first that has one
  for (size_t i = 0; i < count && lack.empty(); ++i) {
    lack = place_.environment.group.shared()->lack_text(place_.peer(chain[i]).incarnation);
  }
  members.text += lack;
  if (const auto absent = find_absent(chain, call)) members.rank = place_.rank_of(*absent);
  return members;
}

// The first of those that keep the call waiting and are not known to wait themselves. Members that have heard the same
// find the same one.
std::optional<int64_t> MeshWaiting::find_absent(std::vector<int64_t> members, const OpenCollective& call) const {
  std::sort(members.begin(), members.end());
  for (const int64_t position : members) {
    const LineState::Whereabouts* told = report_of(position, call);
    if (told == nullptr || !told->here.in_call || told->here.waits_for.empty()) return position;
  }
  if (members.empty()) return std::nullopt;
  return members.front();
}

// The latest report of the member; nullptr without one, or if it was about earlier calls, since which it may have come.
const LineState::Whereabouts* MeshWaiting::report_of(int64_t position, const OpenCollective& call) const {
  const LineState& state = lines_.at(call.line);
  const auto found = state.where.find(position);
  return found == state.where.end() || found->second.heard < call.begun ? nullptr : &found->second;
}

namespace {

std::string rounded(Nanos age) {
  if (age >= kSecond) return fmt::format("{} s", (age + kSecond / 2) / kSecond);
  return fmt::format("{} ms", age / kMillisecond);
}

}  // namespace

void MeshWaiting::send_where(int64_t to, const std::string& line, const wire::CallHash& last) const {
  place_.send(to, wire::Where{place_.id, line, last, place_.proposed[static_cast<size_t>(to)]});
}

void MeshWaiting::ask_where(const OpenCollective& call) {
  try {
    LineState& state = lines_.at(call.line);
    const std::vector<int64_t> members = awaited(call);
    std::vector<std::string> asked = {call.line};
    if (state.is_own()) asked.push_back(state.made_on);
    for (const std::string& name : asked) {
      const Line& line = lines_.of(name).line;
      for (const int64_t position : members) send_where(position, name, {line.last(), line.hash()});
    }
    for (const int64_t position : members) state.where[position].asked = place_.environment.loop.now();
  } catch (const std::bad_alloc&) {
    // Without memory the message of the deadline says less.
  }
}

// Asks the members that have reported nothing since the call began: the next time to ask all may come after its
// deadline.
void MeshWaiting::ask_unheard(const OpenCollective& call) {
  try {
    LineState& state = lines_.at(call.line);
    for (const int64_t position : awaited(call)) {
      LineState::Whereabouts& whereabouts = state.where[position];
      if (whereabouts.asked >= call.begun || whereabouts.heard >= call.begun) continue;
      whereabouts.asked = place_.environment.loop.now();
      send_where(position, call.line, {state.line.last(), state.line.hash()});
    }
  } catch (const std::bad_alloc&) {
    // Without memory it says less, too.
  }
}

// The members that a call waits for, which come first, may have reported which others they wait for, and so on. One of
// these others may be the member that does not come.
std::vector<int64_t> MeshWaiting::awaited(const OpenCollective& call) const {
  std::vector<int64_t> chain = call.missing();
  for (size_t i = 0; i < chain.size(); ++i) {
    const LineState::Whereabouts* told = report_of(chain[i], call);
    if (told == nullptr || !told->here.in_call) continue;
    for (const int32_t rank : told->here.waits_for) {
      const std::optional<int64_t> position = place_.shape.position_of(rank);
      const bool is_new =
          position && *position != place_.position && std::count(chain.begin(), chain.end(), *position) == 0;
      if (is_new) chain.push_back(*position);
    }
  }
  return chain;
}

// ", which is at call 39, all_reduce(...), since 58 s": what the member has reported.
std::string MeshWaiting::whereabouts_of(int64_t position, const OpenCollective& call) const {
  const LineState::Whereabouts* told = report_of(position, call);
  if (told == nullptr) return "";
  const wire::Here& here = told->here;
  if (here.number == 0) {
    if (!here.is_open) return fmt::format(", which has never opened line \"{}\"", call.line);
    return ", which is not in any call, and has made none";
  }
  const Nanos age = here.age + (place_.environment.loop.now() - told->heard);
  if (!here.in_call) {
    return fmt::format(", which is not in any call since it made call {}, {}, {} ago", here.number, here.text,
                       rounded(age));
  }
  std::string text = fmt::format(", which is at call {}, {}, since {}", here.number, here.text, rounded(age));
  for (size_t i = 0; i < here.waits_for.size(); ++i) {
    text += fmt::format("{} {}", i == 0 ? ", and waits for rank" : ",", here.waits_for[i]);
  }
  return text;
}

void MeshWaiting::ask_missing(const std::string& line) {
  assert_on_loop(place_.environment.loop);
  const LineState* state = lines_.find(line);
  if (state != nullptr && !state->open.empty()) ask_where(state->oldest());
}

MeshWaiting::Missing MeshWaiting::missing(const std::string& line) const {
  assert_on_loop(place_.environment.loop);
  const LineState* state = std::as_const(lines_).find(line);
  return state == nullptr || state->open.empty() ? Missing() : describe_awaited(state->oldest());
}

Heard MeshWaiting::on_where(int64_t from, const wire::Where& where) {
  assert_on_loop(place_.environment.loop);
  constexpr size_t kMostWaitedFor = 4;
  if (end_.ended()) return Heard::kStale;
  if (matching_.tell_if_diverged(from, where.line, where.last)) return Heard::kHandled;
  wire::Here here;
  here.mesh = place_.id;
  here.line = where.line;
  here.is_open = where.line.empty();
  if (const LineState* found = lines_.find(where.line)) {
    const LineState& state = *found;
    here.is_open = here.is_open || state.is_open || state.line.last() > 0;
    here.number = state.line.last();
    here.last = {state.line.last(), state.line.hash()};
    if (!state.line.calls().empty()) here.text = state.line.calls().back().text;
    here.age = place_.environment.loop.now() - state.last_begun;
    here.in_call = !state.open.empty();
    if (here.in_call) {
      const OpenCollective& oldest = state.oldest();
      here.number = oldest.number;
      here.text = oldest.text;
      here.age = place_.environment.loop.now() - oldest.begun;
      for (const int64_t position : oldest.missing()) {
        if (here.waits_for.size() == kMostWaitedFor) break;
        here.waits_for.push_back(place_.rank_of(position));
      }
    } else if (!state.doing.empty()) {
      here.in_call = true;
      here.number = state.line.last() + 1;
      here.text = state.doing;
    }
  }
  place_.send(from, std::move(here));
  return Heard::kHandled;
}

Heard MeshWaiting::on_here(int64_t from, const wire::Here& here) {
  assert_on_loop(place_.environment.loop);
  LineState* found = lines_.find(here.line);
  if (end_.ended() || found == nullptr) return Heard::kStale;
  if (matching_.tell_if_diverged(from, here.line, here.last)) return Heard::kHandled;
  LineState& state = *found;
  LineState::Whereabouts& whereabouts = state.where[from];
  whereabouts.here = here;
  whereabouts.heard = place_.environment.loop.now();
  if (!state.open.empty()) ask_unheard(state.oldest());
  return Heard::kHandled;
}

void MeshWaiting::describe(std::vector<WaitingCollective>& waiting, size_t most) const {
  assert_on_loop(place_.environment.loop);
  for (const auto& [name, line] : std::as_const(lines_).all()) {
    for (const auto& [number, call] : line.open) {
      if (waiting.size() >= most) return;
      WaitingCollective described{
          place_.shape.name(), name, call->text, place_.environment.loop.now() - call->begun, {}};
      for (const int64_t position : call->missing()) described.waits_for.push_back(place_.rank_of(position));
      waiting.push_back(std::move(described));
    }
  }
}

}  // namespace distag
