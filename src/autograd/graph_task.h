#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/context.h"
#include "autograd/graph_walk.h"
#include "autograd/joint.h"

namespace distag::autograd {

// A pass in the graph of one worker: its walks, until every count is final everywhere; then the gradients that have
// arrived (deliver, run). A pass within one process does all of it in one go. Not thread-safe: its strand serialises.
class GraphTask {
 public:
  // Asked between nodes; throws to end the run.
  using CheckStop = std::function<void()>;
  static constexpr uint64_t kAllInputs = UINT64_MAX;

  struct RunOptions {
    bool runs_host_code = false;     // else nodes of host code are handed out
    size_t max_nodes = 0;            // 0: no limit on nodes and costs; else at most this many,
    size_t max_bytes = 0;            // with a total cost of at most this
    CheckStop check_stop = nullptr;  // may be empty
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

  explicit GraphTask(GraphWalk::CheckRecv check_recv, bool hands_out_entries = false, bool records = false);
  ~GraphTask();
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  GraphWalk& walk() { return walk_; }
  const GraphWalk& walk() const { return walk_; }

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
  bool is_finished() const { return finished_ == walk_.steps(); }
  // Sources whose gradients have not been delivered yet.
  std::vector<std::shared_ptr<Node>> waiting_sources() const;

  // Adds the gradients of leaves that joint steps computed.
  void add_gradients(std::vector<Gradients::Entry> gradients);
  std::vector<Gradients::Entry> take_gradients();

 private:
  using Visit = GraphWalk::Visit;

  size_t cost(const Visit& visit) const;
  void run_one(uint32_t number, bool runs_host_code);
  void arrive(uint32_t number, uint32_t slot, Tensor gradient);
  void run_function(uint32_t number, bool runs_host_code);
  void run_recorded(uint32_t number, Tensors gradients);
  void run_put_off(uint32_t number);
  uint64_t inputs_to_put_off(const Node& node) const;
  void pass_on(const Node& node, Tensors gradients, uint64_t inputs = kAllInputs);
  Tensors take_sums(const Node& node);
  void run_source(Visit& visit);
  void run_leaf(Visit& visit);
  void run_entry(Visit& visit);
  void run_recv(Visit& visit);

  GraphWalk walk_;
  std::vector<uint32_t> ready_;
  std::vector<uint32_t> put_off_;  // in the order in which they were ready
  std::vector<HostStep> host_steps_;
  std::vector<Leaving> leaving_;
  std::vector<Entering> entering_;
  std::shared_ptr<const JointSaved> joint_;
  std::vector<Gradients::Entry> gradients_;
  size_t finished_ = 0;
};

}  // namespace distag::autograd
