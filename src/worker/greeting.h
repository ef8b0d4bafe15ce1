#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/loop.h"
#include "base/turns.h"
#include "session/session.h"

namespace distag {

// Says HELLO to the members of a running group, so that they know this worker before they learn of it from others. On
// the loop.
class Greeting {
 public:
  // Nothing, or DEADLINE naming the members that did not answer.
  using Done = std::function<void(std::optional<Error>)>;

  Greeting(Loop& loop, Session& session, Done done);
  ~Greeting();

  // `done` runs once each member has acknowledged or is gone; at once without members.
  void begin(const std::vector<Peer>& members, Nanos deadline);
  void on_gone(Incarnation member) { settle(member); }
  // A member does not admit this worker: the start fails with its reason.
  void on_denied(const Error& why);

 private:
  void greet(Incarnation member);
  void settle(Incarnation member);
  void on_deadline();

  Loop& loop_;
  Session& session_;
  const Done done_;
  Turns turns_;
  std::set<Incarnation> unheard_;
  Loop::TimerId timer_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace distag
