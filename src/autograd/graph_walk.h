#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "autograd/node_index.h"

namespace distag::autograd {

using Bits = std::vector<bool>;

// The nodes that a pass visits in the graph of one worker, and how many gradients each waits for. Walks begin at edges,
// at sources (sends whose peers will deliver the gradients of some slots, all together) and at entries. Not
// thread-safe.
class GraphWalk {
 public:
  // Called for each recv that a walk meets; throws to end the walk.
  using CheckRecv = std::function<void(const Node& recv)>;
  static constexpr size_t kNoLimit = SIZE_MAX;

  struct Options {
    CheckRecv check_recv;
    bool hands_out_entries = false;  // joint steps are run by others; else they run like any node, which fails
    bool records = false;            // gradients get a history (create_graph), which some nodes cannot give
  };
  // A recv that a walk reached, and its slots that no earlier walk reached.
  struct Reached {
    std::shared_ptr<Node> recv;
    Bits slots;
  };
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

  explicit GraphWalk(Options options) : options_(std::move(options)) {}

  // These four throw GRAPH_FREED naming a node whose saved data is gone, UNSUPPORTED naming a node that gives no
  // history, or what CheckRecv throws; the walk is unusable then. An edge given twice counts twice.
  void expand(std::span<const Edge> edges);
  void add_source(const std::shared_ptr<Node>& send, const Bits& slots);
  // Adds an entry that another member has reached.
  void add_entry(const std::shared_ptr<Node>& entry) { add(entry); }
  // False when it has walked max_nodes nodes and there is more to walk.
  bool run(size_t max_nodes = kNoLimit);
  std::vector<Reached> take_reached();
  // Entries that a walk reached here.
  std::vector<std::shared_ptr<Node>> take_reached_entries() { return std::exchange(reached_entries_, {}); }

  const Options& options() const { return options_; }
  // A visit stays where it is until a walk adds nodes.
  std::vector<Visit>& visits() { return visits_; }
  const std::vector<Visit>& visits() const { return visits_; }
  uint32_t find(const Node& node) const { return index_.find(&node); }
  bool has_recvs() const { return has_recvs_; }  // other workers wait for gradients
  // The number of visits to nodes that the pass runs here: all but joint steps.
  size_t steps() const { return steps_; }
  // After success, without retain_graph.
  void free_saved();

 private:
  uint32_t add(const std::shared_ptr<Node>& node);
  void reach(const Edge& edge, bool is_from_joint);
  void note_hook(uint32_t number);

  const Options options_;
  std::vector<Visit> visits_;
  NodeIndex index_;
  std::vector<uint32_t> unexpanded_;  // in the walk under way
  std::vector<uint32_t> reached_;     // recvs with fresh slots
  std::vector<std::shared_ptr<Node>> reached_entries_;
  bool has_recvs_ = false;
  size_t steps_ = 0;
};

}  // namespace distag::autograd
