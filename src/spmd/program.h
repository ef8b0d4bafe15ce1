#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "autograd/node.h"
#include "base/mutex.h"
#include "coll/mesh_use.h"
#include "layout/placement.h"
#include "ops/op.h"

namespace distag::spmd {

// The call that made a tensor, and the number of the result: members name a tensor alike.
struct TensorName {
  std::string line;
  uint64_t call = 0;
  uint32_t output = 0;
};

// A call by which a part of a sharded tensor became a plain tensor: gradients of one member's own graph enter here.
struct EntryName {
  uint64_t call = 0;
  uint64_t line = 0;  // a hash of its name
  auto operator<=>(const EntryName&) const = default;
};

struct PartOp;

// An application of an op by all members, worked out from metadata.
struct OpPlan {
  layout::Rule rule;
  layout::Placement placement;
  layout::LocalCall local;
  const ops::Op* op = nullptr;     // of the local call
  const PartOp* part = nullptr;    // runs instead of `op` if it is set
  std::vector<bool> moves;         // by input: whether it must be brought to the placement
  bool has_unequal_parts = false;  // members may save different tensors for backward
  std::string text;                // for people
  uint64_t hash = 0;               // of all arguments of the plan
};

// A mesh as sharded tensors use it: calls in the order of each line, each noted for the comparison of the members'
// programs, and the placements worked out so far. All tensors and lines of the mesh hold it. Thread-safe.
class Program {
 public:
  static constexpr size_t kMostPlans = 4096;
  using Warn = std::function<void(const std::string& text)>;

  // `warn` gets hidden moves; may be empty. `host`: the owner of the mesh's handles.
  explicit Program(std::shared_ptr<MeshUse> use, Warn warn = nullptr, void* host = nullptr);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Mesh& mesh() const { return use_->mesh(); }
  const layout::MeshShape& shape() const { return mesh().shape(); }
  int64_t position() const { return mesh().position(); }
  bool keeps_gathered() const { return mesh().policy().keep_gathered; }
  // A text about the elements of plain tensors that count as equal on all members. It is part of a call's text, so that
  // the elements are compared with it. Empty, unless the mesh checks replicas.
  std::string describe_replicas(std::span<const Tensor> tensors) const;
  void* host() const { return host_; }
  // The turns of calls on the line of that name.
  std::shared_ptr<MeshLine> turns_of(const std::string& name);
  // Called when no call of the line is under way, and none follows.
  void forget_line(const std::string& name);
  // Sets `next` as the last file work of the line, and gives the work before it; nullptr: it is the first.
  std::shared_ptr<Completion> follow_work(const std::string& line, std::shared_ptr<Completion> next);
  // The number of the next joint context.
  uint64_t next_context() { return ++contexts_; }

  // Nodes of entries, held by others.
  void add_entry(const EntryName& name, const std::shared_ptr<autograd::Node>& node);
  std::shared_ptr<autograd::Node> find_entry(const EntryName& name);  // nullptr: it is gone

  // Throws as rule_of() does.
  std::shared_ptr<const OpPlan> plan(const layout::OpCall& call);
  // Throws INVALID_STATE if the mesh refuses hidden moves.
  void on_hidden_move(const std::string& text);

 private:
  friend class CallOnLine;
  struct LineState {
    explicit LineState(const std::string& name) : turns(std::make_shared<MeshLine>(name)) {}
    std::shared_ptr<MeshLine> turns;
    std::shared_ptr<Completion> last_work;
    uint64_t calls = 0;
  };
  LineState& line(const std::string& name) REQUIRES(mutex_);

  const std::shared_ptr<MeshUse> use_;
  const Warn warn_;
  void* const host_;
  std::atomic<uint64_t> contexts_{0};
  Mutex mutex_;
  std::map<std::string, LineState> lines_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::shared_ptr<const OpPlan>> plans_ GUARDED_BY(mutex_);
  std::map<EntryName, std::weak_ptr<autograd::Node>> entries_ GUARDED_BY(mutex_);
  size_t most_entries_ GUARDED_BY(mutex_) = 64;  // beyond it, expired entries are removed
};

// A mesh, or an order of calls of its own on it.
struct Line {
  std::shared_ptr<Program> program;
  std::string name;  // empty: the mesh itself
};

// A collective call of a line, for as long as it runs. Throws INVALID_STATE, naming both, if the line already has a
// call under way; or the error with which the mesh has ended.
class CallOnLine {
 public:
  CallOnLine(const Line& line, const char* text);
  CallOnLine(const CallOnLine&) = delete;
  CallOnLine& operator=(const CallOnLine&) = delete;

  uint64_t number() const { return number_; }
  TensorName name_of(uint32_t output) const { return {line_.name, number_, output}; }
  const Line& line() const { return line_; }

  // Leaves the line to other calls of this thread meanwhile.
  class Pause {
   public:
    explicit Pause(CallOnLine& call) : pause_(*call.turns_, call.text_) {}

   private:
    const MeshLine::Pause pause_;
  };

  // Makes the elements of a deferred plain tensor. A failure ends the mesh, as the others would wait for this member.
  void make_elements(const Tensor& plain);

  // Ends the mesh for all members, by a failure of this call. No later call of this worker has a result.
  void end_mesh(const Error& error);

  // How long the rest of the call may wait for others, in all. 0: each wait has the timeout of the mesh, the default.
  void set_timeout(Nanos timeout);
  // Waits without a timeout: until the result, the end of the mesh, or the end of the line.
  void wait_for_ever() { waits_for_ever_ = true; }
  // Notes the call for the comparison of programs. Called once, before anything is sent.
  void note(const std::string& text, uint64_t fingerprint);
  // Notes a failure by arguments, which is the same on all members.
  void note_failure(const std::string& text, const Error& error);

  std::shared_ptr<Future<Tensor>> begin_move(const Dims& shape, const Tensor& shard, const layout::Spec& from,
                                             const layout::Spec& to, bool is_bounded = false);
  // Reduces over the members that differ along the axes only, whose tensors have one shape.
  std::shared_ptr<Future<Tensor>> begin_reduce(const Tensor& x, const layout::Axes& axes, Reduction reduction);
  // Waits. Sends nothing if all members have what they need.
  Tensor move(const Dims& shape, const Tensor& shard, const layout::Spec& from, const layout::Spec& to);
  // Waits. Gives the values of the member at position `root`.
  Tensor broadcast(const Tensor& x, int64_t root);
  // Waits. Gives the rows of all members, by position.
  Tensor gather_rows(const Tensor& row);
  // Waits. Gives the rows of the members that differ along the axes only, all of one length.
  Tensor gather_rows(const Tensor& row, const layout::Axes& axes);
  // The same for messages about a pass, which do not count as communication.
  Tensor gather_words(const Tensor& row);

 private:
  CollectiveCall collective(CollectiveKind kind) const;
  // As calls of the mesh take them: the timeout, and what is left of it.
  std::pair<Nanos, Nanos> patience() const;
  Tensor gather_rows(CollectiveCall call, const Tensor& row);

  const Line line_;
  const char* const text_;
  const std::shared_ptr<MeshLine> turns_;
  const MeshLine::Turn turn_;
  uint64_t number_ = 0;
  Nanos timeout_ = 0;  // of the whole call, as its deadline
  Nanos deadline_ = kNever;
  bool waits_for_ever_ = false;
};

// Waits on the calling thread.
Tensor await(Future<Tensor>& future);

void add_spec(Fingerprint& fingerprint, const layout::Spec& spec);

}  // namespace distag::spmd
