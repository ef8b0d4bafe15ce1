#include "coll/mesh_lines.h"

#include "coll/mesh_state.h"
#include "coll/open_collective.h"

namespace distag {

LineState* MeshLines::find(const std::string& name) {
  const auto found = lines_.find(name);
  return found == lines_.end() ? nullptr : &found->second;
}

const LineState* MeshLines::find(const std::string& name) const {
  const auto found = lines_.find(name);
  return found == lines_.end() ? nullptr : &found->second;
}

bool MeshLines::keep_early(LineState& line, int64_t from, const wire::Part& part) {
  const bool is_new = line.early.emplace(LineState::EarlyKey{part.number, part.part, from}, part).second;
  if (is_new) early_bytes_ += held_by(part);
  return is_new;
}

std::vector<std::pair<int64_t, wire::Part>> MeshLines::take_early(LineState& line, uint64_t number, uint32_t part) {
  std::vector<std::pair<int64_t, wire::Part>> kept;
  auto found = line.early.lower_bound({number, part, 0});
  while (found != line.early.end() && found->first.number == number && found->first.part == part) {
    early_bytes_ -= held_by(found->second);
    kept.emplace_back(found->first.from, std::move(found->second));
    found = line.early.erase(found);
  }
  return kept;
}

void MeshLines::drop_early(LineState& line, uint64_t number) {
  const auto last = line.early.lower_bound({number + 1, 0, 0});
  for (auto early = line.early.lower_bound({number, 0, 0}); early != last; early = line.early.erase(early)) {
    early_bytes_ -= held_by(early->second);
  }
}

void MeshLines::drop_early(LineState& line) {
  for (const auto& [key, part] : line.early) early_bytes_ -= held_by(part);
  line.early.clear();
}

MeshLines::Map::node_type MeshLines::close(End& end) noexcept {
  constexpr size_t kRemembered = 1024;
  auto line = lines_.extract(*end.names.begin());
  closed_.merge(end.names);
  last_closed_.splice(last_closed_.end(), end.order);
  end.names.clear();
  if (last_closed_.size() > kRemembered) {
    closed_.erase(last_closed_.front());
    last_closed_.pop_front();
  }
  if (!line.empty()) drop_early(line.mapped());
  return line;
}

}  // namespace distag
