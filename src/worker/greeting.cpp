#include "worker/greeting.h"

#include <string>
#include <utility>

namespace distag {
namespace {

constexpr size_t kMembersATurn = 8;  // each is dialled, which takes some 50 us

}  // namespace

Greeting::Greeting(Loop& loop, Session& session, Done done)
    : loop_(loop), session_(session), done_(std::move(done)), turns_(loop, kMembersATurn) {}

Greeting::~Greeting() {
  if (timer_ != 0) loop_.cancel_timer(timer_);
}

void Greeting::begin(const std::vector<Peer>& members, Nanos deadline) {
  assert_on_loop(loop_);
  std::vector<Incarnation> others;
  for (const Peer& member : members) {
    if (member.incarnation == session_.self().incarnation || session_.gone(member.incarnation) != nullptr) continue;
    others.push_back(member.incarnation);
    unheard_.insert(member.incarnation);
  }
  if (unheard_.empty()) return done_(std::nullopt);
  if (deadline != kNever) {
    timer_ = loop_.start_timer(deadline, [this] {
      timer_ = 0;
      on_deadline();
    });
  }
  turns_.for_each(std::move(others), [this](Incarnation member) {
    if (unheard_.contains(member)) greet(member);
  });
}

void Greeting::greet(Incarnation member) {
  SendOptions options;
  options.on_acknowledged = [this, alive = std::weak_ptr<char>(alive_), member] {
    if (!alive.expired()) settle(member);
  };
  try {
    session_.send(member, wire::Ping{}, std::move(options));
  } catch (const Error&) {
    settle(member);  // the member is gone
  }
}

void Greeting::settle(Incarnation member) {
  assert_on_loop(loop_);
  if (unheard_.erase(member) != 0 && unheard_.empty()) done_(std::nullopt);
}

void Greeting::on_denied(const Error& why) {
  assert_on_loop(loop_);
  if (unheard_.empty()) return;
  unheard_.clear();
  done_(why);
}

void Greeting::on_deadline() {
  assert_on_loop(loop_);
  std::string names, lacks;
  for (Incarnation member : unheard_) {
    if (lacks.empty()) lacks = session_.lack_text(member);
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", session_.find(member)->name);
  }
  unheard_.clear();
  done_(Error(Status::kDeadline,
              fmt::format("time was up before all members knew of this worker: {} did not answer{}", names, lacks)));
}

}  // namespace distag
