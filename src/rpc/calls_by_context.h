#pragma once

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/ids.h"

namespace distag {

// The open calls of each context, so that its end need not search all calls. Calls without a context are not noted. On
// the loop.
class CallsByContext {
 public:
  void add(const Id& context, const Id& call) {
    if (!context) return;
    const auto [entry, is_new] = calls_.try_emplace(context);
    try {
      entry->second.insert(call);
    } catch (...) {
      if (is_new) calls_.erase(entry);
      throw;
    }
  }
  void remove(const Id& context, const Id& call) {
    const auto found = calls_.find(context);
    if (found == calls_.end()) return;
    found->second.erase(call);
    if (found->second.empty()) calls_.erase(found);
  }
  // Takes out the calls of a context that ends.
  std::unordered_set<Id> take(const Id& context) {
    const auto found = calls_.find(context);
    if (found == calls_.end()) return {};
    auto ended = calls_.extract(found);
    return std::move(ended.mapped());
  }
  void clear() { calls_.clear(); }

 private:
  std::unordered_map<Id, std::unordered_set<Id>> calls_;
};

}  // namespace distag
