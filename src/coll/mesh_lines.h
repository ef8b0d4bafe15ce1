#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/future.h"
#include "coll/collective_call.h"
#include "coll/line.h"
#include "wire/message.h"

namespace distag {

struct OpenCollective;

// A line of a mesh on this member.
struct LineState {
  struct EarlyKey {
    uint64_t number;
    uint32_t part;
    int64_t from;
    auto operator<=>(const EarlyKey&) const = default;
  };
  static constexpr Nanos kNotYet = INT64_MIN;
  // The latest report of another member on its own calls on the line.
  struct Whereabouts {
    wire::Here here;
    Nanos heard = kNotYet;
    Nanos asked = kNotYet;  // when it was last asked
  };
  struct Waiting {
    CollectiveCall call;
    std::shared_ptr<Future<Tensor>> future;
  };

  // Whether the line is of the library's own, not of the program.
  bool is_own() const { return ended != nullptr; }
  OpenCollective& oldest() const { return *open.begin()->second; }

  Line line;
  std::map<uint64_t, std::shared_ptr<OpenCollective>> open;
  std::map<EarlyKey, wire::Part> early;  // for calls, or steps of calls, that this member has not reached
  std::map<int64_t, uint64_t> known;     // for other members, by position: their latest call that this one knows
  bool is_open = false;                  // opened on this member
  std::shared_ptr<Future<Unit>> ended;   // only for a line of the library's own
  std::string doing;                     // likewise: until its next call
  std::string made_on;                   // likewise: the line of the program with the call that made it
  Nanos last_begun = 0;                  // when the last call was made, or `doing` set
  std::map<int64_t, Whereabouts> where;  // members that were asked, by position
  std::optional<Waiting> waiting;        // a call that waits for room; the program makes no other meanwhile
};

// The lines of a mesh that one member has, and the parts on them that came early. Touched on the loop alone.
//
// early_bytes() is the memory of all parts that wait on any line: only functions of this class add or remove them. A
// line that was closed is not among the lines, and its name makes no new line while is_closed() is true for it, as for
// the latest thousand.
class MeshLines {
 public:
  using Map = std::map<std::string, LineState>;
  // The memory to remember that a line was closed.
  struct End {
    explicit End(const std::string& line) : names{line}, order{line} {}
    std::set<std::string> names;
    std::list<std::string> order;
  };

  // Makes the line if it is new.
  LineState& of(const std::string& name) { return lines_[name]; }
  // nullptr: nothing was done on the line here.
  LineState* find(const std::string& name);
  const LineState* find(const std::string& name) const;
  LineState& at(const std::string& name) { return lines_.at(name); }
  const LineState& at(const std::string& name) const { return lines_.at(name); }
  Map& all() { return lines_; }
  const Map& all() const { return lines_; }

  // False: that part is there already.
  bool keep_early(LineState& line, int64_t from, const wire::Part& part);
  std::vector<std::pair<int64_t, wire::Part>> take_early(LineState& line, uint64_t number, uint32_t part);
  // Drops the early parts of one call, or of all.
  void drop_early(LineState& line, uint64_t number);
  void drop_early(LineState& line);
  uint64_t early_bytes() const { return early_bytes_; }

  bool is_closed(const std::string& name) const { return closed_.contains(name); }
  // Takes the line out of all(); empty if nothing was done on it. Needs no memory.
  Map::node_type close(End& end) noexcept;

 private:
  Map lines_;
  uint64_t early_bytes_ = 0;
  std::set<std::string> closed_;
  std::list<std::string> last_closed_;  // the same, the oldest first, to forget the oldest
};

}  // namespace distag
