#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/origins.h"
#include "base/mutex.h"
#include "tensor/tensor.h"

namespace distag::autograd {

class Node;
class EntryNode;

// The destination of a tensor's gradient: `node`, as the gradient of its forward output `slot`. No node: nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  uint32_t slot = 0;
};

// A step of a recorded graph. Its shape (kind, edges, slots) never changes once recorded, so any number of passes read
// it at the same time; what a pass counts lives in the pass (GraphTask). Only `saved` is freed, once, when a pass
// without retain_graph has committed. Graphs of any depth are freed iteratively.
class Node {
 public:
  enum class Kind {
    kFunction,  // an op: runs backward
    kLeaf,      // takes the gradient of a leaf tensor
    kSend,      // values left this worker here; its gradient comes from the peer's recv
    kRecv,      // values came in here; its gradient goes to the peer's send
  };

  // State that backward needs; a pass that visits the node holds it until the pass is over.
  class SavedData {
   public:
    virtual ~SavedData() = default;
  };

  Node(Kind kind, std::vector<Edge> next, uint32_t slots);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Kind kind() const { return kind_; }
  uint32_t slots() const { return slots_; }                // forward outputs
  const std::vector<Edge>& next() const { return next_; }  // per forward input
  virtual std::string name() const = 0;                    // "matmul", "leaf", for messages

  // The values from other workers that its forward output `slot` depends on. A kSend has none: see its edges.
  Origins origins(uint32_t slot) const { return kind_ == Kind::kRecv ? origins_of_recv(slot) : origins_; }

  // Every kFunction node has saved data until it is freed; other kinds have none.
  std::shared_ptr<SavedData> saved() const;
  void set_saved(std::shared_ptr<SavedData> saved) NO_THREAD_SAFETY_ANALYSIS;  // before the node is shared
  virtual void free_saved();

  // kFunction: the gradient for each of next(), from that of each slot (undefined ones included).
  virtual Tensors backward(SavedData& saved, Tensors gradients);
  // Whether backward_onto() adds the gradients to the sums at next() in one go: then the pass calls that.
  virtual bool adds() const { return false; }
  // `sums`: for each of next(), undefined where nothing has arrived; the results include them. Only where adds().
  virtual Tensors backward_onto(SavedData& saved, Tensors gradients, Tensors sums);
  // Whether each gradient of next() takes time of its own: then a pass may ask for some of them first.
  virtual bool is_separable() const { return false; }
  // The gradients of the bits in `inputs`; the others are undefined. Only where is_separable().
  virtual Tensors backward_of(SavedData& saved, Tensors gradients, uint64_t inputs);
  // Whether backward is host code: then it runs on the host's executor.
  virtual bool is_host_code() const { return false; }
  // The bytes that backward passes over, if it does hardly more with them; 0 if it takes a few microseconds. A loop may
  // run a node of low cost. kTakesLong: any other node.
  virtual size_t cost() const { return kTakesLong; }
  static constexpr size_t kTakesLong = SIZE_MAX;
  // Whether its step is one that all members of a mesh make together.
  virtual bool is_joint() const { return false; }
  // The entry, of a joint node whose gradient comes from this worker's own graph; else nullptr.
  virtual const EntryNode* as_entry() const { return nullptr; }

 protected:
  // Whether `holder` is the only reference to the node. The destructor of another node asks, and takes the edges then.
  // True is ordered after all that earlier holders did with the node. A node that can be found without being held makes
  // sure that it is not found again.
  virtual bool retire(const std::shared_ptr<Node>& holder);

  // For a joint node: other members know more of its origins than this worker.
  void open_origins() { origins_ = Origins::open(); }  // before the node is shared

 private:
  virtual Origins origins_of_recv(uint32_t slot) const;

  const Kind kind_;
  std::vector<Edge> next_;  // emptied only by the destructor
  const uint32_t slots_;
  Origins origins_;  // only for a kFunction
  mutable Mutex mutex_;
  std::shared_ptr<SavedData> saved_ GUARDED_BY(mutex_);
  std::shared_ptr<Node> freed_after_;  // for the destructor: the node whose edges wait while those of this one go
};

// The values from other workers that the tensor of that edge depends on.
inline Origins origins_of(const Edge& edge) { return edge.node == nullptr ? Origins() : edge.node->origins(edge.slot); }

}  // namespace distag::autograd
