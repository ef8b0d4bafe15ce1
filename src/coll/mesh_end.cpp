#include "coll/mesh_end.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/fail_future.h"
#include "coll/mesh.h"

namespace distag {

void MeshEnd::end_now(Error error, bool tell) {
  assert_on_loop(place_.environment.loop);
  end(std::move(error), tell ? Word::kEnd : Word::kNone);
}

// Ends every wait, here and elsewhere, whatever fails on the way.
void MeshEnd::end(Error error, Word word) {
  if (ended_) return;
  word_ = word;
  if (error.origin_rank() < 0) error.set_origin_rank(place_.rank_of(place_.position));
  ended_ = std::move(error);
  stats_.open = 0;
  stats_.bytes_held = 0;
  for (auto& [name, line] : lines_.all()) {
    for (auto& [number, call] : line.open) call->give_up(*ended_);
  }
  EachStep each;
  each([this] { fail_or_say_less(*when_ended_, *ended_); });
  for (auto& [name, line] : lines_.all()) {
    if (line.is_own()) each([&line = line, this] { fail_or_say_less(*line.ended, *ended_); });
    for (auto& [number, call] : line.open) each([&call = call, this] { fail_or_say_less(*call->future, *ended_); });
    line.open.clear();
    lines_.drop_early(line);
    if (line.waiting) {
      each([&waiting = *line.waiting, this] { fail_or_say_less(*waiting.future, *ended_); });
      line.waiting.reset();
    }
  }
  tell_end();
  each.check();
}

void MeshEnd::end_alone(Error error, const std::string& line) {
  assert_on_loop(place_.environment.loop);
  EachStep each;  // without memory the place is left out
  each([&] { error.add_context(place_.where(line)); });
  end_now(std::move(error), true);
}

void MeshEnd::end_behind(const Error& left) {
  assert_on_loop(place_.environment.loop);
  end(left, Word::kLeaveBehind);
}

void MeshEnd::stop() {
  assert_on_loop(place_.environment.loop);
  std::string text;
  EachStep each;  // without memory the mesh is not named
  each([&] { text = fmt::format("{}: the worker was shut down", place_.where("")); });
  end_now(Error(Status::kCancelled, text.empty() ? "shut down" : std::move(text)), false);
}

void MeshEnd::close_line(MeshLines::End& end, const Error& why) noexcept {
  assert_on_loop(place_.environment.loop);
  if (ended_ || end.names.empty()) return;
  const auto node = lines_.close(end);
  if (node.empty()) return;
  LineState& line = node.mapped();
  EachStep each;
  for (auto& [number, call] : line.open) {
    call->give_up(why);
    if (!line.is_own()) --stats_.open;
    stats_.bytes_held -= std::exchange(call->bytes_held, 0);
    each([&call = call, &why] { fail_or_say_less(*call->future, why); });
  }
  if (line.waiting) each([&] { fail_or_say_less(*line.waiting->future, why); });
  if (line.is_own()) each([&] { fail_or_say_less(*line.ended, why); });
  each([this] { leave_if_due(); });
}

// A part that is larger than a message goes in pieces, which a smaller message would overtake.
void MeshEnd::tell_end() {
  constexpr Nanos kAgain = 50 * kMillisecond;
  if (word_ == Word::kNone) return;
  try {
    for (int64_t to = 0; to < place_.shape.count(); ++to) {
      const auto parts = parts_on_their_way_.find(to);
      const bool waits_for_parts =
          word_ == Word::kLeaveBehind && parts != parts_on_their_way_.end() && parts->second != 0;
      if (to == place_.position || told_[static_cast<size_t>(to)] || waits_for_parts) continue;
      Error error = word_ == Word::kLeave ? left_error(place_.position) : *ended_;
      place_.send(to, wire::MeshEnd{place_.id, std::move(error), word_ != Word::kEnd});
      told_[static_cast<size_t>(to)] = true;
    }
  } catch (const std::bad_alloc&) {
    if (std::exchange(tells_again_, true)) return;
    Loop& loop = place_.environment.loop;
    loop.start_timer(again_, loop.now() + kAgain, [this, self = holder_.shared_from_this()] {
      tells_again_ = false;
      place_.gate->run([this, self] { tell_end(); });
    });
  }
}

bool MeshEnd::owes_word() const {
  assert_on_loop(place_.environment.loop);
  for (int64_t to = 0; to < place_.shape.count(); ++to) {
    if (to != place_.position && !told_[static_cast<size_t>(to)]) return ended_ && word_ != Word::kNone;
  }
  return false;
}

// ---- this member leaves ----

void MeshEnd::begin_leaving() {
  assert_on_loop(place_.environment.loop);
  if (ended_ || std::exchange(is_leaving_, true)) return;
  leave_if_due();
}

bool MeshEnd::has_parts_on_their_way() const {
  return std::any_of(parts_on_their_way_.begin(), parts_on_their_way_.end(),
                     [this](const auto& entry) { return entry.second != 0 && !left_.contains(entry.first); });
}

void MeshEnd::leave_if_due() {
  assert_on_loop(place_.environment.loop);
  if (ended_) return tell_end();
  if (!is_leaving_ || !is_idle() || has_parts_on_their_way()) return;
  Error error(Status::kInvalidState, "mesh released");
  try {
    error = Error(Status::kInvalidState, fmt::format("{}: this worker has released it", place_.where("")));
  } catch (const std::bad_alloc&) {
    // The short text stays.
  }
  end(std::move(error), Word::kLeave);
}

void MeshEnd::send_part(int64_t to, wire::Part part) {
  assert_on_loop(place_.environment.loop);
  size_t& on_their_way = parts_on_their_way_[to];
  place_.environment.group.send(place_.peer(to), std::move(part), [this, weak = holder_.weak_from_this(), to] {
    const auto mesh = weak.lock();
    if (mesh == nullptr) return;
    --parts_on_their_way_[to];
    leave_if_due();
  });
  ++on_their_way;
}

// ---- others leave ----

Heard MeshEnd::on_end(int64_t from, const wire::MeshEnd& end) {
  assert_on_loop(place_.environment.loop);
  if (ended_) return Heard::kStale;
  if (end.left) {
    // All parts of its calls have come before, unless its mesh ended because of another member (the error names that
    // one), or it never had the mesh (the error lacks the mesh's name).
    const bool has_none = end.error.origin_rank() == place_.rank_of(from);
    Error why = end.error;
    if (has_none) why.add_context(place_.where(""));
    note_left(from, end.error.origin_rank() < 0, std::move(why));
  } else {
    end_now(end.error, false);
  }
  return Heard::kHandled;
}

void MeshEnd::on_lost(int64_t from, const Error& error) {
  assert_on_loop(place_.environment.loop);
  told_[static_cast<size_t>(from)] = true;
  const std::string member = place_.describe_member(from);
  const bool names_it = error.message().starts_with(member);
  Error lost(error.status(),
             fmt::format("{}: {}{}", place_.where(""), names_it ? "" : member + " is lost: ", error.message()));
  end_now(lost.set_origin_rank(place_.rank_of(from)), true);
}

void MeshEnd::on_left(int64_t from) {
  assert_on_loop(place_.environment.loop);
  told_[static_cast<size_t>(from)] = true;  // its worker has left the group, and hears nothing any more
  note_left(from, false, left_error(from));
}

Error MeshEnd::left_error(int64_t member) const {
  return {Status::kDisconnected, fmt::format("{}: {} has left it", place_.where(""), place_.describe_member(member))};
}

// A line of the library's own ends with the last call of the member, which has come, before any call that the member
// never made; unless it made none.
bool MeshEnd::outlasts(const std::string& line, int64_t member) const {
  const LineState* state = lines_.find(line);
  return state != nullptr && state->is_own() && released_.contains(member) && state->known.contains(member);
}

const Error* MeshEnd::left(int64_t member, const std::string& line) const {
  assert_on_loop(place_.environment.loop);
  const auto found = left_.find(member);
  return found == left_.end() || outlasts(line, member) ? nullptr : &found->second;
}

void MeshEnd::note_left(int64_t from, bool has_released, Error why) {
  if (ended_ || left_.contains(from)) return;
  if (why.origin_rank() < 0) why.set_origin_rank(place_.rank_of(from));
  const Error& error = left_.emplace(from, std::move(why)).first->second;
  if (has_released) released_.insert(from);
  for (const auto& [name, line] : lines_.all()) {
    if (outlasts(name, from)) continue;
    for (const auto& [number, call] : line.open) {
      const std::vector<int64_t> missing = call->missing();
      if (std::find(missing.begin(), missing.end(), from) == missing.end()) continue;
      end_behind(error);
      return;
    }
  }
  leave_if_due();
}

}  // namespace distag
