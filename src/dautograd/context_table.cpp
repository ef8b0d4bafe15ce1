#include "dautograd/context_table.h"

#include "base/each_step.h"
#include "base/mutex.h"
#include "base/violation.h"
#include "dautograd/joint_id.h"
#include "dautograd/local_pass.h"
#include "dautograd/pass_initiator.h"

namespace distag {
namespace {

constexpr Nanos kReleaseAgain = 100 * kMillisecond;  // after a shortage of memory
// Joint contexts that others have named, but the program of their creator has not made.
constexpr size_t kMostPromised = 4096;

Error end_with_creator(const Error& loss) {
  return Error(loss.status(), "the context ended with its creator: " + loss.message());
}

}  // namespace

std::shared_ptr<ContextRecord> ContextTable::find_record(const Id& id) const {
  if (auto context = find(id)) return context->record;
  auto record = std::make_shared<ContextRecord>(id, number_of(id, -1));
  record->close(Error(Status::kInvalidState, "the context has ended"));
  return record;
}

std::shared_ptr<DistributedContext> ContextTable::find(const Id& id) const {
  MutexLock lock(mutex_);
  const auto creator = by_creator_.find(id.maker);
  if (creator == by_creator_.end()) return nullptr;
  const auto found = creator->second.find(id);
  return found == creator->second.end() ? nullptr : found->second;
}

uint64_t ContextTable::number_of(const Id& id, int32_t creator_rank) const {
  if (id.maker == shared_.self.incarnation) {
    creator_rank = shared_.self.rank;
  } else if (auto creator = shared_.group.membership().find(id.maker)) {
    creator_rank = creator->peer.rank;
  }
  return number_for_people(id, creator_rank);
}

std::shared_ptr<DistributedContext> ContextTable::insert(std::shared_ptr<ContextRecord> record, bool is_own) {
  auto context = std::make_shared<DistributedContext>();
  const Id id = record->id();
  context->record = std::move(record);
  context->is_own = is_own;
  MutexLock lock(mutex_);
  const auto [creator, is_new] = by_creator_.try_emplace(id.maker);
  try {
    const auto [entry, is_first] = creator->second.try_emplace(id, context);
    if (!is_first) return entry->second;
  } catch (...) {
    if (is_new) by_creator_.erase(creator);
    throw;
  }
  ++shared_.counters.contexts;
  return context;
}

void ContextTable::add_own(std::shared_ptr<ContextRecord> record) { insert(std::move(record), true); }

// ---- joint contexts ----

std::shared_ptr<ContextRecord> ContextTable::add_joint(const Id& id, int32_t creator_rank) {
  if (const auto context = find(id)) return context->record;
  auto record = std::make_shared<ContextRecord>(id, number_for_people(id, creator_rank));
  return insert(std::move(record), id.maker == shared_.self.incarnation)->record;
}

void ContextTable::begin_joint(const Id& id, const std::vector<Incarnation>& members) {
  assert_on_loop(shared_.environment.loop);
  const auto context = find(id);
  if (context == nullptr) return;  // lost meanwhile
  if (!context->is_own) {
    if (shared_.is_gone(id.maker)) drop(context, missing(id));
    return;
  }
  std::set<Incarnation> others;
  for (const Incarnation member : members) {
    if (!context->members.has_released(member) && !shared_.is_gone(member)) others.insert(member);
  }
  uint64_t& last = last_joint_[mesh_of_joint(id)];
  last = std::max(last, number_of_joint(id));
  context->members.make(std::move(others));
  promised_.erase(id);
  end_promises();
  release_if_over(context);
}

void ContextTable::on_handle_gone(const Id& id) {
  assert_on_loop(shared_.environment.loop);
  const auto context = find(id);
  if (context == nullptr) return;
  context->is_handle_gone = true;
  release_if_over(context);
}

// Whether the program of this worker may still make it: other members may be ahead.
bool ContextTable::may_be_made(const Id& id) const {
  if (!is_joint(id) || id.maker != shared_.self.incarnation) return false;
  const Id mesh = mesh_of_joint(id);
  const auto last = last_joint_.find(mesh);
  if (last != last_joint_.end() && number_of_joint(id) <= last->second) return false;
  const auto& is_open = shared_.environment.is_mesh_open;
  return is_open && is_open(mesh) && promised_.size() < kMostPromised;
}

// nullptr if the program will not make it.
std::shared_ptr<DistributedContext> ContextTable::promise(const Id& id) {
  if (!may_be_made(id)) return nullptr;
  promised_.insert(id);
  try {
    return insert(std::make_shared<ContextRecord>(id, number_of(id, shared_.self.rank)), true);
  } catch (...) {
    promised_.erase(id);
    throw;
  }
}

// Ends the promises of meshes that have ended: their contexts are not made any more.
void ContextTable::end_promises() {
  const auto& is_open = shared_.environment.is_mesh_open;
  std::erase_if(last_joint_, [&is_open](const auto& last) { return !is_open(last.first); });
  for (auto next = promised_.begin(); next != promised_.end();) {
    const Id id = *next++;
    if (is_open(mesh_of_joint(id))) continue;
    promised_.erase(id);
    on_handle_gone(id);
  }
}

// Tells the creator. The context stays until all members have released it: they may step its gradients here.
void ContextTable::tell_released(const std::shared_ptr<DistributedContext>& context) {
  if (context->has_told_release) return;
  try {
    shared_.tell(context->id().maker, wire::Release{{context->id()}});
  } catch (const std::bad_alloc&) {
    return release_later(context);
  }
  context->has_told_release = true;
}

Heard ContextTable::on_member_release(const Peer& from, const Id& id) {
  end_promises();
  auto context = find(id);
  if (context == nullptr) context = promise(id);
  if (context == nullptr) {
    const wire::Release over{{id}};
    shared_.tell(from.incarnation, over);
    return Heard::kStale;
  }
  context->holders.insert(from.incarnation);
  context->members.release(from.incarnation);
  if (context->members.is_made()) release_if_over(context);
  return Heard::kHandled;
}

// ---- how they come and go ----

std::vector<std::shared_ptr<DistributedContext>> ContextTable::all() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::shared_ptr<DistributedContext>> result;
  MutexLock lock(mutex_);
  for (const auto& [creator, contexts] : by_creator_) {
    for (const auto& [id, context] : contexts) result.push_back(context);
  }
  return result;
}

