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
    line.known = state.known;
    for (const auto& [number, call] : state.open) {
      line.open.push_back({number, call->text, environment_.loop.now() - call->begun, call->missing()});
    }
    snapshot.lines.push_back(std::move(line));
  }
  return snapshot;
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
