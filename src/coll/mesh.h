#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coll/collective_call.h"
#include "coll/mesh_calls.h"
#include "coll/mesh_end.h"
#include "coll/mesh_lines.h"
#include "coll/mesh_matching.h"
#include "coll/mesh_place.h"
#include "coll/mesh_state.h"
#include "coll/mesh_waiting.h"
#include "coll/open_collective.h"

namespace distag {

// A mesh as a member has it: an order of calls per line, matched with those of the others by number, compared by hash.
// Once the mesh has ended, with one error, all that is open and all that follows fails with that error. Public methods
// may be called on any thread; all state is on the loop, in parts that each keep a rule of their own. Shared with the
// tasks that it posts.
class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  using LineEnd = MeshLines::End;
  // A part may call those above it.
  struct Parts {
    Parts(const MeshPlace& place, MeshEnd::Holder& holder);

    MeshStats stats;  // any thread
    MeshLines lines;
    MeshEnd end;
    MeshMatching matching;
    MeshWaiting waiting;
    MeshCalls calls;
  };
  // The most calls of a line that are under way: more are refused, or wait for room.
  static constexpr size_t kMostOpen = 256;
  static constexpr int64_t kMostDirectBroadcast = 64 << 10;

  explicit Mesh(MeshPlace place);

  const MeshPlace& place() const { return place_; }
  const Id& id() const { return place_.id; }
  const layout::MeshShape& shape() const { return place_.shape; }
  int64_t position() const { return place_.position; }
  const MeshPolicy& policy() const { return place_.policy; }
  Nanos timeout() const { return place_.timeout; }  // for calls that have none
  std::string describe_member(int64_t position) const { return place_.describe_member(position); }
  std::optional<int64_t> position_of(Incarnation incarnation) const { return place_.position_of(incarnation); }
  std::vector<Incarnation> other_members() const { return place_.other_members(); }
  Loop& loop() const { return place_.environment.loop; }
  Executor& compute() const { return place_.environment.compute; }
  // The counters at this moment.
  const MeshStats& stats() const { return parts_.stats; }
  void count_plan_miss() { ++parts_.stats.plan_misses; }
  void count_hidden_move() { ++parts_.stats.hidden_moves; }
  std::shared_ptr<Future<MeshSnapshot>> fetch_snapshot();

  // Complete with the result; undefined if this member has none (a reduce to another one). Wrong arguments fail the
  // future, and still count as a call.
  std::shared_ptr<Future<Tensor>> collective(CollectiveCall call);
  std::shared_ptr<Future<Tensor>> redistribute(RedistributeCall call);
  // A call that sends nothing; the next one that sends something compares it.
  std::shared_ptr<Future<Unit>> note(std::string line, std::string text, uint64_t fingerprint);
  // The line is used here from now on; for members that wait for a call of it.
  void open_line(const std::string& line);
  // Runs the task on the loop, at the caller's place; false once there is no loop any more. Throws what the task
  // throws.
  bool run(TaskPlace& place, Task task) { return place_.gate->run(place, std::move(task)); }
  // Ends the mesh for all members: a failure that the others cannot know. Needs no memory, without which the text is
  // shorter. when_ended() says once it has ended.
  void end(const Error& error) noexcept;
  // Fails with the error with which the mesh ends. Any thread.
  const std::shared_ptr<Future<Unit>>& when_ended() const { return parts_.end.when_ended(); }
  // No further call follows. Calls under way are finished, then the others are told. Repeated calls do nothing.
  void leave() noexcept;

  // Work that a worker waits for before it leaves, while this lives.
  class Work {
   public:
    explicit Work(Mesh& mesh) : mesh_(mesh) { mesh_.parts_.end.add_work(); }
    ~Work() { mesh_.parts_.end.remove_work(); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Mesh& mesh_;
  };

  // On the loop.
  Parts& parts() { return parts_; }
  // Closes a line that was made for one purpose: no call of it follows, here or elsewhere, and its name is not used
  // again. Calls under way fail with `why`, and later parts of the line are dropped. The mesh goes on. Needs no memory.
  // Repeated calls with the same `end` do nothing.
  void close_line(LineEnd& end, const Error& why) noexcept { parts_.end.close_line(end, why); }
  // Opens a line of the library's own beside those of the program. Its calls are not counted, keep no worker from
  // leaving, and outlast members that have released the mesh, since all that these owe has come. `ended` fails with the
  // mesh, or with close_line(). `made_on`: the line of the program with the call that made it. If that differs among
  // members, so that their lines have different names, a wait finds out.
  void open_own_line(const std::string& line, std::shared_ptr<Future<Unit>> ended, std::string made_on);
  // For members that wait for this member's next call on the line: why it has not come. Empty: no reason.
  void set_doing(const std::string& line, std::string text);
  // See MeshWaiting.
  void ask_missing(const std::string& line) { parts_.waiting.ask_missing(line); }
  MeshWaiting::Missing missing(const std::string& line) const { return parts_.waiting.missing(line); }
  // Ends the mesh for a failure that the others cannot know, in a call of that line.
  void end_alone(Error error, const std::string& line) { parts_.end.end_alone(std::move(error), line); }

 private:
  const MeshPlace place_;
  Parts parts_;
  std::atomic<bool> is_asked_to_leave_{false};
  TaskPlace leave_;
  std::atomic<bool> is_asked_to_end_{false};
  std::optional<Error> end_error_;  // set by the first end(), for its task
  TaskPlace end_;
};

}  // namespace distag
