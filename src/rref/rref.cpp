#include "rref/rref.h"

#include <utility>

#include "base/mutex.h"
#include "rref/sharing.h"

namespace distag {
namespace {

constexpr Nanos kDropAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

// The message to the owner that a fork has ended. It is allocated with the fork, as there may be no memory at its end.
struct ForkRelease : std::enable_shared_from_this<ForkRelease> {
  ForkRelease(std::shared_ptr<RrefHome> home_, std::shared_ptr<const Peer> owner_, const Id& fork_)
      : home(std::move(home_)), owner(std::move(owner_)), fork(fork_) {}

  const std::shared_ptr<RrefHome> home;
  const std::shared_ptr<const Peer> owner;
  const Id fork;
  TaskPlace place;
  bool is_late = false;  // a first attempt has failed; on the loop

  void begin() {
    home->gate.run_soon(place, [self = shared_from_this()] { self->say(); });
  }

 private:
  void say() {
    assert_on_loop(home->loop);
    try {
      home->sharing->drop(*owner, fork);
    } catch (...) {
      return say_later();
    }
    if (std::exchange(is_late, false)) home->sharing->note_late_drops(-1);
  }

  void say_later() {
    if (!std::exchange(is_late, true)) home->sharing->note_late_drops(1);
    home->loop.start_timer(place, home->loop.now() + kDropAgain,
                           [self = shared_from_this()] { self->home->gate.run([self] { self->say(); }); });
  }
};

std::shared_ptr<OwnedValue> RrefHome::make_value(const Id& id) {
  auto value = std::make_shared<OwnedValue>(shared_from_this(), id);
  table.add(value);
  return value;
}

Rref::Rref(std::shared_ptr<RrefHome> home, std::shared_ptr<OwnedValue> owned)
    : Reference(owned->id(), owned->id().maker, 1, owned->id()),  // as long as the reference that will travel
      home_(std::move(home)),
      owned_(std::move(owned)),
      confirmed_(true) {}

Rref::Rref(std::shared_ptr<RrefHome> home, const Id& value_id, std::shared_ptr<const Peer> owner_of_it,
           const Id& fork_id)
    : Reference(value_id, owner_of_it->incarnation, owner_of_it->rank, fork_id),
      home_(std::move(home)),
      owner_peer_(std::move(owner_of_it)),
      release_(fork_id ? std::make_shared<ForkRelease>(home_, owner_peer_, fork_id) : nullptr) {
  home_->used.fetch_add(1, std::memory_order_relaxed);
}

Rref::~Rref() {
  if (is_owner()) return;
  home_->used.fetch_sub(1, std::memory_order_relaxed);
  try {
    if (failure_ && !is_failure_seen_) {
      home_->gate.run([&log = home_->log, text = fmt::format("{}; no user saw it", failure_->message())] {
        log.write(LogLevel::kWarning, text);
      });
    }
  } catch (...) {
    // Without memory for the text nothing is logged.
  }
  if (release_ != nullptr) release_->begin();
}

uint64_t number_of(const Id& value) {
  // Mixes both halves of the id; each step is reversible, so that few ids collide.
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
