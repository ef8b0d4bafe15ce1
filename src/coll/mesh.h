#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/loop.h"
#include "base/loop_gate.h"
#include "coll/fold.h"
#include "coll/line.h"
#include "coll/mesh_state.h"
#include "group/group.h"
#include "layout/move.h"

namespace distag {

// The numbers are those of distag_collective_kind.
enum class CollectiveKind : int32_t {
  kAllReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllToAll = 4,
  kBroadcast = 5,
  kReduce = 6,
  kPermute = 7,
  kScatter = 8,  // of the library's own: piece i of the root's goes to member i
};

// A collective of a plain tensor among the members that differ along `axes` only.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  layout::Axes axes;
  Tensor tensor;
  Reduction reduction = Reduction::kSum;
  int64_t dim = 0;
  int64_t dim_to = 0;
  int64_t root = 0;              // a position among those that take part
  int64_t shift = 0;             // of a permute: to the member that many positions on
  std::string line;              // empty: the mesh itself
  Nanos timeout = 0;             // 0: that of the mesh
  std::string within;            // the call of the host that this is a step of; empty: it is that call
  bool sizes_differ = false;     // between members that do not take part with each other
  bool is_word_of_pass = false;  // of members among themselves: no communication of the program, for the counts
  Tensors pieces = {};           // of a scatter at its root; `tensor` tells others what they get
  bool waits_for_room = false;   // where too many calls are under way; else it fails with OVERLOADED
};

// The same values of a sharded tensor under another spec.
struct RedistributeCall {
  Dims shape;  // of the whole
  Tensor shard;
  layout::Spec from;
  layout::Spec to;
  std::string line;
  Nanos timeout = 0;
  std::string within;       // as above
  bool is_bounded = false;  // fails with OVERLOADED where too many calls are under way
};

