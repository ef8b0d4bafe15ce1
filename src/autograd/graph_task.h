#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "autograd/context.h"
#include "autograd/joint.h"
#include "autograd/node.h"
#include "autograd/node_index.h"

namespace distag::autograd {

using Bits = std::vector<bool>;

// A pass in the graph of one worker: the nodes it visits, how many gradients each still waits for, and those that have
// arrived. Walks come first (expand, add_source), until every count is final everywhere; then the gradients (deliver,
// run). A pass within one process does all of it in one go. Not thread-safe: its strand serialises.
class GraphTask {
 public:
  // Called for each recv that a walk meets; throws to end the walk.
  using CheckRecv = std::function<void(const Node& recv)>;
  // Asked between nodes; throws to end the run.
  using CheckStop = std::function<void()>;
  static constexpr size_t kNoLimit = SIZE_MAX;
  static constexpr uint64_t kAllInputs = UINT64_MAX;

  struct RunOptions {
    bool runs_host_code = false;     // else nodes of host code are handed out
    size_t max_nodes = 0;            // 0: no limit on nodes and costs; else at most this many,
    size_t max_bytes = 0;            // with a total cost of at most this
    CheckStop check_stop = nullptr;  // may be empty
  };

  // A recv that a walk reached, and its slots that no earlier walk reached.
  struct Reached {
    std::shared_ptr<Node> recv;
    Bits slots;
  };
  // A recv whose gradients have all arrived, for the peer: one for each live slot, in order; undefined is zero.
  struct Leaving {
    std::shared_ptr<Node> recv;
    Bits live;
    Tensors gradients;
  };
  // An entry of joint steps, and its gradient; undefined is zero.
  struct Entering {
    std::shared_ptr<Node> entry;
    Tensor gradient;
  };
  // A node whose backward is host code, ready to run anywhere.
  struct HostStep {
    uint32_t visit = 0;
    std::shared_ptr<Node> node;
    std::shared_ptr<Node::SavedData> saved;
    Tensors gradients;
    bool is_recorded = false;
    Tensors run();  // throws what backward throws, naming the node
  };

  // `hands_out_entries`: joint steps are run by others; else they run like any node, which fails. `records`: gradients
  // get a history (create_graph); walks throw UNSUPPORTED naming a node that cannot give one.
  explicit GraphTask(CheckRecv check_recv, bool hands_out_entries = false, bool records = false);
  ~GraphTask();
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  // Walks begin at edges, where an edge given twice counts twice, and at sources: sends whose peers will deliver the
  // gradients of these slots, all together. expand, add_source and walk throw GRAPH_FREED naming a node whose saved
  // data is gone, or what CheckRecv throws; the task is unusable then.
  void expand(std::span<const Edge> edges);
  void add_source(const std::shared_ptr<Node>& send, const Bits& slots);
  // Adds an entry that another member has reached. Throws GRAPH_FREED.
  void add_entry(const std::shared_ptr<Node>& entry) { visit(entry); }
  // False when it has walked max_nodes nodes and there is more to walk.
  bool walk(size_t max_nodes = kNoLimit);
  std::vector<Reached> take_reached();
  // Entries that a walk reached here.
  std::vector<std::shared_ptr<Node>> take_reached_entries() { return std::exchange(reached_entries_, {}); }

  // A gradient arrives at an expanded edge; undefined counts too.
  void deliver(const Edge& edge, Tensor gradient);
  // Delivers all gradients of a source, one per slot. Throws PROTOCOL when `send` is no source, or has its gradients.
  void deliver_source(const Node& send, Tensors gradients);
  // Runs nodes that are ready, and those that become ready thereby. False when the options left some. Throws what a
  // backward throws as `backward of "matmul": ...`. Leaf gradients that would delay a gradient for another worker are
  // put off until that has left: then call take_up() and run() again.
  bool run(const RunOptions& options);
  bool has_put_off() const { return !put_off_.empty(); }
  void take_up();
  // Call once, when all walks are over: entries that no edge here leads to are ready, and joint steps may begin.
  void begin_joint();
  // The saved data of the nodes of joint steps, for the first call after begin_joint(); else nullptr.
  std::shared_ptr<const JointSaved> take_joint() { return std::exchange(joint_, nullptr); }
  std::vector<Entering> take_entering() { return std::exchange(entering_, {}); }
  std::vector<HostStep> take_host_steps();
  void finish_host_step(const HostStep& step, Tensors gradients);
  std::vector<Leaving> take_leaving();

  // Every visited node has run, except those of joint steps.
  bool is_finished() const { return unfinished_ == 0; }
  size_t visited() const { return visits_.size(); }
  // Sources whose gradients have not been delivered yet.
  std::vector<std::shared_ptr<Node>> waiting_sources() const;

  // Adds the gradients of leaves that joint steps computed.
  void add_gradients(std::vector<Gradients::Entry> gradients);
  std::vector<Gradients::Entry> take_gradients();
  // After success, without retain_graph.
  void free_saved();

 private:
  struct Visit {
    std::shared_ptr<Node> node;
    std::shared_ptr<Node::SavedData> saved;
    Tensors gradients;  // per slot, once the first has arrived
    Bits slots;         // recv: reached ones; send: expanded ones
    Bits fresh;         // recv: those not yet reported
    uint32_t waiting = 0;
    uint32_t hook = NodeIndex::kNone;  // in a pass that records: the visit of a hook before output 0
    uint64_t put_off = 0;              // inputs whose gradients are put off; all others have gone on
    bool is_joint = false;             // joint and no entry: others run it
    bool is_reached = false;           // by an edge
  };

  uint32_t visit(const std::shared_ptr<Node>& node);
  void reach(const Edge& edge, bool is_from_joint);
  size_t cost(const Visit& visit) const;
  void run_one(uint32_t number, bool runs_host_code);
  void arrive(uint32_t number, uint32_t slot, Tensor gradient);
  void run_function(uint32_t number, bool runs_host_code);
  void run_recorded(uint32_t number, Tensors gradients);
  void note_hook(uint32_t number);
  void run_put_off(uint32_t number);
  uint64_t inputs_to_put_off(const Node& node) const;
  void pass_on(const Node& node, Tensors gradients, uint64_t inputs = kAllInputs);
  Tensors take_sums(const Node& node);
  void run_source(Visit& visit);
  void run_leaf(Visit& visit);
  void run_entry(Visit& visit);
  void run_recv(Visit& visit);

  struct Options {
    CheckRecv check_recv;
    bool hands_out_entries;
    bool records;
  };

  const Options options_;
  std::vector<Visit> visits_;
  NodeIndex index_;
  std::vector<uint32_t> unexpanded_;  // in the walk under way
  std::vector<uint32_t> reached_;     // recvs with fresh slots
  std::vector<std::shared_ptr<Node>> reached_entries_;
  bool has_recvs_ = false;  // other workers wait for gradients
  std::vector<uint32_t> ready_;
  std::vector<uint32_t> put_off_;  // in the order in which they were ready
  std::vector<HostStep> host_steps_;
  std::vector<Leaving> leaving_;
  std::vector<Entering> entering_;
  std::shared_ptr<const JointSaved> joint_;
  std::vector<Gradients::Entry> gradients_;
  size_t unfinished_ = 0;
};

}  // namespace distag::autograd
