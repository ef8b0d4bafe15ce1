#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "dautograd/dautograd_shared.h"
#include "dautograd/distributed_context.h"

namespace distag {

// The contexts that one worker holds: how they come, and how they end. On the loop, unless it says any thread.
class ContextTable {
 public:
  static constexpr size_t kMaxPerCreator = 65536;
  // Workers that hold a context, as others say: as many as a group has ranks.
  static constexpr size_t kMaxHolders = 65536;

  explicit ContextTable(DautogradShared& shared) : shared_(shared) {}

  // Any thread: a handle's view of it; one that is over when this worker does not hold it.
  std::shared_ptr<ContextRecord> find_record(const Id& id) const;

  void add_own(std::shared_ptr<ContextRecord> record);  // any thread

  // A joint context as the program of a member makes it, which may have come by a message before; any thread. Then
  // begin_joint(), with the other members; on_handle_gone() ends it.
  std::shared_ptr<ContextRecord> add_joint(const Id& id, int32_t creator_rank);
  void begin_joint(const Id& id, const std::vector<Incarnation>& members);
  void on_handle_gone(const Id& id);

  std::shared_ptr<DistributedContext> find(const Id& id) const;  // any thread
  // A call in the context has come from a peer. Throws OVERLOADED, INVALID_STATE, DISCONNECTED.
  std::shared_ptr<DistributedContext> find_or_make(const wire::AutogradMetadata& metadata, const Peer& from);
  // Why an id that is not in the table is not there.
  Error missing(const Id& id) const;

  // Workers that hold the context, as somebody says.
  void note_holders(DistributedContext& context, const std::vector<Incarnation>& workers);
  // The holders that an answer to `to` has to name.
  std::vector<Incarnation> holders_to_tell(DistributedContext& context, Incarnation to);
  // The answer that names them is made.
  void note_told(DistributedContext& context, Incarnation to, const std::vector<Incarnation>& holders);

  // The creator's: RELEASE to all holders once nothing needs it any more. Of a joint one, another member's: RELEASE to
  // the creator.
  void release_if_over(const std::shared_ptr<DistributedContext>& context);
  Heard on_release(const Peer& from, const wire::Release& release);
  Heard on_joined(const Peer& from, const Id& context);
  // Its contexts end in slices, a task each: they may be many. Until its turn comes each is as it was.
  void on_gone(Incarnation peer, const Error& error);
  // A creator that was gone is back: handles of its contexts, and later uses, tell that.
  void on_restarted(Incarnation peer, const Error& error);
  // Ends it here: passes, calls, gradients, and the graph.
  void drop(const std::shared_ptr<DistributedContext>& context, const Error& why);
  void drop_all(const Error& why);

  std::vector<std::shared_ptr<DistributedContext>> all() const;

 private:
  static constexpr size_t kSlice = 64;

  bool may_be_made(const Id& id) const;
  std::shared_ptr<DistributedContext> promise(const Id& id);
  void end_promises();
  void tell_released(const std::shared_ptr<DistributedContext>& context);
  Heard on_member_release(const Peer& from, const Id& id);
  void release_later(const std::shared_ptr<DistributedContext>& context);
  void end_orphans(Incarnation creator, const Error& error);
  std::shared_ptr<DistributedContext> any_of(Incarnation creator) const;
  size_t count_of(Incarnation creator) const;
  uint64_t number_of(const Id& id, int32_t creator_rank) const;
  std::shared_ptr<DistributedContext> insert(std::shared_ptr<ContextRecord> record, bool is_own);

  DautogradShared& shared_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  mutable Mutex mutex_;
  using ById = std::unordered_map<Id, std::shared_ptr<DistributedContext>>;
  std::unordered_map<Incarnation, ById> by_creator_ GUARDED_BY(mutex_);

  // On the loop.
  std::unordered_map<Incarnation, std::vector<std::weak_ptr<ContextRecord>>> orphans_;  // by lost creator
  std::map<Id, uint64_t> last_joint_;  // of meshes that this worker numbered: the contexts that its program has made
  std::set<Id> promised_;              // of those meshes: contexts that others have named before
};

}  // namespace distag