// One mesh as a member has it: an order of calls per line, matched with those of the others by number, compared by
// hash. Once it has ended, with one error, all that is open and all that follows fails with that. Public methods may be
// called on any thread; all state is on the loop. Shared with what it posts.
class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  struct Open;  // a call under way
  // The room to remember that a line was closed.
  struct LineEnd {
    explicit LineEnd(const std::string& line) : names{line}, order{line} {}
    std::set<std::string> names;
    std::list<std::string> order;
  };
  struct Environment {
    Loop& loop;
    Executor& compute;  // reductions that take long
    Group& group;
    uint64_t max_early = uint64_t{1} << 30;  // bytes of parts of calls that this member has not come to
  };
  // Calls of a line that are begun and not ended: more are refused, or wait for room.
  static constexpr size_t kMostOpen = 256;
  // From this size on an operand is reduced in chunks, each by one member, instead of by all; times the members.
  static constexpr int64_t kMostDirectBytes = 512 << 10;
  static constexpr int64_t kMostDirectBroadcast = 64 << 10;

  Mesh(Environment environment, std::shared_ptr<LoopGate> gate, Id id, layout::MeshShape shape, int64_t position,
       std::vector<std::shared_ptr<const Peer>> members, Nanos timeout, MeshPolicy policy = {});

  const Id& id() const { return id_; }
  const layout::MeshShape& shape() const { return shape_; }
  int64_t position() const { return position_; }
  const MeshPolicy& policy() const { return policy_; }
  Nanos timeout() const { return timeout_; }  // of calls that have none
  // The counters as they are.
  const MeshStats& stats() const { return stats_; }
  void count_plan_miss() { ++stats_.plan_misses; }
  void count_hidden_move() { ++stats_.hidden_moves; }
  std::shared_ptr<Future<MeshSnapshot>> fetch_snapshot();

  // The result; undefined where a member has none (a reduce to another one). Arguments that are wrong fail the future,
  // and are a call all the same.
  std::shared_ptr<Future<Tensor>> collective(CollectiveCall call);
  std::shared_ptr<Future<Tensor>> redistribute(RedistributeCall call);
  // A call that sends nothing; compared by the next one that does.
  std::shared_ptr<Future<Unit>> note(std::string line, std::string text, uint64_t fingerprint);
  // A line is used here from now on: for those who wait for a call of it.
  void open_line(const std::string& line);
  // Runs it on the loop, at a place that the caller has; false once there is no loop any more. Throws what it throws.
  bool run(TaskPlace& place, Task task) { return gate_->run(place, std::move(task)); }
  Loop& loop() const { return environment_.loop; }
  Executor& compute() const { return environment_.compute; }
  std::string describe_member(int64_t position) const;
  // Ends it for all members: a failure that the others cannot know. Done once it has ended.
  std::shared_ptr<Future<Unit>> end(const Error& error);
  // Fails with the error with which it ends. Any thread.
  const std::shared_ptr<Future<Unit>>& when_ended() const { return when_ended_; }
  // No call follows. Calls under way are finished, then the others are told. Again: nothing more.
  void leave() noexcept;

  // Work that a worker waits for before it leaves, for as long as this lives.
  class Work {
   public:
    explicit Work(Mesh& mesh) : mesh_(mesh) { ++mesh_.work_; }
    ~Work() { --mesh_.work_; }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Mesh& mesh_;
  };

  // On the loop.
  const std::optional<Error>& ended() const { return ended_; }
  bool is_idle() const { return stats_.open == 0 && work_ == 0; }
  // Adds the oldest calls under way until there are that many.
  void describe_waiting(std::vector<WaitingCollective>& waiting, size_t most) const;
  bool is_leaving() const { return is_leaving_; }  // no call of this worker follows
  std::optional<int64_t> position_of(Incarnation incarnation) const;
  std::vector<Incarnation> other_members() const;  // any thread
  // Throws Violation.
  Heard on_part(int64_t from, const wire::Part& part);
  Heard on_calls(int64_t from, const wire::Calls& calls);
  Heard on_end(int64_t from, const wire::MeshEnd& end);
  Heard on_where(int64_t from, const wire::Where& where);
  Heard on_here(int64_t from, const wire::Here& here);
  void on_lost(int64_t from, const Error& error);
  void on_left(int64_t from);
  void on_released(int64_t from);
  void stop();
  // No call of a line that was made for one purpose follows, here or elsewhere, and its name does not come again. Calls
  // under way fail with that, and parts of it that come later are dropped. The mesh goes on. Needs no memory; again
  // with the same end: nothing more.
  void close_line(LineEnd& end, const Error& why) noexcept;
  // A line of the library's own beside those of the program: its calls are not counted, keep no worker from leaving,
  // and outlast members that have released the mesh, as what these owe has come. `ended` fails with the mesh, or with
  // close_line().
  void open_own_line(const std::string& line, std::shared_ptr<Future<Unit>> ended);
  // For those who wait for the next call of this member on the line: why it has not come. Empty: no reason.
  void set_doing(const std::string& line, std::string text);
  // Asks the members for which the first open call waits where they are, and gives what is known of that: empty when
  // no call waits.
  void ask_missing(const std::string& line);
  std::string describe_missing(const std::string& line) const;
  // Ends it, and tells only those who wait here, unless `tell`.
  void end_now(Error error, bool tell);
  // For a failure that the others cannot know, in a call of that line.
  void end_alone(Error error, const std::string& line);

 private:
  using OpenPointer = std::shared_ptr<Open>;
  struct EarlyKey {
    uint64_t number;
    uint32_t part;
    int64_t from;
    auto operator<=>(const EarlyKey&) const = default;
  };
  static constexpr Nanos kNotYet = INT64_MIN;
  struct Whereabouts {
    wire::Here here;
    Nanos heard = kNotYet;
    Nanos asked = kNotYet;  // for others that wait for it
  };
  struct Waiting {
    CollectiveCall call;
    std::shared_ptr<Future<Tensor>> future;
  };
  struct LineState {
    Line line;
    std::map<uint64_t, OpenPointer> open;
    std::map<EarlyKey, wire::Part> early;  // of calls, or of steps of calls, that this member has not come to
    std::map<int64_t, uint64_t> known;     // of other members, by position: the latest call heard of
    bool is_open = false;                  // it has been opened here
    std::shared_ptr<Future<Unit>> ended;   // of a line of the library's own
    std::string doing;                     // likewise: until its next call
    Nanos last_begun = 0;                  // the last call that may send something
    std::map<int64_t, Whereabouts> where;  // of members that were asked, by position
    std::optional<Waiting> waiting;        // for room; its program makes no other call meanwhile
  };

  template <typename Result, typename Begin>
  std::shared_ptr<Future<Result>> queue(Begin begin);
  template <typename Begin>
  void attempt(const std::string& line, Begin begin);
  OpenPointer begin_call(const std::string& line, std::string text, uint64_t fingerprint, Nanos timeout,
                         std::shared_ptr<Future<Tensor>> future);
  void begin_collective(const CollectiveCall& call, const std::shared_ptr<Future<Tensor>>& future);
  void begin_redistribute(const RedistributeCall& call, const std::shared_ptr<Future<Tensor>>& future);
  Error overloaded(const std::string& line) const;
  void number_failed(const std::string& line, std::string text, const Error& error);
  void check_open(const std::string& line) const;
  void give_up(Open& call, const Error& why);
  void compare_early(const std::string& name, LineState& state, uint64_t number);
  void start_timer(const OpenPointer& call);
  void on_timer(const OpenPointer& call);
  Error deadline_error(const Open& call) const;
  void ask_where(const Open& call);
  std::vector<int64_t> behind(const Open& call) const;
  void ask_behind(const Open& call);
  std::string whereabouts_of(int64_t position, const std::string& line) const;
  void make_room(const std::string& line);
  void trace(const Open& call, Status status) const;
  void finish(const OpenPointer& call);
  bool has_room_for_early(int64_t from, const wire::Part& part, const LineState& state);
  bool tell_if_diverged(int64_t from, const std::string& line, const wire::CallHash& last);
  void tell_diverged(int64_t to, const std::string& line);
  void send(int64_t to, wire::Body body);
  void send_part(int64_t to, wire::Part part);
  MeshSnapshot snapshot() const;
  void tell_end();          // those who do not know it yet; where there is no memory, again in a while
  void tell_left_if_due();  // once no call is under way and all parts have arrived
  void on_begin_failed(const OpenPointer& open, const std::string& line);
  void note_left(int64_t from, bool has_released);
  bool outlasts(const std::string& line, int64_t position) const;
  std::string where(const std::string& line) const;  // `mesh "train", line "b"`

  const Environment environment_;
  const std::shared_ptr<LoopGate> gate_;
  const Id id_;
  const layout::MeshShape shape_;
  const int64_t position_;
  const std::vector<std::shared_ptr<const Peer>> members_;  // by position
  const Nanos timeout_;
  const MeshPolicy policy_;
  const std::shared_ptr<Future<Unit>> when_ended_ = Future<Unit>::make();

  // On the loop.
  std::map<std::string, LineState> lines_;
  uint64_t early_bytes_ = 0;  // of all lines
  std::set<std::string> closed_lines_;
  std::list<std::string> last_closed_;  // the same, the oldest first: those before are forgotten
  std::optional<Error> ended_;
  std::map<int64_t, Error> left_;  // members that make no more calls
  std::set<int64_t> released_;     // those of them whose calls have all come
  bool is_leaving_ = false;
  bool has_left_ = false;
  int64_t next_to_tell_ = 0;  // of its end: a position
  TaskPlace tell_again_;
  std::atomic<bool> is_asked_to_leave_{false};
  std::atomic<size_t> work_{0};
  TaskPlace leave_;
  std::map<int64_t, size_t> parts_on_their_way_;  // by member: not acknowledged yet
  std::deque<MeshSnapshot::Move> moves_;
  MeshStats stats_;
};

