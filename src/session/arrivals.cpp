#include <cstring>
#include <utility>

#include "session/session_state.h"

namespace distag {
namespace {

// In wire::Body: what comes before is the session's own.
constexpr size_t kFirstUpperBody = 7;
static_assert(std::is_same_v<std::variant_alternative_t<kFirstUpperBody, wire::Body>, wire::Call>);

}  // namespace

// Without memory for a message that has come nothing has changed yet: the rest of its connection is not heard, so that
// the peer dials again, half a lease later, and sends it once more.
void Session::State::hear_again(PeerRecord& record) {
  connections.erase(record.stale_connection);
  record.stale_connection = std::exchange(record.connection, {});
}

// The only place that catches what a peer's bytes make this worker throw: the peer is refused for it.
void Session::State::on_message(const ConnectionToken& from, Frames frames) {
  auto found = connections.find(from);
  PeerRecord* record = found == connections.end() ? nullptr : found->second;
  if (record != nullptr && record->connection != from) return;  // it has dialled again since
  const uint64_t expected = record == nullptr ? 0 : record->next_number;
  try {
    size_t bytes = 0;
    for (const Frame& frame : frames) bytes += frame.size();
    shared.stats.bytes_received += bytes;
    const wire::Arrival arrival(frames, shared.config.limits, shared.transport);
    frames.erase(frames.begin());
    if (record != nullptr && record->standing != PeerRecord::Standing::kMember) {
      ++shared.stats.messages_refused;
      if (record->standing == PeerRecord::Standing::kLost) {
        refuse(from, wire::RefuseReason::kFenced, record->gone.message());
      }
    } else if (record != nullptr && arrival.number() != 0) {
      note_received(*record, bytes);
      on_stream_message(*record, arrival, std::move(frames));
    } else {
      on_unnumbered(record, from, arrival, frames);
    }
  } catch (const wire::Damaged& damage) {
    on_damaged(record, from, damage);
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kOutOfMemory && (record == nullptr || record->next_number == expected)) {
      if (record != nullptr) hear_again(*record);
      return;  // a stranger says HELLO again by itself
    }
    ++shared.stats.messages_refused;
    if (record == nullptr) {
      stranger_log.write(shared.log, LogLevel::kWarning, shared.loop.now(),
                         fmt::format("a stranger was refused: {}", error.message()));
      refuse(from, wire::RefuseReason::kProtocol, error.message());
    } else {
      lose(*record, loss_error(*record, Status::kProtocol, "it broke the protocol: " + error.message()),
           wire::RefuseReason::kProtocol);
    }
  }
}

// Nothing more is heard on the connection; the other side is to dial again. Should it not hear that, half a lease
// without an acknowledgement makes it dial.
void Session::State::on_damaged(PeerRecord* record, const ConnectionToken& from, const wire::Damaged& damage) {
  note_damage(damage, record);
  if (record != nullptr) {
    connections.erase(record->stale_connection);
    record->stale_connection = std::exchange(record->connection, {});
  }
  refuse(from, wire::RefuseReason::kDamaged, damage.message());
}

void Session::State::note_damage(const wire::Damaged& damage, const PeerRecord* record) {
  ++shared.stats.messages_refused;
  damage_log.write(shared.log, LogLevel::kWarning, shared.loop.now(),
                   fmt::format("{}: {}; the connection is made again",
                               record == nullptr ? "a stranger" : describe(record->peer), damage.message()));
}

// Without a number: HELLO from anybody, ACK from a peer.
void Session::State::on_unnumbered(PeerRecord* record, const ConnectionToken& from, const wire::Arrival& arrival,
                                   const Frames& frames) {
  if (arrival.has_transfers()) fail(Status::kProtocol, "transfers without a number");
  const wire::Message message = arrival.decode(frames);
  if (const auto* hello = std::get_if<wire::Hello>(&message.body)) {
    if (record != nullptr) fail(Status::kProtocol, "a second HELLO on one connection");
    on_hello(from, *hello);
    return;
  }
  if (record == nullptr) {
    // The rest of a connection that was given up, or somebody who does not know how to begin.
    ++shared.stats.messages_refused;
    return;
  }
  if (!std::holds_alternative<wire::Ack>(message.body)) {
    fail(Status::kProtocol, "a {} without a number", wire::body_name(message.body));
  }
  record->heard_at = shared.loop.now();
  take_ack(*record, message.ack);
}

