#include "autograd/node.h"

#include "base/error.h"

namespace distag::autograd {
namespace {

// Edges of nodes that die on this thread while another one does: their targets are dropped by the outermost destructor,
// so that a chain of any length needs no stack.
thread_local std::vector<Edge>* dying_edges = nullptr;

}  // namespace

Node::~Node() {
  if (dying_edges != nullptr) {
    for (Edge& edge : next_) dying_edges->push_back(std::move(edge));
    return;
  }
  std::vector<Edge> pending = std::move(next_);
  dying_edges = &pending;
  saved_.reset();
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back().node);
    pending.pop_back();
  }
  dying_edges = nullptr;
}

std::shared_ptr<Node::SavedData> Node::saved() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return saved_;
}

void Node::set_saved(std::shared_ptr<SavedData> saved) { saved_ = std::move(saved); }

void Node::free_saved() {
  std::shared_ptr<SavedData> dropped;  // outside of the lock: it may hold a lot
  std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(saved_);
}

Tensors Node::backward(SavedData&, Tensors) { fail(Status::kInternal, "{} has no backward", name()); }

}  // namespace distag::autograd
