#include "rref/sharing.h"

#include <fmt/format.h>

#include <utility>

#include "base/violation.h"

namespace distag {
namespace {

constexpr const char* kReleased = "all references to it were released, or the call that makes it never went out";

}  // namespace

void Sharing::stop() {
  const auto forks = forks_.take_all();
  const auto holds = std::exchange(holds_, {});
  const auto to_self = std::exchange(to_self_, {});
  for (const auto& [id, sought] : std::exchange(sought_, {})) {
    if (const auto value = sought.value.lock()) fail_as_gone(*value, sought.via, "this worker was shut down");
  }
  introductions_.clear();
  unnumbered_.clear();
}

std::string Sharing::name_of(Incarnation worker) const {
  const auto peer = streams_.find(worker);
  return peer == nullptr ? "a worker that is not known here" : fmt::format("worker \"{}\"", peer->name);
}

// ---- passing on ----

void Sharing::check_room(const Peer& to, const Rref& reference) const {
  if (to.incarnation == self_ || (!reference.is_owner() && to.incarnation == reference.owner)) return;
  if (reference.is_owner() && forks_.held_by(to.incarnation) >= bounds_.forks) {
    fail(Status::kOverloaded,
         "worker \"{}\" holds {} references to values of this worker, and may hold no more: release "
         "some there",
         to.name, bounds_.forks);
  }
  if (!reference.is_owner() && holds_.size() >= bounds_.holds) {
    fail(Status::kOverloaded,
         "{} references that this worker passed on are not known to their owners yet: wait for the "
         "futures of earlier calls first",
         bounds_.holds);
  }
}

std::shared_ptr<ExternalValue> Sharing::on_send(const Peer& to, const std::shared_ptr<Rref>& reference) {
  const Incarnation owner = reference->is_owner() ? self_ : reference->owner;
  const int32_t rank = reference->is_owner() ? rank_ : reference->owner_rank;
  if (to.incarnation == owner && owner != self_) {
    return std::make_shared<wire::Reference>(reference->value, owner, rank, Id{});
  }
  const Id fork = next_fork();
  if (to.incarnation == self_) {
    to_self_.emplace(fork, Hold{reference, self_});
  } else if (reference->is_owner()) {
    forks_.add(fork, reference->owned(), to.incarnation);
  } else if (!streams_.is_gone(owner)) {
    holds_.emplace(fork, Hold{reference, to.incarnation});
  }
  return std::make_shared<wire::Reference>(reference->value, owner, rank, fork);
}

std::shared_ptr<Rref> Sharing::on_receive(const Peer& from, const wire::Reference& reference) {
  if (from.incarnation == self_) {
    const auto found = to_self_.find(reference.fork);
    if (found == to_self_.end()) fail(Status::kInternal, "a reference to this worker itself was never sent");
    const std::shared_ptr<Rref> sent = std::move(found->second.reference);
    to_self_.erase(found);
    return sent;
  }
  if (reference.owner == self_) {
    if (reference.fork) violation("worker \"{}\" made a fork for the owner", from.name);
    return std::make_shared<Rref>(home_, find_or_seek(reference.value, from.incarnation));
  }
  if (reference.fork.maker != from.incarnation) {
    violation("worker \"{}\" passes on a fork that it has not made", from.name);
  }
  std::shared_ptr<const Peer> owner = streams_.find(reference.owner);
  if (owner == nullptr || streams_.is_gone(reference.owner)) {
    if (owner == nullptr) {
      Peer unknown;
      unknown.incarnation = reference.owner;
      unknown.rank = reference.owner_rank;
      unknown.name = streams_.name_of_rank(reference.owner_rank);
      owner = std::make_shared<const Peer>(unknown);
    }
    streams_.send(from, wire::Forked{reference.fork, self_}, {});
    return std::make_shared<Rref>(home_, reference.value, owner, Id{});
  }
  auto received = std::make_shared<Rref>(home_, reference.value, owner, reference.fork);
  if (reference.owner == from.incarnation) {
    received->confirm();
  } else {
    introduce(*owner, from.incarnation, received);
  }
  return received;
}

void Sharing::introduce(const Peer& owner, Incarnation sharer, const std::shared_ptr<Rref>& reference) {
  const Id fork = reference->fork;
  try {
    introductions_.emplace(fork, Introduction{sharer, owner.incarnation});
    streams_.send(owner, wire::Fork{reference->value, fork}, [this, fork, weak = std::weak_ptr<Rref>(reference)] {
      introductions_.erase(fork);
      if (const auto alive = weak.lock()) alive->confirm();
    });
  } catch (...) {
    introductions_.erase(fork);
    reference->forget_fork();
    throw;
  }
}

void Sharing::drop(const Peer& owner, const Id& fork) { streams_.send(owner, wire::Drop{fork}, {}); }

void Sharing::take_back(uint64_t mark) {
  const auto is_later = [this, mark](const Id& fork) {
    return fork.maker == self_ && fork.counter % 2 == 0 && fork.counter > mark;
  };
  forks_.take_back(is_later);
  std::erase_if(holds_, [&is_later](const auto& entry) { return is_later(entry.first); });
  std::erase_if(to_self_, [&is_later](const auto& entry) { return is_later(entry.first); });
}

// ---- values of this worker ----

std::shared_ptr<OwnedValue> Sharing::find_or_seek(const Id& id, Incarnation via) {
  if (auto value = home_->table.find(id)) return value;
  auto value = home_->make_value(id);
  if (id.maker == own_maker_ || id.maker == self_) {
    fail_as_gone(*value, via, kReleased);
    return value;
  }
  const auto maker = streams_.find(id.maker);
  if (maker == nullptr || streams_.is_gone(id.maker)) {
    fail_as_gone(*value, via, "the worker that had it made is lost");
    return value;
  }
  if (sought_.size() >= bounds_.sought && !sought_.contains(id)) {
    fail_as_gone(*value, via, "too many are awaited already");
    return value;
  }
  // An answer that is still awaited counts for the new value too: its sender has released the earlier
  // value.
  const auto [sought, is_new] = sought_.insert_or_assign(id, Sought{value, via});
  if (!is_new) return value;
  try {
    streams_.send(*maker, wire::Seek{id}, {});
  } catch (...) {
    sought_.erase(sought);
    throw;
  }
  return value;
}

void Sharing::fail_as_gone(OwnedValue& value, Incarnation via, const char* why) {
  value.outcome().fail(Error(
      Status::kNotFound, fmt::format("the value of the reference that {} passed on is gone: {}", name_of(via), why)));
}

std::shared_ptr<OwnedValue> Sharing::on_creation(const Peer& from, const Id& id, std::string origin) {
  if (id.maker != from.incarnation) {
    violation("worker \"{}\" makes a value under the name of another's", from.name);
  }
  if (from.incarnation != self_ && forks_.held_by(from.incarnation) >= bounds_.counted_forks) {
    fail(Status::kOverloaded,
         "worker \"{}\" holds {} references to values of this one, and may hold no more: release some there", from.name,
         bounds_.counted_forks);
  }
  std::shared_ptr<OwnedValue> value = home_->table.find(id);
  if (value == nullptr) value = home_->make_value(id);
  if (!value->origin().empty()) violation("worker \"{}\" makes a value twice", from.name);
  if (from.incarnation != self_) forks_.add(id, value, from.incarnation);
  value->set_origin(std::move(origin));
  sought_.erase(id);
  return value;
}

void Sharing::on_creation_failed(const Peer& owner, const Id& value) {
  streams_.send(owner, wire::Sought{value}, {});
  unnumbered_.erase(value);
}

// ---- messages and losses ----

Heard Sharing::handle(const Peer& from, const wire::Body& body) {
  if (const auto* fork = std::get_if<wire::Fork>(&body)) return on_fork(from, *fork);
  if (const auto* forked = std::get_if<wire::Forked>(&body)) return on_forked(from, *forked);
  if (const auto* drop = std::get_if<wire::Drop>(&body)) return on_drop(from, *drop);
  if (const auto* seek = std::get_if<wire::Seek>(&body)) return on_seek(from, *seek);
  return on_sought(from, std::get<wire::Sought>(body));
}

Heard Sharing::on_fork(const Peer& from, const wire::Fork& fork) {
  const Incarnation sharer = fork.fork.maker;
  if (sharer == from.incarnation || sharer == self_) {
    violation("worker \"{}\" introduces a fork that no other user made", from.name);
  }
  // A fork that is not counted is answered as well, so that the sharer releases it; its receiver will find the value
  // gone.
  const bool is_counted = forks_.held_by(from.incarnation) < bounds_.counted_forks;
  std::optional<ForkTable::Place> added;
  if (is_counted) added = forks_.add(fork.fork, find_or_seek(fork.value, sharer), from.incarnation);
  try {
    if (const auto peer = streams_.find(sharer)) streams_.send(*peer, wire::Forked{fork.fork, from.incarnation}, {});
  } catch (...) {
    if (added) forks_.end(*added);
    throw;
  }
  return is_counted ? Heard::kHandled : Heard::kRefused;
}

// The receiver of a fork may introduce it to any worker. That worker's answer has no effect, and is not its fault.
Heard Sharing::on_forked(const Peer& from, const wire::Forked& forked) {
  const auto found = holds_.find(forked.fork);
  if (found == holds_.end() || found->second.receiver != forked.holder) return Heard::kStale;
  if (found->second.receiver != from.incarnation && found->second.reference->owner != from.incarnation) {
    return Heard::kStale;
  }
  const Hold ended = std::move(found->second);
  holds_.erase(found);
  return Heard::kHandled;
}

Heard Sharing::on_drop(const Peer& from, const wire::Drop& drop) {
  return forks_.end(drop.fork, from.incarnation) ? Heard::kHandled : Heard::kStale;
}

Heard Sharing::on_seek(const Peer& from, const wire::Seek& seek) {
  if (seek.value.maker != self_) violation("worker \"{}\" seeks a value of another", from.name);
  if (!unnumbered_.contains(seek.value)) streams_.send(from, wire::Sought{seek.value}, {});
  return Heard::kHandled;
}

Heard Sharing::on_sought(const Peer& from, const wire::Sought& sought) {
  if (sought.value.maker != from.incarnation) {
    violation("worker \"{}\" answers for a value of another", from.name);
  }
  const auto found = sought_.find(sought.value);
  if (found == sought_.end()) return Heard::kStale;
  const Sought ended = found->second;
  if (const auto value = ended.value.lock()) fail_as_gone(*value, ended.via, kReleased);
  sought_.erase(sought.value);
  return Heard::kHandled;
}

void Sharing::on_gone(const Peer& peer) {
  const Incarnation gone = peer.incarnation;
  for (auto at = sought_.begin(); at != sought_.end();) {
    if (at->first.maker != gone) {
      ++at;
      continue;
    }
    const Sought ended = at->second;
    at = sought_.erase(at);
    if (const auto value = ended.value.lock()) fail_as_gone(*value, ended.via, "the worker that had it made is lost");
  }
  for (auto at = introductions_.begin(); at != introductions_.end();) {
    if (at->second.owner != gone) {
      ++at;
      continue;
    }
    const auto sharer = streams_.find(at->second.sharer);
    if (sharer != nullptr) streams_.send(*sharer, wire::Forked{at->first, self_}, {});
    at = introductions_.erase(at);
  }
  const auto forks = forks_.take_held_by(gone);
  std::vector<Hold> holds;  // they end when the map is consistent again
  for (auto at = holds_.begin(); at != holds_.end();) {
    const Hold& hold = at->second;
    if (hold.receiver != gone && hold.reference->owner != gone) {
      ++at;
      continue;
    }
    holds.push_back(std::move(at->second));
    at = holds_.erase(at);
  }
}

}  // namespace distag
