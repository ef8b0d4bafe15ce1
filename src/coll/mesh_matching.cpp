#include "coll/mesh_matching.h"

#include <algorithm>
#include <utility>

#include "base/violation.h"
#include "coll/mesh.h"
#include "coll/move_boxes.h"

namespace distag {
namespace {

// No collective has as many steps, and no move as many rounds.
constexpr uint32_t kMostParts = 3 + 8 * kMostMovePieces;

}  // namespace

Heard MeshMatching::on_part(int64_t from, const wire::Part& part) {
  assert_on_loop(place_.environment.loop);
  if (end_.ended() || lines_.is_closed(part.line)) return Heard::kStale;
  if (part.part >= kMostParts) violation("part {} of a collective", part.part);
  LineState& state = lines_.of(part.line);
  uint64_t& known = state.known[from];
  known = std::max(known, part.number);
  const bool is_ahead = part.number > state.line.last();
  if (!is_ahead) {
    // The line remembers its last calls; a call under way may be older.
    const auto open = state.open.find(part.number);
    const Line::Made* made = state.line.find(part.number);
    const bool is_equal =
        open != state.open.end() ? open->second->hash == part.hash : made != nullptr && made->hash == part.hash;
    if (!is_equal) {
      tell_diverged(from, part.line);
      return Heard::kHandled;
    }
    if (open == state.open.end()) violation("a piece for call {}, {}, which has none to come", part.number, made->text);
    if (open->second->exchanges.contains(part.part)) {
      const std::shared_ptr<OpenCollective> call = open->second;  // held: take() may finish it
      call->take(part.part, from, part.pieces);
      return Heard::kHandled;
    }
  }
  if (!has_room_for_early(from, part, state)) return Heard::kRefused;
  const bool is_new = lines_.keep_early(state, from, part);
  if (!is_new) violation("a second piece for part {} of call {}", part.part, part.number);
  return Heard::kHandled;
}

// A member that waits for no other, as the root of broadcasts, may be ahead of this one. A part is always kept if it is
// the only one.
bool MeshMatching::has_room_for_early(int64_t from, const wire::Part& part, const LineState& line) {
  const uint64_t waiting = lines_.early_bytes();
  if (waiting == 0 || waiting + held_by(part) <= place_.environment.max_early) return true;
  end_.end_now(
      Error(Status::kOverloaded,
            fmt::format("{}: {} is at call {}, this member ({}) at call {}, and {} bytes of parts wait here: let the "
                        "others come up before that, as an all_reduce does",
                        place_.where(part.line), place_.describe_member(from), part.number,
                        place_.describe_member(place_.position), line.line.last(), waiting)),
      true);
  return false;
}

void MeshMatching::compare_early(const std::string& name, const LineState& line, uint64_t number) {
  assert_on_loop(place_.environment.loop);
  for (auto early = line.early.lower_bound({number, 0, 0}); early != line.early.end(); ++early) {
    if (early->first.number != number) return;
    if (early->second.hash == line.line.hash()) continue;
    tell_diverged(early->first.from, name);
    return;
  }
}

bool MeshMatching::tell_if_diverged(int64_t from, const std::string& line, const wire::CallHash& last) {
  assert_on_loop(place_.environment.loop);
  const LineState* state = lines_.find(line);
  const Line::Made* made = state == nullptr ? nullptr : state->line.find(last.number);
  if (made == nullptr || made->hash == last.hash) return false;
  tell_diverged(from, line);
  return true;
}

// Sends the calls here to the member whose calls differ, which tells all.
void MeshMatching::tell_diverged(int64_t to, const std::string& line) {
  wire::Calls calls{place_.id, line, {}};
  for (const Line::Made& made : lines_.of(line).line.calls()) calls.calls.push_back(made);
  place_.send(to, std::move(calls));
}

Heard MeshMatching::on_calls(int64_t from, const wire::Calls& calls) {
  assert_on_loop(place_.environment.loop);
  if (end_.ended() || lines_.is_closed(calls.line)) return Heard::kStale;
  Program own{place_.describe_member(place_.position), lines_.of(calls.line).line.calls()};
  Program other{place_.describe_member(from), {calls.calls.begin(), calls.calls.end()}};
  if (from < place_.position) std::swap(own, other);
  Error diverged(Status::kDiverged, fmt::format("{}: {}", place_.where(calls.line), describe_divergence(own, other)));
  diverged.set_origin_rank(place_.rank_of(std::min(from, place_.position)));  // whichever of both hears of it
  end_.end_now(std::move(diverged), true);
  return Heard::kHandled;
}

}  // namespace distag
