// The lines of a mesh, and members that make no more calls on them.

#include "base/each_step.h"
#include "base/fail_future.h"
#include "coll/mesh.h"

namespace distag {

void Mesh::open_line(const std::string& line) {
  gate_->run([self = shared_from_this(), line] {
    if (!self->ended_) self->lines_[line].is_open = true;
  });
}

void Mesh::open_own_line(const std::string& line, std::shared_ptr<Future<Unit>> ended) {
  assert_on_loop(environment_.loop);
  if (ended_) {
    ended->fail(*ended_);
    return;
  }
  LineState& state = lines_[line];
  state.is_open = true;
  state.ended = std::move(ended);
}

void Mesh::set_doing(const std::string& line, std::string text) {
  assert_on_loop(environment_.loop);
  const auto found = lines_.find(line);
  if (found == lines_.end() || found->second.doing == text) return;
  found->second.doing = std::move(text);
  found->second.last_begun = environment_.loop.now();
}

void Mesh::close_line(LineEnd& end, const Error& why) noexcept {
  assert_on_loop(environment_.loop);
  constexpr size_t kRemembered = 1024;
  if (ended_ || end.names.empty()) return;
  const auto node = lines_.extract(*end.names.begin());
  closed_lines_.merge(end.names);
  last_closed_.splice(last_closed_.end(), end.order);
  end.names.clear();
  if (last_closed_.size() > kRemembered) {
    closed_lines_.erase(last_closed_.front());
    last_closed_.pop_front();
  }
  if (node.empty()) return;
  LineState& state = node.mapped();
  for (const auto& [key, part] : state.early) early_bytes_ -= held_by(part);
  EachStep each;
  for (auto& [number, call] : state.open) {
    give_up(*call, why);
    if (state.ended == nullptr) --stats_.open;
    stats_.bytes_held -= std::exchange(call->bytes_held, 0);
    each([&call = call, &why] { fail_or_say_less(*call->future, why); });
  }
  if (state.waiting) each([&] { fail_or_say_less(*state.waiting->future, why); });
  if (state.ended != nullptr) each([&] { fail_or_say_less(*state.ended, why); });
  each([this] { tell_left_if_due(); });
}

// ---- members that make no more calls ----

void Mesh::on_left(int64_t from) {
  assert_on_loop(environment_.loop);
  note_left(from, false);
}

// All parts of its calls have come before.
void Mesh::on_released(int64_t from) {
  assert_on_loop(environment_.loop);
  note_left(from, true);
}

// A line of the library's own ends by the last call of the member, which has come, before calls that it never made.
bool Mesh::outlasts(const std::string& line, int64_t position) const {
  const auto found = lines_.find(line);
  return found != lines_.end() && found->second.ended != nullptr && released_.contains(position);
}

void Mesh::note_left(int64_t from, bool has_released) {
  if (ended_ || left_.contains(from)) return;
  Error error(Status::kDisconnected, fmt::format("{}: {} has left it", where(""), describe_member(from)));
  error.set_origin_rank(shape_.ranks()[static_cast<size_t>(from)]);
  left_.emplace(from, error);
  if (has_released) released_.insert(from);
  for (const auto& [name, state] : lines_) {
    if (outlasts(name, from)) continue;
    for (const auto& [number, call] : state.open) {
      const std::vector<int64_t> missing = call->missing();
      if (std::find(missing.begin(), missing.end(), from) == missing.end()) continue;
      end_now(error, false);
      return;
    }
  }
  tell_left_if_due();
}

}  // namespace distag
