// Calls that wait: where the members are for which they wait, and how long they do.

#include "coll/mesh.h"

#include <algorithm>

namespace distag {

// Until the missing members are asked where they are, again and again, or the deadline.
void Mesh::start_timer(const OpenPointer& call) {
  constexpr Nanos kAskAfter = kSecond;
  const Nanos patience = call->timeout < 0 ? kAskAfter : std::max(std::min(kAskAfter, call->timeout / 2), kMillisecond);
  const Nanos when = std::min(environment_.loop.now() + patience, call->deadline);
  call->timer = environment_.loop.start_timer(when, [this, call] { on_timer(call); });
}

// Without memory to wait on, or for the names of the missing, the call ends as one that fails here alone.
void Mesh::on_timer(const OpenPointer& call) {
  assert_on_loop(environment_.loop);
  call->timer = 0;
  if (call->is_over) return;
  try {
    if (environment_.loop.now() < call->deadline) {
      start_timer(call);
      if (lines_[call->line].open.begin()->second == call) ask_where(*call);  // the oldest one, for all
    } else {
      end_now(deadline_error(*call), true);
    }
  } catch (const std::bad_alloc&) {
    end_alone(current_error(), call->line);
  }
}

Error Mesh::deadline_error(const Open& call) const {
  std::string members;
  for (const int64_t position : call.missing()) {
    members += (members.empty() ? "" : ", ") + describe_member(position) + whereabouts_of(position, call.line);
  }
  for (const int64_t position : behind(call)) {
    members += "; " + describe_member(position) + whereabouts_of(position, call.line);
  }
  return Error(Status::kDeadline,
               fmt::format("{}: after {} call {}, {}, waits for {}", where(call.line), describe_time(call.timeout),
                           call.number, call.text, members.empty() ? "its own work" : members));
}

namespace {

std::string rounded(Nanos age) {
  if (age >= kSecond) return fmt::format("{} s", (age + kSecond / 2) / kSecond);
  return fmt::format("{} ms", age / kMillisecond);
}

}  // namespace

void Mesh::ask_where(const Open& call) {
  try {
    const Line& line = lines_.at(call.line).line;
    const wire::CallHash last{line.last(), line.hash()};
    for (const int64_t position : call.missing()) send(position, wire::Where{id_, call.line, last});
    for (const int64_t position : behind(call)) send(position, wire::Where{id_, call.line, last});
  } catch (const std::bad_alloc&) {
    // Without memory the message of the deadline says less.
  }
}

// Those of them who have told nothing since the call began: the next time to ask all may be after the deadline.
void Mesh::ask_behind(const Open& call) {
  try {
    LineState& state = lines_.at(call.line);
    for (const int64_t position : behind(call)) {
      Whereabouts& whereabouts = state.where[position];
      if (whereabouts.asked >= call.begun || whereabouts.heard >= call.begun) continue;
      whereabouts.asked = environment_.loop.now();
      send(position, wire::Where{id_, call.line, {state.line.last(), state.line.hash()}});
    }
  } catch (const std::bad_alloc&) {
    // The same.
  }
}

// A call waits for members. Those may have told which others they wait for, and these again: gives all such others, of
// which one may be the member that does not come.
std::vector<int64_t> Mesh::behind(const Open& call) const {
  const LineState& state = lines_.at(call.line);
  std::vector<int64_t> chain = call.missing();
  const size_t first = chain.size();
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto told = state.where.find(chain[i]);
    if (told == state.where.end() || !told->second.here.in_call) continue;
    for (const int32_t rank : told->second.here.waits_for) {
      const std::optional<int64_t> position = shape_.position_of(rank);
      const bool is_new = position && *position != position_ && std::count(chain.begin(), chain.end(), *position) == 0;
      if (is_new) chain.push_back(*position);
    }
  }
  return {chain.begin() + static_cast<std::ptrdiff_t>(first), chain.end()};
}

// ", which is at call 39, all_reduce(...), since 58 s": what the member has told.
std::string Mesh::whereabouts_of(int64_t position, const std::string& line) const {
  const LineState& state = lines_.at(line);
  const auto found = state.where.find(position);
  if (found == state.where.end() || found->second.heard == kNotYet) return "";
  const wire::Here& here = found->second.here;
  if (here.number == 0) {
    if (!here.is_open) return fmt::format(", which has never opened line \"{}\"", line);
    return ", which is not in any call, and has made none";
  }
  const Nanos age = here.age + (environment_.loop.now() - found->second.heard);
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

void Mesh::ask_missing(const std::string& line) {
  assert_on_loop(environment_.loop);
  const auto found = lines_.find(line);
  if (found != lines_.end() && !found->second.open.empty()) ask_where(*found->second.open.begin()->second);
}

std::string Mesh::describe_missing(const std::string& line) const {
  assert_on_loop(environment_.loop);
  std::string members;
  const auto found = lines_.find(line);
  if (found == lines_.end() || found->second.open.empty()) return members;
  for (const int64_t position : found->second.open.begin()->second->missing()) {
    members += (members.empty() ? "" : ", ") + describe_member(position) + whereabouts_of(position, line);
  }
  return members;
}

Heard Mesh::on_where(int64_t from, const wire::Where& where) {
  assert_on_loop(environment_.loop);
  constexpr size_t kMostWaitedFor = 4;
  if (ended_) return Heard::kStale;
  if (tell_if_diverged(from, where.line, where.last)) return Heard::kHandled;
  wire::Here here;
  here.mesh = id_;
  here.line = where.line;
  here.is_open = where.line.empty();
  if (const auto found = lines_.find(where.line); found != lines_.end()) {
    const LineState& state = found->second;
    here.is_open = here.is_open || state.is_open || state.line.last() > 0;
    here.number = state.line.last();
    here.last = {state.line.last(), state.line.hash()};
    if (!state.line.calls().empty()) here.text = state.line.calls().back().text;
    here.age = environment_.loop.now() - state.last_begun;
    here.in_call = !state.open.empty();
    if (here.in_call) {
      const Open& oldest = *state.open.begin()->second;
      here.number = oldest.number;
      here.text = oldest.text;
      here.age = environment_.loop.now() - oldest.begun;
      for (const int64_t position : oldest.missing()) {
        if (here.waits_for.size() == kMostWaitedFor) break;
        here.waits_for.push_back(shape_.ranks()[static_cast<size_t>(position)]);
      }
    } else if (!state.doing.empty()) {
      here.in_call = true;
      here.number = state.line.last() + 1;
      here.text = state.doing;
    }
  }
  send(from, std::move(here));
  return Heard::kHandled;
}

Heard Mesh::on_here(int64_t from, const wire::Here& here) {
  assert_on_loop(environment_.loop);
  const auto found = lines_.find(here.line);
  if (ended_ || found == lines_.end()) return Heard::kStale;
  if (tell_if_diverged(from, here.line, here.last)) return Heard::kHandled;
  LineState& state = found->second;
  Whereabouts& whereabouts = state.where[from];
  whereabouts.here = here;
  whereabouts.heard = environment_.loop.now();
  if (!state.open.empty()) ask_behind(*state.open.begin()->second);
  return Heard::kHandled;
}

}  // namespace distag
