#include "worker/members.h"

#include <utility>

#include "transport/socket/descriptors.h"

namespace distag {
namespace {

constexpr int kFewDescriptors = 32;

}  // namespace

Members::Members(const WorkerEnvironment& environment, Layers& layers, GroupLinks& links, EventLog& events)
    : loop_(environment.loop),
      log_(environment.log),
      layers_(layers),
      links_(links),
      events_(events),
      news_(std::make_shared<MemberNews>(
          environment.loop, environment.functions,
          [&layers](const std::function<void()>& code) { return layers.rpc.run_host_code("on_member", code); },
          environment.on_member)) {}

bool Members::may_join(const Peer& peer) const {
  assert_on_loop(loop_);
  const Membership& members = layers_.group.membership();
  const auto holder = members.find_by_rank(peer.rank);
  if (holder) return holder->peer.name == peer.name;
  return links_.is_open_world() && !members.find_by_name(peer.name);
}

void Members::look_up(const Peer& stranger) {
  assert_on_loop(loop_);
  links_.rendezvous->look_up(stranger.incarnation,
                             [this, incarnation = stranger.incarnation](const std::optional<Peer>& found) {
                               links_.session->settle_stranger(incarnation, found ? &*found : nullptr);
                             });
}

// The peer's name or rank may have been taken since the session asked about it.
void Members::on_admitted(const Peer& peer, bool is_serving) {
  assert_on_loop(loop_);
  if (may_join(peer)) {
    add(peer);
  } else if (is_serving) {
    links_.session->fence(peer.incarnation,
                          Error(Status::kDenied, fmt::format("worker \"{}\" is not a member of the group", peer.name)));
  }
}

void Members::add(const Peer& peer) {
  if (layers_.group.membership().find(peer.incarnation)) return;  // added by the roster, or by an earlier admission
  layers_.group.on_joined(peer);
  // A static group has checked its descriptors at the start.
  if (links_.is_open_world() && links_.transport->socket_report().engine != "" && !told_of_descriptors_ &&
      !has_descriptors(kFewDescriptors)) {
    told_of_descriptors_ = true;
    log_.write(LogLevel::kWarning,
               fmt::format("fewer than {} descriptors are free: raise the limit of open files (ulimit -n) before more "
                           "members come",
                           kFewDescriptors));
  }
  tell_of(peer);
}

void Members::on_lost(const Peer& peer, const Error& error) {
  assert_on_loop(loop_);
  events_.add("lost: " + error.message());
  layers_.on_lost(peer, error);
  on_gone(peer);
}

void Members::on_left(const Peer& peer) {
  assert_on_loop(loop_);
  events_.add(fmt::format("{} has left the group", describe_peer(peer)));
  layers_.on_left(peer);
  on_gone(peer);
}

// The membership has recorded the end by now, so the host gets the last record.
void Members::on_gone(const Peer& peer) {
  tell_of(peer);
  if (links_.rendezvous) links_.rendezvous->on_gone(peer.incarnation);
}

void Members::tell_of(const Peer& peer) {
  assert_on_loop(loop_);
  if (!news_->is_wanted()) return;
  if (auto record = layers_.group.membership().find(peer.incarnation)) news_->post(*std::move(record));
}

void Members::probe(Incarnation member, Task on_alive) {
  assert_on_loop(loop_);
  SendOptions sending;
  sending.on_acknowledged = std::move(on_alive);
  try {
    links_.session->send(member, wire::Ping{}, std::move(sending));
  } catch (const Error&) {
    loop_.post_or_drop([this, member] {  // the member is lost
      if (links_.rendezvous) links_.rendezvous->on_gone(member);
    });
  }
}

}  // namespace distag