size_t ContextTable::count_of(Incarnation creator) const {
  MutexLock lock(mutex_);
  auto found = by_creator_.find(creator);
  return found == by_creator_.end() ? 0 : found->second.size();
}

Error ContextTable::missing(const Id& id) const {
  assert_on_loop(shared_.environment.loop);
  if (id.maker == shared_.self.incarnation && !is_joint(id) && id.counter > shared_.last_context) {
    return Error(Status::kInvalidArgument, "the context is not one of this worker");
  }
  const Error* gone = shared_.session == nullptr ? nullptr : shared_.session->gone(id.maker);
  if (gone != nullptr) return end_with_creator(*gone);
  return Error(Status::kInvalidState, "the context has ended, or is of another worker");
}

std::shared_ptr<DistributedContext> ContextTable::find_or_make(const wire::AutogradMetadata& metadata,
                                                               const Peer& from) {
  assert_on_loop(shared_.environment.loop);
  const Id& id = metadata.context;
  if (auto found = find(id)) return found;
  const bool is_known_worker = id.maker == shared_.self.incarnation || shared_.session->find(id.maker) != nullptr;
  if (!is_known_worker) {
    fail(Status::kDisconnected, "the creator of the context was never in the group, or gone before this worker joined");
  }
  if (id.maker == shared_.self.incarnation) {
    if (const auto context = promise(id)) return context;
  }
  if (id.maker == shared_.self.incarnation || shared_.session->gone(id.maker) != nullptr) throw missing(id);
  if (count_of(id.maker) >= kMaxPerCreator) {
    fail(Status::kOverloaded, "this worker holds {} contexts of {}, which is the limit; release some there",
         kMaxPerCreator, shared_.describe(id.maker));
  }
  auto context = insert(std::make_shared<ContextRecord>(id, number_of(id, metadata.creator_rank)), false);
  if (id.maker == from.incarnation) return context;
  try {
    context->holders.insert(shared_.self.incarnation);
    shared_.tell(id.maker, wire::Joined{id, {}});
  } catch (...) {
    drop(context, Error(Status::kOutOfMemory, "no memory"));  // else its creator would never end it
    throw;
  }
  return context;
}

