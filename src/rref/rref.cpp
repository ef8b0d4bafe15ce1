#include "rref/rref.h"

#include <utility>

#include "base/mutex.h"
#include "rref/sharing.h"

namespace distag {

std::shared_ptr<OwnedValue> RrefHome::make_value(const Id& id) {
  auto value = std::make_shared<OwnedValue>(shared_from_this(), id);
  table.add(value);
  return value;
}

Rref::Rref(std::shared_ptr<RrefHome> home, std::shared_ptr<OwnedValue> owned)
    : Reference(owned->id(), owned->id().maker, 1, owned->id()),  // as long as what will travel
      home_(std::move(home)),
      owned_(std::move(owned)),
      confirmed_(true) {}

Rref::Rref(std::shared_ptr<RrefHome> home, const Id& value_id, std::shared_ptr<const Peer> owner_of_it,
           const Id& fork_id)
    : Reference(value_id, owner_of_it->incarnation, owner_of_it->rank, fork_id),
      home_(std::move(home)),
      owner_peer_(std::move(owner_of_it)) {
  home_->used.fetch_add(1, std::memory_order_relaxed);
}

Rref::~Rref() {
  if (is_owner()) return;
  home_->used.fetch_sub(1, std::memory_order_relaxed);
  try {
    if (failure_ && !is_failure_seen_) {
      home_->gate.run([&log = home_->log, text = fmt::format("{}; nobody saw it", failure_->message())] {
        log.write(LogLevel::kWarning, text);
      });
    }
    if (!fork) return;
    home_->gate.run([home = home_, to = owner_peer_, dropped = fork] { home->sharing->drop(*to, dropped); });
  } catch (...) {
    // Without memory for the task the fork lives as long as this worker.
  }
}

uint64_t number_of(const Id& value) {
  // Mixes both halves of the name; each step can be undone, so that few names collide.
  uint64_t mixed = value.maker ^ (value.counter * 0x9E3779B97F4A7C15u);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

uint64_t Rref::number() const { return number_of(value); }

void Rref::fail(Error error) {
  MutexLock lock(mutex_);
  failure_ = std::move(error);
}

std::optional<Error> Rref::failure() {
  MutexLock lock(mutex_);
  is_failure_seen_ = true;
  return failure_;
}

std::shared_ptr<Rref> as_rref(const Value& value) {
  if (value.kind() != ValueKind::kRref) return nullptr;
  return std::dynamic_pointer_cast<Rref>(value.as_external());
}

}  // namespace distag
