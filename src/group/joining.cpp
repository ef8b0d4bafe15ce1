#include "group/joining.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace distag {
namespace {

constexpr Nanos kLongStart = 5 * kSecond;

void check_request(const JoinRequest& request) {
  const bool is_open = request.world_size < 0;
  if (request.world_size == 0) fail(Status::kInvalidArgument, "a world has at least one worker, not 0");
  if (!is_open && (request.self.rank < 0 || request.self.rank >= request.world_size)) {
    fail(Status::kInvalidArgument, "rank {} is not in 0 .. {}", request.self.rank, request.world_size - 1);
  }
  if (request.job.empty() || request.job.size() > kLongestName) {
    fail(Status::kInvalidArgument, "the name of a job has 1 to {} bytes, this one has {}", kLongestName,
         request.job.size());
  }
  if (!is_worker_name(request.self.name) && !(is_open && request.self.name.empty())) {
    fail(Status::kInvalidArgument,
         "the name of a worker has 1 to {} characters of A-Z a-z 0-9 _ - . : ; \"{}\" has not", kLongestName,
         request.self.name);
  }
}

}  // namespace

Joining::Joining(Loop& loop, Log& log, std::string uri) : loop_(loop), log_(log), uri_(std::move(uri)) {}

Joining::~Joining() {
  if (deadline_timer_ != 0) loop_.cancel_timer(deadline_timer_);
  if (log_timer_ != 0) loop_.cancel_timer(log_timer_);
  cancel_timer();
}

void Joining::join(const JoinRequest& request, Callback done) {
  assert_on_loop(loop_);
  request_ = request;
  done_ = std::move(done);
  try {
    check_request(request_);
    if (request_.deadline != kNever) {
      deadline_timer_ = loop_.start_timer(request_.deadline, [this] {
        deadline_timer_ = 0;
        Error error = awaited();
        on_deadline();
        give_up(std::move(error));
      });
    }
    begun_ = loop_.now();
    log_in_a_while();
    begin();
  } catch (...) {
    give_up(current_error());
  }
}

// Logs what a long start waits for.
void Joining::log_in_a_while() {
  log_timer_ = loop_.start_timer(deadline_after(loop_.now(), kLongStart), [this] {
    log_timer_ = 0;
    log_.write(LogLevel::kInfo, fmt::format("the start has waited for {} s and goes on; so far {}",
                                            (loop_.now() - begun_) / kSecond, awaited().message()));
    log_in_a_while();
  });
}

void Joining::check_members(const std::vector<Peer>& members) const {
  const Peer& self = request_.self;
  const bool is_open = request_.world_size < 0;
  std::set<int32_t> ranks;
  std::set<std::string_view> names;
  std::set<Incarnation> incarnations;
  bool has_self = false;
  for (const Peer& peer : members) {
    if (peer.rank >= 0 && (is_open || peer.rank < request_.world_size)) ranks.insert(peer.rank);
    names.insert(peer.name);
    incarnations.insert(peer.incarnation);
    if (peer.incarnation != self.incarnation) continue;
    has_self = (self.rank < 0 || self.rank == peer.rank) && (self.name.empty() || self.name == peer.name);
  }
  const size_t size = is_open ? members.size() : static_cast<size_t>(request_.world_size);
  const bool is_whole = members.size() == size && ranks.size() == size && names.size() == size;
  if (has_self && is_whole && incarnations.size() == size) return;
  fail(Status::kProtocol, "the roster of {} is not that of our group", members.size());
}

void Joining::succeed(std::vector<Peer> members) {
  Outcome outcome;
  outcome.members = std::move(members);
  outcome.ok = true;
  tell(std::move(outcome));
}

void Joining::give_up(Error error) {
  Outcome outcome;
  outcome.error = std::move(error);
  tell(std::move(outcome));
}

void Joining::tell(Outcome outcome) {
  assert_on_loop(loop_);
  if (std::exchange(is_over_, true)) return;
  if (deadline_timer_ != 0) loop_.cancel_timer(std::exchange(deadline_timer_, 0));
  if (log_timer_ != 0) loop_.cancel_timer(std::exchange(log_timer_, 0));
  loop_.post_or_drop(
      [alive = std::weak_ptr<char>(alive_), done = std::move(done_), outcome = std::move(outcome)]() mutable {
        if (!alive.expired()) done(std::move(outcome));
      });
}

wire::Join Joining::join_message() const {
  wire::Join join;
  join.job = request_.job;
  join.world_size = request_.world_size;
  join.member = to_member(request_.self);
  join.host = request_.host;
  join.process = request_.process;
  return join;
}

void Joining::set_timer(Nanos when, Task task) {
  cancel_timer();
  timer_ = loop_.start_timer(when, [this, kept = std::move(task)]() mutable {
    timer_ = 0;
    kept();
  });
}

void Joining::cancel_timer() {
  if (timer_ != 0) loop_.cancel_timer(std::exchange(timer_, 0));
}

Nanos Joining::next_pause(Nanos pause, Nanos first, Nanos longest) {
  return pause == 0 ? first : std::min(2 * pause, longest);
}

}  // namespace distag
