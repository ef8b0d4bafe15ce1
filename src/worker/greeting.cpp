#include "worker/greeting.h"

#include <string>
#include <utility>

namespace distag {

Greeting::Greeting(Loop& loop, Session& session, Done done) : loop_(loop), session_(session), done_(std::move(done)) {}

Greeting::~Greeting() {
  if (timer_ != 0) loop_.cancel_timer(timer_);
}

void Greeting::begin(const std::vector<Peer>& members, Nanos deadline) {
  assert_on_loop(loop_);
  for (const Peer& member : members) {
    if (member.incarnation != session_.self().incarnation) greet(member.incarnation);
  }
  if (unheard_.empty()) return done_(std::nullopt);
  if (deadline == kNever) return;
  timer_ = loop_.start_timer(deadline, [this] {
    timer_ = 0;
    on_deadline();
  });
}

void Greeting::greet(Incarnation member) {
  SendOptions options;
  options.on_acknowledged = [this, alive = std::weak_ptr<char>(alive_), member] {
    if (!alive.expired()) settle(member);
  };
  try {
    session_.send(member, wire::Ping{}, std::move(options));
    unheard_.insert(member);
  } catch (const Error&) {
    // It is gone.
  }
}

void Greeting::settle(Incarnation member) {
  assert_on_loop(loop_);
  if (unheard_.erase(member) != 0 && unheard_.empty()) done_(std::nullopt);
}

void Greeting::on_deadline() {
  assert_on_loop(loop_);
  std::string names;
  for (Incarnation member : unheard_) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", session_.find(member)->name);
  }
  unheard_.clear();
  done_(Error(Status::kDeadline,
              fmt::format("time was up before all members knew of this worker: {} did not answer", names)));
}

}  // namespace distag