// A call of a mesh that waits for parts of other members. On the loop.
struct Mesh::Open : std::enable_shared_from_this<Mesh::Open> {
  // A piece that is to come from a member: `open_dim` of the shape is not known.
  struct Expected {
    Dtype dtype;
    Dims shape;
    size_t open_dim = kMaxRank;
  };
  struct Exchange {
    std::map<int64_t, std::vector<Expected>> expected;  // by position, as long as it has not come
    std::map<int64_t, Tensors> came;
    UniqueFunction<void(std::map<int64_t, Tensors>)> then;
  };

  std::shared_ptr<Mesh> mesh;
  std::string line;
  uint64_t number = 0;
  uint64_t hash = 0;
  std::string text;
  Nanos begun = 0;
  Nanos timeout = kForever;
  Nanos deadline = kNever;
  Loop::TimerId timer = 0;  // until the missing are asked where they are, or the deadline
  bool is_over = false;
  std::shared_ptr<Future<Tensor>> future;
  std::map<uint32_t, Exchange> exchanges;
  bool is_counted = true;
  uint64_t bytes_held = 0;                 // of pieces that came
  std::optional<MeshSnapshot::Move> move;  // of a call that sends something

  // Step `part`: sends to members, waits for what is expected of members, and goes on with all of that; its own piece
  // is in `outgoing` as well.
  void exchange(uint32_t part, std::map<int64_t, Tensors> outgoing, std::map<int64_t, std::vector<Expected>> expected,
                UniqueFunction<void(std::map<int64_t, Tensors>)> then);
  // Makes tensors, on the executor where `bytes` take long, and goes on here.
  void work(size_t bytes, UniqueFunction<Tensors()> make, UniqueFunction<void(Tensors)> then);
  void reduce(Reduction reduction, std::vector<Operand> operands, UniqueFunction<void(Tensor)> then);
  // The pieces of a member for a step that has begun. Throws Violation for what this call does not expect, or has.
  void take(uint32_t part, int64_t from, const Values& pieces);
  void complete(Tensor result);
  void fail_alone(Error error);  // ends the mesh
  void send(uint32_t part, const std::map<int64_t, Tensors>& outgoing);
  void take_early(uint32_t part);
  // The positions of the members that have yet to send something.
  std::vector<int64_t> missing() const;
};

using OpenCollective = Mesh::Open;

}  // namespace distag
