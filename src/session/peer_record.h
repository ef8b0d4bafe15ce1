#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "session/inbox.h"
#include "session/outgoing_stream.h"
#include "session/transfers.h"

namespace distag {

// All state of one peer: what goes to it, what comes from it, and its standing. When the peer is no longer a member and
// its streams have ended, a Tombstone replaces the record. On the loop.
class PeerRecord final : public OutgoingStream::Owner, Inbox::Owner {
 public:
  // The events of a peer's streams. They may change the standing, but never destroy the record.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_answer(PeerRecord& record, Frames frames) = 0;
    virtual void on_dead(PeerRecord& record, const Error& why) = 0;
    virtual void on_progress() = 0;
    virtual bool on_decoded(PeerRecord& record, Inbox::Decoded& decoded) = 0;
  };

  PeerRecord(StreamShared& shared, Peer known, FrameMemory& memory, Events& events)
      : peer(std::move(known)),
        outgoing(shared, peer, *this),
        lack(2 * shared.config.lease),
        transfers(shared.config.limits.max_message_bytes + shared.config.limits.max_message_bytes / 8, memory,
                  shared.keeps_frames(), shared.keeps_loans()),
        inbox(shared.loop, shared.config.decoder, shared.config.limits, *this),
        events_(events) {}

  const Peer peer;
  // Each tick reads these fields of all peers, so they lie side by side.
  Standing standing = Standing::kMember;
  struct Times {
    Nanos heard = -1;   // -1: never
    Nanos spoken = -1;  // any message on the peer's own stream
    Nanos part = -1;    // some bytes of a message
    Nanos ack = -1;     // an ACK, whether it acknowledged more or not
  };
  Times last;
  OutgoingStream outgoing;
  Error gone;  // why the peer is no longer a member
  // The lack that, as the peer says, keeps it from answering. Meanwhile its acknowledgements come by WELCOME.
  Lack lack;

  // The stream from the peer: its latest connection, the one before that, and what has come.
  ConnectionToken connection;
  ConnectionToken stale_connection;
  uint64_t next_number = 1;
  Transfers transfers;
  Inbox inbox;
  Task on_heard;  // an end of the peer that waits until the inbox is empty

  // Places for the two events of a peer: its admission and its end. The posted tasks hold them.
  std::shared_ptr<TaskPlace> admission = std::make_shared<TaskPlace>();
  std::shared_ptr<TaskPlace> ending = std::make_shared<TaskPlace>();
  bool has_events_to_tell() const { return admission.use_count() + ending.use_count() != 2; }

  // The acknowledgement that this worker owes the peer.
  struct Ack {
    uint64_t sent = 0;       // all messages up to this number are acknowledged
    size_t bytes = 0;        // bytes of the messages after that number
    Nanos due = kNever;      // when an acknowledgement goes alone; kNever: none does
    Nanos welcomed = -1;     // when the last WELCOME went, also as the answer to HELLO; -1: never
    bool is_listed = false;  // see Acknowledgements
  };
  Ack ack;

  void note_spoken(Nanos now) {
    last.heard = last.spoken = now;
    lack.end();
  }
  bool owes_ack() const { return ack.sent + 1 < next_number; }
  void note_acknowledged(uint64_t number) {
    ack.sent = number;
    ack.bytes = 0;
    ack.due = kNever;
  }
  // The peer hears this worker by WELCOME alone: it has dialled, and no connection to it is open.
  bool hears_welcome_alone() const { return is_member() && !connection.empty() && !outgoing.is_open(); }
  // Last sign that it may hear this worker: an ACK, or part of a message that may hold its ACKs back.
  Nanos hears_at() const { return std::max(last.part, last.ack); }
  bool is_member() const { return standing == Standing::kMember; }

 private:
  uint64_t received() const override { return next_number - 1; }
  void on_ack_sent(uint64_t number) override { note_acknowledged(number); }
  void on_answer(Frames frames) override { events_.on_answer(*this, std::move(frames)); }
  void on_dead(const Error& why) override { events_.on_dead(*this, why); }
  void on_progress() override { events_.on_progress(); }
  bool on_decoded(Inbox::Decoded& decoded) override { return events_.on_decoded(*this, decoded); }

  Events& events_;
};

}  // namespace distag
