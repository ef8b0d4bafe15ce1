#include "coll/mesh_place.h"

namespace distag {

std::optional<int64_t> MeshPlace::position_of(Incarnation incarnation) const {
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] != nullptr && members[i]->incarnation == incarnation) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

std::vector<Incarnation> MeshPlace::other_members() const {
  std::vector<Incarnation> others;
  for (size_t i = 0; i < members.size(); ++i) {
    if (static_cast<int64_t>(i) != position) others.push_back(members[i]->incarnation);
  }
  return others;
}

std::string MeshPlace::where(const std::string& line) const {
  return line.empty() ? fmt::format("mesh \"{}\"", shape.name())
                      : fmt::format("mesh \"{}\", line \"{}\"", shape.name(), line);
}

}  // namespace distag
