#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "rref/owned.h"

namespace distag {

// The forks of this worker's values, by which other workers hold them. The holder is part of the key, so that no holder
// can use the id of another holder's fork. A sharer may send one fork to its receiver twice, which is not the
// receiver's fault: the receiver holds it twice then. Not thread-safe; values are released when the table is consistent
// again.
class ForkTable {
 public:
  struct Held {
    std::shared_ptr<OwnedValue> value;
    Incarnation holder = 0;
  };

 private:
  struct Key {
    Id fork;
    Incarnation holder = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept { return std::hash<Id>()(key.fork) ^ (key.holder * 31); }
  };
  using Forks = std::unordered_multimap<Key, Held, Hash>;

 public:
  using Place = Forks::iterator;

  // `total` counts the forks, for all threads.
  explicit ForkTable(std::atomic<uint64_t>& total) : total_(total) {}

  bool is_empty() const { return forks_.empty(); }
  size_t held_by(Incarnation holder) const;
  std::vector<Held> all() const;

  Place add(const Id& fork, std::shared_ptr<OwnedValue> value, Incarnation holder);
  void end(Place fork);
  // False: the holder has no such fork.
  bool end(const Id& fork, Incarnation holder);
  // Forgets forks that did not travel. Somebody else holds their values.
  void take_back(const std::function<bool(const Id& fork)>& matches);
  std::vector<Held> take_held_by(Incarnation holder);
  Forks take_all();

 private:
  void note_total() { total_.store(forks_.size(), std::memory_order_relaxed); }

  std::atomic<uint64_t>& total_;
  Forks forks_;
  std::unordered_map<Incarnation, size_t> counts_;  // by holder
};

}  // namespace distag
