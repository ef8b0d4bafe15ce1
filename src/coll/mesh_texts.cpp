// The words of a mesh about itself, for reports and messages.

#include "coll/mesh.h"

namespace distag {

MeshSnapshot Mesh::snapshot() const {
  MeshSnapshot snapshot;
  snapshot.ended = ended_;
  snapshot.moves = moves_;
  for (const auto& [name, state] : lines_) {
    MeshSnapshot::Line line;
    line.name = name;
    line.last = state.line.last();
    if (!state.line.calls().empty()) line.text = state.line.calls().back().text;
    if (!state.doing.empty()) line.text = state.doing;
    line.known = state.known;
    for (const auto& [number, call] : state.open) {
      line.open.push_back({number, call->text, environment_.loop.now() - call->begun, call->missing()});
    }
    snapshot.lines.push_back(std::move(line));
  }
  return snapshot;
}

void Mesh::describe_waiting(std::vector<WaitingCollective>& waiting, size_t most) const {
  assert_on_loop(environment_.loop);
  for (const auto& [name, state] : lines_) {
    for (const auto& [number, call] : state.open) {
      if (waiting.size() >= most) return;
      WaitingCollective described{shape_.name(), name, call->text, environment_.loop.now() - call->begun, {}};
      for (const int64_t position : call->missing()) {
        described.waits_for.push_back(shape_.ranks()[static_cast<size_t>(position)]);
      }
      waiting.push_back(std::move(described));
    }
  }
}

std::string Mesh::describe_member(int64_t position) const {
  const auto& peer = members_[static_cast<size_t>(position)];
  return describe_peer(*peer);
}

std::string Mesh::where(const std::string& line) const {
  return line.empty() ? fmt::format("mesh \"{}\"", shape_.name())
                      : fmt::format("mesh \"{}\", line \"{}\"", shape_.name(), line);
}

}  // namespace distag
