#include "session/receiver.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/each_step.h"
#include "base/memory.h"
#include "base/violation.h"
#include "session/obstacle.h"

namespace distag {
namespace {

// Index in wire::Body: the bodies before it belong to the session.
constexpr size_t kFirstUpperBody = 7;
static_assert(std::is_same_v<std::variant_alternative_t<kFirstUpperBody, wire::Body>, wire::Call>);

void take_ack(PeerRecord& record, uint64_t number) {
  if (!record.outgoing.on_ack(number)) violation("it acknowledged {}, which was never sent", number);
}

bool has_lost(const Frames& frames) {
  return std::any_of(frames.begin(), frames.end(), [](const Frame& frame) { return frame.is_lost(); });
}

// Puts the whole payload into its places. Returns the shortage if there was no memory; only a long header is left then,
// if there is one. A chunk that is lost is a matter of its transfer.
std::optional<Error> take_payload(PeerRecord& record, const Peer& self, const wire::Arrival& arrival, Frames& frames,
                                  std::vector<Task>& rest) {
  Frame long_header;
  try {
    const bool is_whole = record.transfers.assemble(arrival, frames, long_header, rest);
    if (arrival.is_chunk() || (is_whole && !has_lost(frames))) return std::nullopt;
  } catch (const Violation&) {
    throw;
  } catch (...) {
    // Reported below.
  }
  frames.clear();
  try {
    if (long_header.data() != nullptr) frames.push_back(std::move(long_header));
  } catch (const std::bad_alloc&) {
    // The message will not even have an outline.
  }
  // The transfers are taken: nothing may throw from here on.
  try {
    return Error(Status::kOutOfMemory, fmt::format("{} has no memory for what {} sent: {}", describe_peer(self),
                                                   describe_peer(record.peer), kMemoryCure));
  } catch (const std::bad_alloc&) {
    return Error(Status::kOutOfMemory, "no memory");
  }
}

}  // namespace

// The only place that catches what a peer's bytes make this worker throw. A violation ends the peer, damaged bytes end
// its connection, and anything else is a failure of this worker.
void Receiver::on_message(const ConnectionToken& from, Frames frames) {
  assert_on_loop(shared_.loop);
  if (shared_.alive == nullptr) return;
  const PeerTable::Dialler* const dialler = peers_.find_dialler(from);
  PeerRecord* const record = dialler == nullptr ? nullptr : dialler->record;
  if (record != nullptr && record->connection != from) return;  // an old connection: the peer has dialled again since
  const uint64_t expected = record == nullptr ? 0 : record->next_number;
  try {
    size_t bytes = 0;
    for (const Frame& frame : frames) bytes += frame.size();
    shared_.stats.bytes_received += bytes;
    const Error* const why_gone = dialler == nullptr ? nullptr : peers_.gone(dialler->incarnation);
    if (why_gone != nullptr) {
      ++shared_.stats.messages_refused;
      if (!peers_.has_left(dialler->incarnation)) {
        replies_.refuse(from, wire::RefuseReason::kFenced, why_gone->message());
      }
      return;
    }
    const wire::Arrival arrival(frames, shared_.config.limits, shared_.transport, shared_.header_room);
    Frame header = std::move(frames.front());
    frames.erase(frames.begin());
    if (record != nullptr && arrival.number() != 0) {
      take_numbered(*record, arrival, std::move(header), std::move(frames), bytes);
    } else {
      take_unnumbered(record, from, arrival, frames);
    }
  } catch (const wire::Damaged& damage) {
    // Nothing more is read from the connection; the other side has to dial again. If the REFUSE does not reach it, it
    // dials after half a lease without an acknowledgement.
    log_.note_damage(damage, record == nullptr ? nullptr : &record->peer);
    if (record != nullptr) peers_.disconnect(*record);
    replies_.refuse(from, wire::RefuseReason::kDamaged, damage.message());
  } catch (const Violation& error) {
    if (record != nullptr) return standings_.lose_for(*record, error);
    log_.note_refusal(fmt::format("a stranger was refused: {}", error.message()));
    replies_.refuse(from, wire::RefuseReason::kProtocol, error.message());
  } catch (...) {
    log_.note_failure(record == nullptr ? Peer() : record->peer, current_error());
    if (record == nullptr) {
      replies_.ask_to_dial_again(from);
    } else if (record->is_member() && record->next_number == expected) {
      peers_.disconnect(*record);  // nothing of the message has taken effect, so it has to come again
    }
  }
}

void Receiver::on_part(const ConnectionToken& from) {
  assert_on_loop(shared_.loop);
  const PeerTable::Dialler* const dialler = peers_.find_dialler(from);
  if (dialler == nullptr || dialler->record == nullptr) return;
  PeerRecord& record = *dialler->record;
  if (record.connection == from) record.last.part = shared_.loop.now();
}

// HELLO from any worker, ACK from a peer.
void Receiver::take_unnumbered(PeerRecord* record, const ConnectionToken& from, const wire::Arrival& arrival,
                               const Frames& frames) {
  if (arrival.transfer_count() != 0) violation("transfers without a number");
  const wire::Message message = arrival.decode(frames);
  if (const auto* hello = std::get_if<wire::Hello>(&message.body)) {
    if (record != nullptr) violation("a second HELLO on one connection");
    shared_.deafness.end();
    handshake_.on_hello(from, *hello);
    return;
  }
  if (record == nullptr) {
    // The rest of a connection that was given up, or a sender that does not speak the protocol.
    ++shared_.stats.messages_refused;
    return;
  }
  if (!std::holds_alternative<wire::Ack>(message.body)) {
    violation("{} without a number", wire::body_name(message.body));
  }
  record->note_spoken(shared_.loop.now());
  record->last.ack = record->last.heard;
  take_ack(*record, message.ack);
}

// Accepts exactly the next number: lower ones are repetitions, of which only the ack is new.
void Receiver::take_numbered(PeerRecord& record, const wire::Arrival& arrival, Frame header, Frames frames,
                             size_t bytes) {
  const uint64_t number = arrival.number();
  if (number > record.next_number) {
    const std::string gap = fmt::format("message {} came where {} was expected", number, record.next_number);
    if (!shared_.transport.is_exact()) throw wire::Damaged(gap);
    violation("{}", gap);
  }
  if (number < record.next_number) {
    acks_.note_received(record, bytes);
    ++shared_.stats.messages_duplicated;
    take_ack(record, arrival.ack());
    return;
  }
  // Nothing says what the message is, so it cannot be refused: it has to come again.
  const bool has_header = !arrival.is_long() || arrival.long_transfer() != 0 || frames.empty();
  if (!has_header && frames.front().is_lost()) throw std::bad_alloc();
  // Everything that may fail for lack of memory comes first: the places where the message may have to wait, then its
  // payload, then the message itself.
  if (spare_.empty()) spare_ = Inbox::make_place();  // while nothing of the message has taken effect
  Inbox::Place place;
  const bool is_large = bytes > kLargeFrameBytes || arrival.transfer_count() != 0 || arrival.is_long();
  if (!arrival.is_chunk() && (is_large || !record.inbox.is_empty())) place = Inbox::make_place();
  std::vector<Task> rest;
  std::optional<Error> shortage = take_payload(record, shared_.config.self, arrival, frames, rest);
  // The transfers that the message names are used up now, so it cannot come again. Without a header that went ahead
  // nothing says what it asks for, and all messages behind it would wait for good.
  const bool is_used_up = arrival.transfer_count() != 0 || arrival.long_transfer() != 0;
  if (shortage && arrival.is_long() && frames.empty() && is_used_up) {
    Error why(Status::kDisconnected, "no memory");
    EachStep each;  // the transfers are taken: nothing may throw from here on
    each([&] {
      why = loss_error(record, shared_, Status::kDisconnected,
                       std::string("this worker had no memory for the header of a message from it: ") + kMemoryCure);
    });
    return standings_.lose(record, std::move(why), wire::RefuseReason::kFenced);
  }
  const bool takes_long = arrival.is_long() || !rest.empty() || (!shortage && arrival.takes_long(frames));
  bool waits = !place.empty() && (takes_long || !record.inbox.is_empty());
  Inbox::Decoded decoded;
  if (!waits) decoded = Inbox::decode(arrival, frames, shortage);
  if (Inbox::lacks_memory(decoded) && !arrival.is_chunk()) {
    waits = true;
    place = std::exchange(spare_, {});
    decoded = {};
  }
  // If the message named no transfers, it has had no effect yet: it has to come again.
  if (decoded.failure && arrival.transfer_count() == 0 && arrival.long_transfer() == 0) {
    std::rethrow_exception(decoded.failure);
  }
  // The message counts as received from here on. Its number is counted before its acknowledgement is taken: messages
  // that the acknowledgement releases may already acknowledge this one.
  record.next_number = number + 1;
  acks_.note_received(record, bytes, !waits && std::holds_alternative<wire::Ping>(decoded.message.body));
  if (const auto* chunk = std::get_if<wire::Chunk>(&decoded.message.body)) record.transfers.add(*chunk);
  take_ack(record, arrival.ack());
  // The acknowledgement may have led to the loss of the peer.
  if (!record.is_member()) return;
  if (waits) {
    record.inbox.add(std::move(place),
                     {std::move(header), std::move(frames), std::move(shortage), takes_long, std::move(rest)});
    record.inbox.drain();
  } else {
    frames.clear();  // only the message holds them then
    if (!on_decoded(record, decoded)) record.inbox.put_back(std::exchange(spare_, {}), std::move(decoded));
  }
  if (record.is_member() && record.ack.bytes >= kAckBytes) record.outgoing.send_ack();
}

// Runs for each message in the order of the stream, from take_numbered() or from the inbox. An end that waits for the
// inbox to be empty runs last, and only here: all messages before it are handled then.
bool Receiver::on_decoded(PeerRecord& record, Inbox::Decoded& decoded) {
  assert_on_loop(shared_.loop);
  if (!record.is_member()) return true;
  try {
    deliver(record, decoded);
  } catch (const Violation& error) {
    standings_.lose_for(record, error);
  } catch (...) {
    const Error error = current_error();
    if (!decoded.failure && error.status() == Status::kOutOfMemory && record.is_member()) return false;
    log_.note_failure(record.peer, error);
  }
  if (record.inbox.is_empty() && record.on_heard) std::exchange(record.on_heard, Task())();
  return true;
}

void Receiver::deliver(PeerRecord& record, Inbox::Decoded& decoded) {
  if (decoded.failure) std::rethrow_exception(decoded.failure);
  if (decoded.shortage && decoded.message.body.index() >= kFirstUpperBody) {
    events_.on_unstored(record.peer, decoded.message, *decoded.shortage);
  } else {
    deliver(record, decoded.message);
  }
}

void Receiver::deliver(PeerRecord& record, wire::Message& message) {
  if (std::holds_alternative<wire::Leave>(message.body)) {
    standings_.on_leave(record);
    return;
  }
  if (message.body.index() < kFirstUpperBody) {
    if (!std::holds_alternative<wire::Ping>(message.body) && !std::holds_alternative<wire::Chunk>(message.body)) {
      violation("{} with a number", wire::body_name(message.body));
    }
  } else {
    shared_.count(events_.on_message(record.peer, message));
  }
}

}  // namespace distag
