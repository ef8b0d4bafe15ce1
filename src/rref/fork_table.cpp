#include "rref/fork_table.h"

#include <utility>

namespace distag {

size_t ForkTable::held_by(Incarnation holder) const {
  const auto found = counts_.find(holder);
  return found == counts_.end() ? 0 : found->second;
}

std::vector<ForkTable::Held> ForkTable::all() const {
  std::vector<Held> all;
  all.reserve(forks_.size());
  for (const auto& [fork, held] : forks_) all.push_back(held);
  return all;
}

ForkTable::Place ForkTable::add(const Id& fork, std::shared_ptr<OwnedValue> value, Incarnation holder) {
  size_t& count = counts_[holder];
  const auto added = forks_.emplace(Key{fork, holder}, Held{std::move(value), holder});
  ++count;
  note_total();
  return added;
}

void ForkTable::end(Place fork) {
  const Held ended = std::move(fork->second);
  forks_.erase(fork);
  --counts_[ended.holder];
  note_total();
}

bool ForkTable::end(const Id& fork, Incarnation holder) {
  const auto found = forks_.find({fork, holder});
  if (found == forks_.end()) return false;
  end(found);
  return true;
}

void ForkTable::take_back(const std::function<bool(const Id& fork)>& matches) {
  std::erase_if(forks_, [this, &matches](const auto& entry) {
    if (!matches(entry.first.fork)) return false;
    --counts_[entry.first.holder];
    return true;
  });
  note_total();
}

std::vector<ForkTable::Held> ForkTable::take_held_by(Incarnation holder) {
  std::vector<Held> taken;
  for (auto at = forks_.begin(); at != forks_.end();) {
    if (at->second.holder == holder) {
      taken.push_back(std::move(at->second));
      at = forks_.erase(at);
    } else {
      ++at;
    }
  }
  counts_.erase(holder);
  note_total();
  return taken;
}

ForkTable::Forks ForkTable::take_all() {
  counts_.clear();
  Forks taken = std::exchange(forks_, {});
  note_total();
  return taken;
}

}  // namespace distag
