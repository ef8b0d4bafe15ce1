#include "autograd/node.h"

#include <utility>

#include "base/error.h"
#include "base/mutex.h"

namespace distag::autograd {

Node::Node(Kind kind, std::vector<Edge> next, uint32_t slots) : kind_(kind), next_(std::move(next)), slots_(slots) {
  if (kind_ != Kind::kFunction) return;
  for (const Edge& edge : next_) {
    if (edge.node == nullptr) continue;
    if (edge.node->kind_ == Kind::kRecv) {
      origins_.add(edge.node->origins_of_recv(edge.slot));
    } else if (!edge.node->origins_.is_none()) {
      origins_.add(edge.node->origins_);
    }
  }
}

Origins Node::origins_of_recv(uint32_t) const { return {}; }

// A chain of any length needs no stack, and no memory either: a node that only this one holds is not destroyed before
// its own edges are gone, and points back to the node whose edges were being dropped.
Node::~Node() {
  saved_.reset();
  std::shared_ptr<Node> current;  // nullptr: this one
  for (;;) {
    std::vector<Edge>& edges = current ? current->next_ : next_;
    if (edges.empty()) {
      if (!current) return;
      current = std::exchange(current->freed_after_, nullptr);
      continue;
    }
    std::shared_ptr<Node> node = std::move(edges.back().node);
    edges.pop_back();
    // Another holder drops the node later, in the same way. A leaf has no edges.
    if (!node || node->kind_ == Kind::kLeaf || !node->retire(node)) continue;
    node->saved_.reset();
    node->freed_after_ = std::move(current);
    current = std::move(node);
  }
}

// A use count of 1 alone orders nothing: the copy and its release order this thread after the thread that gave up the
// second reference.
bool Node::retire(const std::shared_ptr<Node>& holder) {
  if (holder.use_count() != 1) return false;
  const std::shared_ptr<Node> ordered = holder;
  return true;
}

std::shared_ptr<Node::SavedData> Node::saved() const {
  MutexLock lock(mutex_);
  return saved_;
}

void Node::set_saved(std::shared_ptr<SavedData> saved) { saved_ = std::move(saved); }

void Node::free_saved() {
  std::shared_ptr<SavedData> dropped;  // outside of the lock: it may hold a lot
  MutexLock lock(mutex_);
  dropped.swap(saved_);
}

Tensors Node::backward(SavedData&, Tensors) { fail(Status::kInternal, "{} has no backward", name()); }

Tensors Node::backward_of(SavedData&, Tensors, uint64_t) { fail(Status::kInternal, "{} has no parts", name()); }

Tensors Node::backward_onto(SavedData&, Tensors, Tensors) { fail(Status::kInternal, "{} adds nothing", name()); }

}  // namespace distag::autograd
