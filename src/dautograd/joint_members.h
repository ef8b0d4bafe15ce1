#pragma once

#include <set>
#include <utility>

#include "base/ids.h"

namespace distag {

// The other members of a mesh that use a joint context, as its creator counts them. On the loop.
//
// The program of the creator may make the context after others have used and released it. So a release that comes
// before make() is kept, and the member does not count then; from make() on, each member counts until it releases the
// context or is lost. No member counts twice, and none counts again.
class JointMembers {
 public:
  bool is_made() const { return is_made_; }
  // No member is left that has yet to release the context; true also before it is made.
  bool is_empty() const { return members_.empty(); }

  bool has_released(Incarnation member) const { return released_.contains(member); }
  // `members`: those that have not released the context.
  void make(std::set<Incarnation> members) {
    members_ = std::move(members);
    released_.clear();
    is_made_ = true;
  }
  void release(Incarnation member) {
    if (is_made_) {
      members_.erase(member);
    } else {
      released_.insert(member);
    }
  }
  // The member is lost. Returns whether it was the last one that counted.
  bool lose(Incarnation member) { return members_.erase(member) != 0 && members_.empty(); }

 private:
  bool is_made_ = false;
  std::set<Incarnation> members_;
  std::set<Incarnation> released_;  // before make()
};

}  // namespace distag
