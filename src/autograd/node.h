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

// Where the gradient of a tensor goes: to `node`, as the gradient of its forward output `slot`. No node: nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  uint32_t slot = 0;
};

// One step of a recorded graph. Its shape (kind, edges, slots) never changes once recorded, so any number of passes
// read it at the same time; what a pass counts lives in the pass (GraphTask). Only `saved` goes, once, when a pass
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
  const std::vector<Edge>& next() const { return next_; }  // one per forward input
  virtual std::string name() const = 0;                    // "matmul", "leaf", for messages

  // The values from other workers that its forward output `slot` depends on. Of a kSend each slot depends on its edge.
  Origins origins(uint32_t slot) const { return kind_ == Kind::kRecv ? origins_of_recv(slot) : origins_; }

  // Every kFunction node has some until it is freed; other kinds have none.
  std::shared_ptr<SavedData> saved() const;
  void set_saved(std::shared_ptr<SavedData> saved) NO_THREAD_SAFETY_ANALYSIS;  // before the node is shared
  virtual void free_saved();

  // kFunction: the gradient for each of next(), from that of each slot (undefined ones included).
  virtual Tensors backward(SavedData& saved, Tensors gradients);
  // Whether it adds what it gives to what has come for next() from elsewhere in one go: then the pass asks for that.
  virtual bool adds() const { return false; }
  // `sums`: of each of next(), undefined where nothing has come; the results contain them. Only where adds().
  virtual Tensors backward_onto(SavedData& saved, Tensors gradients, Tensors sums);
  // Whether the gradients of next() take time, each on its own: then a pass may ask for some of them first.
  virtual bool is_separable() const { return false; }
  // Those of the bits in `inputs`; the others are undefined. Only where is_separable().
  virtual Tensors backward_of(SavedData& saved, Tensors gradients, uint64_t inputs);
  // Whether backward is host code: runs on the host's executor then.
  virtual bool is_host_code() const { return false; }
  // The bytes that backward passes over, where it does hardly more with them; 0 where it takes a few microseconds: a
  // loop may run what is few. kTakesLong: others.
  virtual size_t cost() const { return kTakesLong; }
  static constexpr size_t kTakesLong = SIZE_MAX;
  // Whether its step is one that all members of a mesh make together.
  virtual bool is_joint() const { return false; }
  // Of a joint node whose gradient is of this worker's own graph; else nullptr.
  virtual const EntryNode* as_entry() const { return nullptr; }

 protected:
  // Whether `holder` is all that holds the node, for the destructor of another, which takes its edges then. Comes after
  // whatever the other holders did with it. A node that can be found without being held makes sure that it is not found
  // again.
  virtual bool retire(const std::shared_ptr<Node>& holder);

  // Of a joint node: others know more of it than this worker.
  void open_origins() { origins_ = Origins::open(); }  // before the node is shared

 private:
  virtual Origins origins_of_recv(uint32_t slot) const;

  const Kind kind_;
  std::vector<Edge> next_;  // emptied only by the destructor
  const uint32_t slots_;
  Origins origins_;  // of a kFunction
  mutable Mutex mutex_;
  std::shared_ptr<SavedData> saved_ GUARDED_BY(mutex_);
  std::shared_ptr<Node> freed_after_;  // of the destructor: the node whose edges wait while those of this one go
};

// The values from other workers that the tensor of that edge depends on.
inline Origins origins_of(const Edge& edge) { return edge.node == nullptr ? Origins() : edge.node->origins(edge.slot); }

}  // namespace distag::autograd
