#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/future.h"
#include "base/ids.h"
#include "tensor/value.h"

namespace distag {

enum class BackwardMode { kSmart = 1, kFast = 2 };

struct BackwardOptions {
  BackwardMode mode = BackwardMode::kSmart;
  bool retain_graph = false;
  bool create_graph = false;  // retains the graph too
  Nanos timeout = kForever;
  Tensors seeds;  // empty, or one per root, undefined for a scalar root
};

// The gradients that leaves of one worker have in a context, in the order of the leaves' ids. Immutable.
struct Gradients {
  struct Entry {
    Tensor leaf;
    Tensor gradient;
  };
  std::vector<Entry> entries;
  uint64_t passes = 0;                           // the committed passes that are summed here
  const Tensor* find(const Tensor& leaf) const;  // nullptr when no pass has reached it
};

struct ContextInfo {
  uint32_t send_count = 0;
  uint32_t recv_count = 0;
  uint32_t known_count = 0;
  uint32_t gradient_count = 0;
  uint32_t pass_count = 0;
};

// A forward and its backward passes, as their user sees them: within this process (LocalContext) or across workers
// (dautograd). A handle: the context ends when its creator drops the last one. Thread-safe.
class Context {
 public:
  virtual ~Context() = default;

  virtual uint64_t id() const = 0;   // rank of the creator in the upper 16 bits, a counter below
  virtual Id global_id() const = 0;  // {0, 0} for a local one
  virtual void backward(const Tensors& roots, const BackwardOptions& options) = 0;  // waits
  virtual std::shared_ptr<Future<Value>> backward_async(const Tensors& roots, const BackwardOptions& options) = 0;
  virtual std::shared_ptr<const Gradients> gradients() = 0;  // may wait for verdicts
  // Completes with null once gradients() need not wait for the passes of this moment; fails as gradients() would.
  // Throws UNSUPPORTED without a worker, where gradients() never waits.
  virtual std::shared_ptr<Future<Value>> settle_async() = 0;
  // Multiplies the gradients of the leaves with these ids, if there are any, in the sum over exactly `passes` passes.
  // Throws INVALID_STATE when more passes were committed meanwhile. Snapshots keep their values.
  virtual void scale_gradients(std::span<const uint64_t> leaves, double factor, uint64_t passes) = 0;
  virtual ContextInfo info() = 0;
  virtual std::vector<int32_t> known_ranks() = 0;  // ascending
};

// A context without a worker: passes run on the calling thread; backward_async throws UNSUPPORTED.
std::shared_ptr<Context> make_local_context();

}  // namespace distag
