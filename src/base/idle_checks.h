#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace distag {

// The checks that a loop calls before it sleeps. A check that is removed while checks run is not called any more; one
// that is added meanwhile has its turn in the same round. Not thread-safe.
class IdleChecks {
 public:
  uint64_t add(std::function<bool()> check) {
    const uint64_t id = next_++;
    checks_.push_back({id, std::make_shared<std::function<bool()>>(std::move(check))});
    return id;
  }
  void remove(uint64_t id) {
    for (Check& check : checks_) {
      if (check.id == id) std::exchange(check.call, nullptr).reset();
    }
  }
  // Calls `run` with each check.
  template <typename Run>
  void each(Run&& run) {
    for (size_t i = 0; i < checks_.size(); ++i) {
      // Held: the callback may remove itself.
      const auto call = checks_[i].call;
      if (call) run(*call);
    }
    std::erase_if(checks_, [](const Check& check) { return !check.call; });
  }
  // Objects that the checks own may call the loop from their destructors.
  void clear() { std::exchange(checks_, {}).clear(); }

 private:
  struct Check {
    uint64_t id;
    std::shared_ptr<std::function<bool()>> call;  // null: removed
  };

  std::vector<Check> checks_;
  uint64_t next_ = 1;
};

}  // namespace distag
