#pragma once

#include <cstdint>
#include <string>

#include "coll/mesh_end.h"
#include "coll/mesh_lines.h"
#include "coll/mesh_place.h"

namespace distag {

// Compares the calls of this member on each line with those of the others: by number, and by a hash over all calls so
// far. On the loop.
//
// A part goes to the call of its number only if the hashes are equal, however early or late it comes. If they differ,
// the other member is sent the calls of this one, and ends the mesh for all with DIVERGED.
class MeshMatching {
 public:
  MeshMatching(const MeshPlace& place, MeshLines& lines, MeshEnd& end) : place_(place), lines_(lines), end_(end) {}

  // Throw Violation.
  Heard on_part(int64_t from, const wire::Part& part);
  Heard on_calls(int64_t from, const wire::Calls& calls);
  // Compares the parts that came before that call was made here.
  void compare_early(const std::string& name, const LineState& line, uint64_t number);
  // Whether the last call of another member is a different call here; then that member is told.
  bool tell_if_diverged(int64_t from, const std::string& line, const wire::CallHash& last);

 private:
  bool has_room_for_early(int64_t from, const wire::Part& part, const LineState& line);
  void tell_diverged(int64_t to, const std::string& line);

  const MeshPlace& place_;
  MeshLines& lines_;
  MeshEnd& end_;
};

}  // namespace distag
