#include "session/standings.h"

#include <utility>

#include "base/each_step.h"

namespace distag {

// The name is stored before the record is made: if there is no memory for the record, the next attempt finds the name
// as it is.
bool Standings::add(const Peer& peer) {
  assert_on_loop(shared_.loop);
  if (const PeerRecord* known = peers_.find(peer.incarnation)) return known->standing != Standing::kLost;
  if (const Tombstone* grave = peers_.find_grave(peer.incarnation)) return grave->standing == Standing::kLeft;
  NamedPeer& name = peers_.name_of(peer);
  if (name.latest.incarnation != 0 && name.latest.generation < peer.generation) replace_latest(name);
  if (name.latest.incarnation == 0 || name.latest.generation <= peer.generation) name.latest = peer;
  const size_t room = peers_.make_room();
  acks_.make_room(room);
  shared_.line.make_room(room);
  peers_.add(peer);
  return true;
}

PeerRecord& Standings::admit(const Peer& peer) {
  assert_on_loop(shared_.loop);
  add(peer);
  PeerRecord& record = *peers_.find(peer.incarnation);
  tell_soon(record, record.admission, [](SessionEvents& to, PeerRecord& added) { to.on_admitted(added.peer); });
  return record;
}

// A newer incarnation of the worker is known. Messages meant for the earlier one fail with PEER_RESTARTED from now
// on.
void Standings::replace_latest(NamedPeer& name) {
  const Peer before = name.latest;
  PeerRecord* record = peers_.find(before.incarnation);
  const Error why = loss_error(before, shared_, record == nullptr ? -1 : record->last.heard, Status::kPeerRestarted,
                               "it has restarted");
  const bool is_member = record != nullptr && record->is_member();
  // Posted first: if there is no memory for it, the next HELLO does all of this.
  if (!farewell_.has_begun() && !is_member) shared_.post([this, before, why] { events_.on_restarted(before, why); });
  name.restarted = why;
  if (record == nullptr) return peers_.mark_restarted(name);
  if (is_member) {
    lose(*record, why, wire::RefuseReason::kReplaced);
  } else {
    record->gone = why;
  }
  record->standing = Standing::kRestarted;
}

// Nothing of the peer is handled or sent any more.
void Standings::retire(PeerRecord& record, Standing standing, Error why) {
  record.standing = standing;
  record.gone = std::move(why);
  record.transfers.clear();
  record.inbox.clear();
  record.on_heard.reset();
  record.ack.due = kNever;
}

void Standings::lose(PeerRecord& record, Error why, wire::RefuseReason word) {
  assert_on_loop(shared_.loop);
  if (!record.is_member()) return;
  // Retired before its stream is closed: the callbacks of close() find no member any more, and cannot end it a second
  // time.
  retire(record, Standing::kLost, std::move(why));
  record.outgoing.close();
  ++shared_.stats.peers_lost;
  EachStep each;  // without memory for the text the peer is lost nevertheless
  if (!record.connection.empty()) {
    each([this, &record, word] {
      replies_.refuse(record.connection, word,
                      word == wire::RefuseReason::kUnreachable
                          ? fmt::format("it cannot dial back to {}", record.peer.endpoint)
                          : record.gone.message());
    });
  }
  if (!farewell_.has_begun()) {
    each([this, &record] { shared_.log.write(LogLevel::kWarning, record.gone.message()); });
    tell_soon(record, record.ending, [](SessionEvents& to, PeerRecord& lost) { to.on_lost(lost.peer, lost.gone); });
  }
  farewell_.on_progress();
}

void Standings::lose_once_heard(PeerRecord& record, Status status, std::string why, wire::RefuseReason word) {
  assert_on_loop(shared_.loop);
  end_once_heard(record, [this, &record, status, why = std::move(why), word] {
    lose(record, loss_error(record, shared_, status, why), word);
  });
}

void Standings::lose_for(PeerRecord& record, const Violation& violation) {
  assert_on_loop(shared_.loop);
  ++shared_.stats.messages_refused;
  lose(record, loss_error(record, shared_, Status::kProtocol, "it broke the protocol: " + violation.message()),
       wire::RefuseReason::kProtocol);
}

// LEAVE is acknowledged at once; the connection stays open for that until the peer drops it.
void Standings::on_leave(PeerRecord& record) {
  assert_on_loop(shared_.loop);
  Error why(Status::kDisconnected, fmt::format("{} has left the group", describe_peer(record.peer)));
  // Acknowledged before the record is retired: only a member gets it by WELCOME, where no connection to it is open.
  acks_.send(record, true);
  const bool is_told = !record.owes_ack();
  retire(record, Standing::kLeft, std::move(why));
  record.outgoing.end(is_told);
  if (!farewell_.has_begun()) {
    tell_soon(record, record.ending, [](SessionEvents& to, PeerRecord& left) { to.on_left(left.peer); });
  }
  farewell_.on_progress();
}

void Standings::end_once_heard(PeerRecord& record, Task end) {
  assert_on_loop(shared_.loop);
  if (record.inbox.is_empty()) {
    end();
  } else if (!record.on_heard) {
    record.on_heard = std::move(end);
  }
}

// The record leaves all lists before it is destroyed.
void Standings::bury_those_that_are_over() {
  assert_on_loop(shared_.loop);
  for (PeerRecord* record : std::vector<PeerRecord*>(peers_.all())) {
    if (record->is_member() || !record->outgoing.is_over() || record->has_events_to_tell()) continue;
    farewell_.count_anew();
    acks_.forget(*record);
    peers_.bury(*record);
  }
}

}  // namespace distag
