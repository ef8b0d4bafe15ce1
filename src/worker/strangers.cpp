// Those who join a running group: the rendezvous is asked who they are.
#include <utility>

#include "transport/socket/descriptors.h"
#include "worker/worker.h"
#include "worker/worker_state.h"

namespace distag {
namespace {

constexpr int kFewDescriptors = 32;

}  // namespace

bool Worker::on_stranger(const Peer& peer) {
  assert_on_loop(state_->environment.loop);
  return state_->on_stranger(peer);
}

// Whoever has the key of the group can say HELLO, and anything about himself: the rendezvous knows its members. It
// is asked once the roster is there: members of our group may know it before we do.
bool Worker::State::on_stranger(const Peer& peer) {
  if (!links.rendezvous || (gate.is_open() && !may_join(peer))) return false;
  if (roster.empty()) return true;
  links.rendezvous->look_up(peer.incarnation, [this, stranger = peer.incarnation](const std::optional<Peer>& found) {
    links.session->settle_stranger(stranger, found ? &*found : nullptr);
  });
  return true;
}

void Worker::on_admitted(const Peer& peer) {
  assert_on_loop(state_->environment.loop);
  state_->gate.pass([state = state_.get(), peer] { state->on_admitted(peer); });
}

void Worker::State::on_admitted(const Peer& peer) {
  if (may_join(peer)) {
    add_member(peer);
  } else if (phase == WorkerPhase::kStarted) {
    links.session->fence(peer.incarnation,
                         Error(Status::kDenied, fmt::format("worker \"{}\" is not a member of the group", peer.name)));
  }
}

// To an open world everyone whose name and rank are no other's; to a static one who comes back.
bool Worker::State::may_join(const Peer& peer) const {
  const Membership& members = layers.group.membership();
  const auto holder = members.find_by_rank(peer.rank);
  if (holder) return holder->peer.name == peer.name;
  return links.is_open_world() && !members.find_by_name(peer.name);
}

void Worker::State::add_member(const Peer& peer) {
  if (layers.group.membership().find(peer.incarnation)) return;
  layers.group.on_joined(peer);
  // A static group has counted them at its start.
  if (links.is_open_world() && links.transport->socket_report().engine != "" && !told_of_descriptors &&
      !has_descriptors(kFewDescriptors)) {
    told_of_descriptors = true;
    environment.log.write(LogLevel::kWarning,
                          fmt::format("fewer than {} descriptors are free: raise the limit of open files (ulimit -n) "
                                      "before more members come",
                                      kFewDescriptors));
  }
  tell_of(peer);
}

// For the rendezvous: the member answers, or is lost within a lease.
void Worker::State::probe(Incarnation member, Task on_alive) {
  SendOptions sending;
  sending.on_acknowledged = std::move(on_alive);
  try {
    links.session->send(member, wire::Ping{}, std::move(sending));
  } catch (const Error&) {
    environment.loop.post_or_drop([this, member] {  // it is lost
      if (links.rendezvous) links.rendezvous->on_gone(member);
    });
  }
}

void Worker::lose_members(std::vector<std::string> names, const Error& why) {
  state_->environment.loop.post_or_drop([state = state_, names = std::move(names), why] {
    if (state->links.session == nullptr) return;
    for (const std::string& name : names) {
      const std::shared_ptr<const Peer> peer = state->layers.group.membership().peer_named(name);
      if (peer == nullptr || state->links.session->gone(peer->incarnation) != nullptr) continue;
      state->links.session->fence(
          peer->incarnation, Error(why.status(), fmt::format("{} is lost: {}", describe_peer(*peer), why.message())));
    }
  });
}

}  // namespace distag
