#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/future.h"
#include "coll/mesh_lines.h"
#include "coll/mesh_place.h"

namespace distag {

class Mesh;

// How a mesh ends on one member, and which other members make no more calls. On the loop.
//
//   in use  -> leaving   begin_leaving(): no call of this worker follows
//   leaving -> ended     no call is under way, and all parts have arrived: the others are told that it has left
//   any     -> ended     end_now(): all that is open fails with the same error, here and on the other members
//   any     -> ended     end_behind(): a call needs a member that has left; for the others this one has left as well
//
// ended() is set once and stays; each other member hears of the end exactly once, even if there is no memory at
// first. No call may wait for a member that has left or released the mesh.
class MeshEnd {
 public:
  using Holder = std::enable_shared_from_this<Mesh>;

  // `holder` is the mesh that has this as a member.
  MeshEnd(const MeshPlace& place, MeshLines& lines, MeshStats& stats, Holder& holder)
      : place_(place), lines_(lines), stats_(stats), holder_(holder), told_(static_cast<size_t>(place.shape.count())) {}

  const std::optional<Error>& ended() const { return ended_; }
  // Fails with the error with which the mesh ends. Any thread.
  const std::shared_ptr<Future<Unit>>& when_ended() const { return when_ended_; }

  // Ends the mesh, and tells only waiting calls here; with `tell` the other members, too.
  void end_now(Error error, bool tell);
  // Ends the mesh for a failure that the others cannot know, in a call of that line.
  void end_alone(Error error, const std::string& line);
  void stop();
  // Ends the mesh since a call waits for a member that has left, as `left` says. This member makes no more calls
  // either. Each other one is told so once the parts sent to it before have arrived, and fails in its next call that
  // needs it.
  void end_behind(const Error& left);
  // Whether some member has yet to hear of the end.
  bool owes_word() const;
  // Closes a line: see Mesh.
  void close_line(MeshLines::End& end, const Error& why) noexcept;

  // ---- this member leaves ----

  void begin_leaving();
  bool is_leaving() const { return is_leaving_; }
  bool is_idle() const { return stats_.open == 0 && work_ == 0; }
  void add_work() { ++work_; }     // any thread
  void remove_work() { --work_; }  // any thread
  void leave_if_due();
  // Sends a part, which counts as on its way until it is acknowledged.
  void send_part(int64_t to, wire::Part part);

  // ---- others leave ----

  Heard on_end(int64_t from, const wire::MeshEnd& end);
  void on_lost(int64_t from, const Error& error);
  void on_left(int64_t from);
  // Why a call on that line waits in vain for that member; nullptr: it does not.
  const Error* left(int64_t member, const std::string& line) const;

 private:
  // The message to the other members at the end.
  enum class Word : uint8_t { kNone, kEnd, kLeave, kLeaveBehind };

  void end(Error error, Word word);
  void note_left(int64_t from, bool has_released, Error why);
  Error left_error(int64_t member) const;
  bool has_parts_on_their_way() const;
  bool outlasts(const std::string& line, int64_t member) const;
  void tell_end();  // tells all that do not know it yet; without memory, again in a while

  const MeshPlace& place_;
  MeshLines& lines_;
  MeshStats& stats_;
  Holder& holder_;
  const std::shared_ptr<Future<Unit>> when_ended_ = Future<Unit>::make();
  std::optional<Error> ended_;
  std::map<int64_t, Error> left_;  // members that make no more calls
  std::set<int64_t> released_;     // members of left_ whose calls have all come
  bool is_leaving_ = false;
  Word word_ = Word::kNone;
  std::vector<bool> told_;  // by position: those that were told, or are gone
  TaskPlace again_;
  bool tells_again_ = false;                      // `again_` is taken
  std::map<int64_t, size_t> parts_on_their_way_;  // by member: not acknowledged yet
  std::atomic<size_t> work_{0};
};

}  // namespace distag
