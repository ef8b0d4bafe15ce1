#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "autograd/context.h"
#include "autograd/gradient_store.h"
#include "base/error.h"
#include "base/future.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace distag {

// The record that any thread may ask about a context on one worker: whether it is over, its counts, its gradients. Its
// handles hold it beyond the end of the context. Thread-safe.
class ContextRecord : public std::enable_shared_from_this<ContextRecord> {
 public:
  ContextRecord(Id id, uint64_t number) : id_(id), number_(number) {}

  const Id& id() const { return id_; }
  uint64_t number() const { return number_; }

  // Throws why the context is over, as INVALID_STATE or as a loss.
  void check() const;
  void close(const Error& why);
  void close_anew(const Error& why);  // the context is over, and the reason is better known

  void set_counts(size_t sends, size_t recvs);
  void add_known(int32_t rank);
  void begin_pass();  // throws like check()
  void end_pass();
  ContextInfo info();    // throws like check()
  ContextInfo counts();  // the same for one that may be over
  std::vector<int32_t> known_ranks() const;

  // A pass is prepared, in the sense of a two-phase commit, from DONE here to its verdict: readers wait meanwhile.
  void begin_prepared(const Id& pass);
  void commit(const Id& pass, autograd::GradientStore::Entries gradients);  // prepared or not
  void forget(const Id& pass);                                              // likewise: it was aborted
  void lose_verdict(const Id& pass, const Error& why);                      // no verdict will come: later reads fail
  std::shared_ptr<const Gradients> read(Nanos lease);
  // The same, also once the context is over: a member of a mesh keeps its gradients when another member is lost.
  std::shared_ptr<const Gradients> read_kept(Nanos lease);
  // Completes with null once the passes that are prepared now are over; fails, and throws, as read() does, but has no
  // deadline: the caller sets it, with late() as its error.
  std::shared_ptr<Future<Value>> settle();
  Error late(Nanos lease) const;
  void scale(std::span<const uint64_t> leaves, double factor, uint64_t passes);  // throws like check()

 private:
  std::shared_ptr<const Gradients> read(Nanos lease, bool if_over);
  void end_prepared(const Id& pass);
  void end(Future<Value>& settled) const;

  const Id id_;
  const uint64_t number_;
  mutable Mutex mutex_;
  std::optional<Error> closed_ GUARDED_BY(mutex_);
  std::optional<Error> unknown_ GUARDED_BY(mutex_);
  std::map<Id, std::shared_ptr<Future<Unit>>> prepared_ GUARDED_BY(mutex_);
  std::set<int32_t> known_ GUARDED_BY(mutex_);
  uint32_t sends_ GUARDED_BY(mutex_) = 0;
  uint32_t recvs_ GUARDED_BY(mutex_) = 0;
  uint32_t passes_ GUARDED_BY(mutex_) = 0;
  autograd::GradientStore gradients_;
};

}  // namespace distag
