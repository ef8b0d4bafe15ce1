#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/task.h"
#include "rref/fork_table.h"
#include "rref/rref.h"

namespace distag {

// Limits of one worker; items of each kind take about as many bytes as a small value. `forks` and `holds` stop an
// honest program before anything is sent; the other two are for a peer that keeps no bounds.
struct ReferenceBounds {
  size_t forks = size_t{1} << 20;          // forks that this worker passes on to one holder: OVERLOADED for one more
  size_t counted_forks = size_t{1} << 21;  // all forks of one holder: further forks are not counted
  size_t holds = size_t{1} << 20;          // holds that no owner has counted yet: OVERLOADED for one more
  size_t sought = size_t{1} << 16;         // values that may still come: a further value counts as gone
};

// The holders of each value: the protocol of schemas/references.fbs, on the loop. Requires ordered streams: everything
// that it sends to a worker, or that this worker numbers for a worker, arrives there in order, or one side is lost to
// the other.
class Sharing {
 public:
  class Streams {
   public:
    virtual ~Streams() = default;
    // The message is dropped when the peer is lost.
    virtual void send(const Peer& to, wire::Body body, Task on_acknowledged) = 0;
    virtual std::shared_ptr<const Peer> find(Incarnation worker) const = 0;  // nullptr: unknown
    virtual bool is_gone(Incarnation worker) const = 0;                      // lost, or left
    virtual std::string name_of_rank(int32_t rank) const = 0;                // "": no worker has the rank
  };

  Sharing(std::shared_ptr<RrefHome> home, Streams& streams, uint64_t own_maker, ReferenceBounds bounds = {})
      : home_(std::move(home)), streams_(streams), own_maker_(own_maker), bounds_(bounds), forks_(home_->forks) {}

  void begin(const Peer& self) {
    self_ = self.incarnation;
    rank_ = self.rank;
  }
  // Releases everything.
  void stop();

  // ---- passing on ----

  // Called before the message is sent. Throws OVERLOADED.
  void check_room(const Peer& to, const Rref& reference) const;
  // A reference as it travels, when its message is numbered. `reference` has to be held until after that.
  std::shared_ptr<ExternalValue> on_send(const Peer& to, const std::shared_ptr<Rref>& reference);
  // Undoes all on_send() calls since the mark, whose message does not go out. The caller holds their references.
  uint64_t mark() const { return last_fork_; }
  void take_back(uint64_t mark);
  // A reference as it arrives, before anything else is done with the message. Throws Violation.
  std::shared_ptr<Rref> on_receive(const Peer& from, const wire::Reference& reference);

  // ---- calls that make values ----

  void on_creation_queued(const Id& value) { unnumbered_.insert(value); }
  void on_creation_numbered(const Id& value) { unnumbered_.erase(value); }
  // The call never goes out.
  void on_creation_failed(const Peer& owner, const Id& value);
  // At the owner. The returned pointer holds the value until it is made. Throws Violation.
  std::shared_ptr<OwnedValue> on_creation(const Peer& from, const Id& value, std::string origin);

  // ---- messages, losses, releases ----

  // Handles a message of this protocol. Throws Violation.
  Heard handle(const Peer& from, const wire::Body& body);
  void on_gone(const Peer& peer);
  // Throws when there is no memory for the message: the Drop is still to be sent then.
  void drop(const Peer& owner, const Id& fork);
  // Counts +1 when a first attempt to drop fails, and -1 when a later attempt succeeds.
  void note_late_drops(int change) { late_drops_ += change; }

  // True if nothing of this worker waits for a peer's message, or is still to be sent.
  bool is_idle() const { return holds_.empty() && sought_.empty() && late_drops_ == 0; }
  // True if no reference is known here, nor on its way to or from here.
  bool is_empty() const {
    return is_idle() && forks_.is_empty() && to_self_.empty() && introductions_.empty() && unnumbered_.empty();
  }
  // The values of this worker that others hold.
  std::vector<ForkTable::Held> forks() const { return forks_.all(); }

 private:
  struct Hold {
    std::shared_ptr<Rref> reference;
    Incarnation receiver = 0;
  };
  struct Introduction {
    Incarnation sharer = 0;
    Incarnation owner = 0;
  };

  Id next_fork() { return {self_, last_fork_ += 2}; }
  // The value of this id, which may still be on its way. `via`: the worker that passed the reference on.
  std::shared_ptr<OwnedValue> find_or_seek(const Id& value, Incarnation via);
  void fail_as_gone(OwnedValue& value, Incarnation via, const char* why);
  std::string name_of(Incarnation worker) const;
  void introduce(const Peer& owner, Incarnation sharer, const std::shared_ptr<Rref>& reference);
  Heard on_fork(const Peer& from, const wire::Fork& fork);
  Heard on_forked(const Peer& from, const wire::Forked& forked);
  Heard on_drop(const Peer& from, const wire::Drop& drop);
  Heard on_seek(const Peer& from, const wire::Seek& seek);
  Heard on_sought(const Peer& from, const wire::Sought& sought);

  const std::shared_ptr<RrefHome> home_;
  Streams& streams_;
  const uint64_t own_maker_;  // the maker in the ids of values that this worker shares; not an incarnation
  const ReferenceBounds bounds_;
  Incarnation self_ = 0;
  int32_t rank_ = 0;
  int late_drops_ = 0;
  uint64_t last_fork_ = 0;  // even: the ids of values that calls make are odd, and their creator's fork has the same id

  ForkTable forks_;  // at the owner
  struct Sought {
    std::weak_ptr<OwnedValue> value;
    Incarnation via = 0;
  };
  std::unordered_map<Id, Sought> sought_;  // by value: values that may or may not come

  // State at users of values of others.
  std::unordered_map<Id, Hold> holds_;                  // by fork: passed on, and not yet counted by the owner
  std::unordered_map<Id, Hold> to_self_;                // by fork
  std::unordered_map<Id, Introduction> introductions_;  // by fork: introductions that the owner has not acknowledged
  std::unordered_set<Id> unnumbered_;                   // by value: creations that wait in the queue
};

}  // namespace distag
