#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coll/mesh_end.h"
#include "coll/mesh_lines.h"
#include "coll/mesh_matching.h"
#include "coll/mesh_place.h"

namespace distag {

// Calls that wait for other members: for how long, and where those members are. On the loop.
//
// A call has a timer from start_timer() until it ends: again and again the oldest call of its line asks the missing
// members where they are, any other call those that have reported nothing since it began, and at its deadline the mesh
// ends with what they have reported. The latest report of each member counts, with the time at which it came, unless it
// is older than the call.
class MeshWaiting {
 public:
  MeshWaiting(const MeshPlace& place, MeshLines& lines, MeshEnd& end, MeshMatching& matching)
      : place_(place), lines_(lines), end_(end), matching_(matching) {}

  void start_timer(const std::shared_ptr<OpenCollective>& call);
  Heard on_where(int64_t from, const wire::Where& where);
  Heard on_here(int64_t from, const wire::Here& here);
  // The members for which a call waits, as its deadline names them: also those that keep the missing ones waiting.
  struct Missing {
    std::string text;   // with what they reported; empty: no call waits
    int32_t rank = -1;  // of the member in the text that is not known to wait itself; -1: none is known
  };
  // Ask the members for which the first open call waits where they are; and give what is known of them.
  void ask_missing(const std::string& line);
  Missing missing(const std::string& line) const;
  // Adds the oldest calls under way until there are that many.
  void describe(std::vector<WaitingCollective>& waiting, size_t most) const;

 private:
  void on_timer(const std::shared_ptr<OpenCollective>& call);
  Error deadline_error(const OpenCollective& call) const;
  Missing describe_awaited(const OpenCollective& call) const;
  std::optional<int64_t> find_absent(std::vector<int64_t> members, const OpenCollective& call) const;
  void send_where(int64_t to, const std::string& line, const wire::CallHash& last) const;
  void ask_where(const OpenCollective& call);
  void ask_unheard(const OpenCollective& call);
  const LineState::Whereabouts* report_of(int64_t position, const OpenCollective& call) const;
  std::vector<int64_t> awaited(const OpenCollective& call) const;
  std::string whereabouts_of(int64_t position, const OpenCollective& call) const;

  const MeshPlace& place_;
  MeshLines& lines_;
  MeshEnd& end_;
  MeshMatching& matching_;
};

}  // namespace distag
