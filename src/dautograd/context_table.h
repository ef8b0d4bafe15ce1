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

// The contexts that one worker holds: how they are made, and how they end. On the loop, unless marked "any thread".
class ContextTable {
 public:
  static constexpr size_t kMaxPerCreator = 65536;
  // The most holders of a context that are noted: as many as a group has ranks.
  static constexpr size_t kMaxHolders = 65536;

  explicit ContextTable(DautogradShared& shared) : shared_(shared) {}

  // Any thread. The record for a handle of the context; one that is over if this worker does not hold the context.
  std::shared_ptr<ContextRecord> find_record(const Id& id) const;

  void add_own(std::shared_ptr<ContextRecord> record);  // any thread

  // Adds a joint context that the program of a member makes; a message may have brought it before. Any thread. Then
  // begin_joint() follows, with the other members; on_handle_gone() ends it.
  std::shared_ptr<ContextRecord> add_joint(const Id& id, int32_t creator_rank);
  void begin_joint(const Id& id, const std::vector<Incarnation>& members);
  void on_handle_gone(const Id& id);

  std::shared_ptr<DistributedContext> find(const Id& id) const;  // any thread
  // For a call in the context that a peer made. Throws OVERLOADED, INVALID_STATE, DISCONNECTED.
  std::shared_ptr<DistributedContext> find_or_make(const wire::AutogradMetadata& metadata, const Peer& from);
  // The reason why an id is not in the table.
  Error missing(const Id& id) const;

  // Notes workers that hold the context, as a peer reports.
  void note_holders(DistributedContext& context, const std::vector<Incarnation>& workers);
  // The holders that an answer to `to` has to name.
  std::vector<Incarnation> holders_to_tell(DistributedContext& context, Incarnation to);
  // Notes that an answer to `to` names these holders.
  void note_told(DistributedContext& context, Incarnation to, const std::vector<Incarnation>& holders);

  // At the creator: sends RELEASE to all holders once nothing needs the context any more. At another member, for a
  // joint context: sends RELEASE to the creator.
  void release_if_over(const std::shared_ptr<DistributedContext>& context);
  Heard on_release(const Peer& from, const wire::Release& release);
  Heard on_joined(const Peer& from, const Id& context);
  // Ends the contexts of a lost peer in slices, a task each: they may be many. Each stays as it is until its turn.
  void on_gone(Incarnation peer, const Error& error);
  // A creator that was gone is back: handles of its contexts, and later uses, report that.
  void on_restarted(Incarnation peer, const Error& error);
  // Ends the context here: passes, gradients, and the graph. Not its calls.
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
  std::map<Id, uint64_t> last_joint_;  // for meshes that this worker numbered: the program's last context
  std::set<Id> promised_;              // contexts of those meshes that other members have named first
};

}  // namespace distag