void Session::State::take_ack(PeerRecord& record, uint64_t number) {
  if (!record.outgoing.on_ack(number)) fail(Status::kProtocol, "it acknowledged {}, which was never sent", number);
}

// Large frames to memory for payload, as long as there is some.
void Session::State::move_to_memory(Frames& frames) {
  for (Frame& frame : frames) {
    if (frame.size() < kLargeFrameBytes) continue;
    try {
      std::shared_ptr<std::byte> bytes = memory.allocate(frame.size());
      std::memcpy(bytes.get(), frame.data(), frame.size());
      const std::byte* data = bytes.get();
      frame = Frame(data, frame.size(), std::move(bytes));
    } catch (...) {
      return;  // they stay where they are
    }
  }
}

// Exactly the next one: lower ones are repetitions, of which only the ack is new.
void Session::State::on_stream_message(PeerRecord& record, const wire::Arrival& arrival, Frames frames) {
  const uint64_t number = arrival.number();
  if (number > record.next_number) {
    const std::string gap = fmt::format("message {} came where {} was expected", number, record.next_number);
    if (!shared.transport.is_exact()) throw wire::Damaged(gap);
    fail(Status::kProtocol, "{}", gap);
  }
  if (number < record.next_number) {
    ++shared.stats.messages_duplicated;
    take_ack(record, arrival.ack());
    return;
  }
  // Pieces have their own way there.
  if (!shared.keeps_frames() && !arrival.is_chunk()) move_to_memory(frames);
  Frame long_header;
  if (arrival.long_transfer() != 0) {
    long_header = record.transfers.get(arrival.long_transfer());
  } else if (arrival.is_long()) {
    if (frames.empty()) fail(Status::kProtocol, "a LONG without its header");
    long_header = std::move(frames.front());
    frames.erase(frames.begin());
  }
  for (const wire::Transfer& transfer : arrival.transfers()) {
    if (transfer.frame > frames.size()) fail(Status::kProtocol, "a payload frame {} that is not there", transfer.frame);
    frames.insert(frames.begin() + transfer.frame, record.transfers.get(transfer.id));
  }
  if (arrival.is_long()) frames.insert(frames.begin(), std::move(long_header));
  wire::Message message = arrival.decode(frames);
  frames.clear();
  if (arrival.long_transfer() != 0) record.transfers.forget(arrival.long_transfer());
  for (const wire::Transfer& transfer : arrival.transfers()) record.transfers.forget(transfer.id);
  if (const auto* chunk = std::get_if<wire::Chunk>(&message.body)) record.transfers.add(*chunk);
  record.next_number = number + 1;
  take_ack(record, message.ack);
  // An acknowledgement may have been what somebody waited for to give the peer up.
  if (record.is_member()) deliver(record, std::move(message));
}

void Session::State::deliver(PeerRecord& record, wire::Message message) {
  if (std::holds_alternative<wire::Leave>(message.body)) {
    on_leave(record);
    return;
  }
  if (message.body.index() < kFirstUpperBody) {
    if (!std::holds_alternative<wire::Ping>(message.body) && !std::holds_alternative<wire::Chunk>(message.body)) {
      fail(Status::kProtocol, "a {} with a number", wire::body_name(message.body));
    }
  } else {
    events.on_message(record.peer, std::move(message));
  }
  if (record.is_member() && record.unacknowledged_bytes >= kAckBytes) record.outgoing.send_ack();
}

void Session::State::deliver_to_self(wire::Message message) {
  const char* name = wire::body_name(message.body);
  try {
    events.on_message(shared.config.self, std::move(message));
  } catch (...) {
    shared.log.write(LogLevel::kError, fmt::format("a {} to this worker itself: {}", name, current_error().message()));
  }
}

}  // namespace distag