void ContextTable::note_holders(DistributedContext& context, const std::vector<Incarnation>& workers) {
  assert_on_loop(shared_.environment.loop);
  for (Incarnation worker : workers) {
    if (context.is_own && (worker == shared_.self.incarnation || shared_.is_gone(worker))) continue;
    if (worker != context.id().maker && context.holders.size() < kMaxHolders) context.holders.insert(worker);
  }
}

std::vector<Incarnation> ContextTable::holders_to_tell(DistributedContext& context, Incarnation to) {
  assert_on_loop(shared_.environment.loop);
  std::vector<Incarnation> result;
  if (context.is_own) return result;
  const auto told = context.told.find(to);
  for (Incarnation holder : context.holders) {
    if (holder != to && (told == context.told.end() || !told->second.contains(holder))) result.push_back(holder);
  }
  return result;
}

void ContextTable::note_told(DistributedContext& context, Incarnation to, const std::vector<Incarnation>& holders) {
  assert_on_loop(shared_.environment.loop);
  if (!holders.empty()) context.told[to].insert(holders.begin(), holders.end());
}

void ContextTable::release_if_over(const std::shared_ptr<DistributedContext>& context) {
  assert_on_loop(shared_.environment.loop);
  if (!context->is_handle_gone || context->open_calls != 0 || context->open_passes != 0) return;
  if (!context->is_own) return tell_released(context);
  if (!context->members.is_empty()) return;
  Error over;
  try {
    over = Error(Status::kInvalidState, "the context has ended");
    while (!context->holders.empty()) {
      shared_.tell(*context->holders.begin(), wire::Release{{context->id()}});
      context->holders.erase(context->holders.begin());
    }
  } catch (const std::bad_alloc&) {
    return release_later(context);
  }
  drop(context, over);
}

// Tries again later: the context would stay with holders that do not hear of its end.
void ContextTable::release_later(const std::shared_ptr<DistributedContext>& context) {
  Loop& loop = shared_.environment.loop;
  if (std::exchange(context->waits_to_release, true)) return;
  loop.start_timer(context->again, loop.now() + kReleaseAgain, [this, alive = std::weak_ptr<char>(alive_), context] {
    context->waits_to_release = false;
    if (!alive.expired() && find(context->id()) == context) release_if_over(context);
  });
}

Heard ContextTable::on_release(const Peer& from, const wire::Release& release) {
  assert_on_loop(shared_.environment.loop);
  Heard heard = Heard::kStale;
  for (const Id& id : release.contexts) {
    if (is_joint(id) && id.maker == shared_.self.incarnation) {
      if (on_member_release(from, id) == Heard::kHandled) heard = Heard::kHandled;
      continue;
    }
    if (id.maker != from.incarnation) {
      violation("worker \"{}\" ends a context of another", from.name);
    }
    auto context = find(id);
    if (context == nullptr) {
      shared_.rpc.end_context(id);  // the rest of it, if memory was short the first time
      continue;
    }
    const Error why(Status::kInvalidState,
                    fmt::format("the context has ended: its creator, {}, released it", shared_.describe(id.maker)));
    EachStep each;
    each([this, &context, &why] { drop(context, why); });
    each([this, &id] { shared_.rpc.end_context(id); });
    each.check();
    heard = Heard::kHandled;
  }
  return heard;
}

Heard ContextTable::on_joined(const Peer& from, const Id& id) {
  assert_on_loop(shared_.environment.loop);
  if (id.maker != shared_.self.incarnation) {
    violation("worker \"{}\" joined a context that is not of this worker", from.name);
  }
  auto context = find(id);
  if (context == nullptr) context = promise(id);
  if (context != nullptr) {
    context->holders.insert(from.incarnation);
    return Heard::kHandled;
  }
  shared_.tell(from.incarnation, wire::Release{{id}});
  return Heard::kStale;
}

void ContextTable::on_gone(Incarnation peer, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  std::vector<std::shared_ptr<DistributedContext>> over;  // joint contexts that all members have released
  {
    MutexLock lock(mutex_);
    for (const auto& [creator, contexts] : by_creator_) {
      if (creator == peer) continue;
      for (const auto& [id, context] : contexts) {
        context->holders.erase(peer);
        if (context->members.lose(peer)) over.push_back(context);
      }
    }
  }
  for (const auto& context : over) release_if_over(context);
  end_promises();
  end_orphans(peer, error);
}

std::shared_ptr<DistributedContext> ContextTable::any_of(Incarnation creator) const {
  MutexLock lock(mutex_);
  const auto found = by_creator_.find(creator);
  return found == by_creator_.end() || found->second.empty() ? nullptr : found->second.begin()->second;
}

void ContextTable::end_orphans(Incarnation creator, const Error& error) {
  for (size_t i = 0; i < kSlice; ++i) {
    const std::shared_ptr<DistributedContext> context = any_of(creator);
    if (context == nullptr) return;
    const Error* latest = shared_.session->gone(creator);  // the creator may have restarted meanwhile
    const bool is_restarted = latest != nullptr && latest->status() == Status::kPeerRestarted;
    const bool has_handles = context->record.use_count() > 1;
    if (has_handles && !is_restarted) orphans_[creator].push_back(context->record);
    const Id id = context->id();
    drop(context, end_with_creator(latest == nullptr ? error : *latest));
    // Posted: calls to the lost worker itself end with the loss, not with the context.
    shared_.environment.loop.post_or_drop([rpc = &shared_.rpc, id] { rpc->end_context(id); });
  }
  shared_.environment.loop.post_or_drop([this, alive = std::weak_ptr<char>(alive_), creator, error] {
    if (!alive.expired() && shared_.is_started) end_orphans(creator, error);
  });
}

void ContextTable::on_restarted(Incarnation peer, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  const auto found = orphans_.find(peer);
  if (found == orphans_.end()) return;
  for (const auto& orphan : found->second) {
    if (const auto record = orphan.lock()) record->close_anew(end_with_creator(error));
  }
  orphans_.erase(found);
}

void ContextTable::drop(const std::shared_ptr<DistributedContext>& context, const Error& why) {
  assert_on_loop(shared_.environment.loop);
  const Id id = context->id();
  EachStep each;
  each([&context, &why] { context->record->close(why); });
  for (const auto& [pass_id, pass] : std::exchange(context->passes, {})) {
    each([&pass = pass, &why] {
      if (pass.initiator != nullptr) {
        pass.initiator->abort(why.status() == Status::kInvalidState ? Error(Status::kCancelled, why.message()) : why);
      } else {
        pass.part->end(why);
      }
    });
  }
  if (!context->sends.empty()) {
    each([this, &context] { shared_.environment.compute.post_or_drop([sends = std::move(context->sends)] {}); });
    context->sends.clear();
  }
  context->lineage.clear(shared_.lineage);
  --shared_.counters.contexts;
  {
    MutexLock lock(mutex_);
    const auto creator = by_creator_.find(id.maker);
    if (creator != by_creator_.end() && creator->second.erase(id) != 0 && creator->second.empty()) {
      by_creator_.erase(creator);
    }
  }
  each.check();
}

void ContextTable::drop_all(const Error& why) {
  assert_on_loop(shared_.environment.loop);
  EachStep each;
  for (const auto& context : all()) each([this, &context, &why] { drop(context, why); });
  each.check();
}

}  // namespace distag
