#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "session/inbox.h"
#include "session/outgoing_stream.h"
#include "session/transfers.h"

namespace distag {

// Everything about one peer: what goes to it, what comes from it, and how it stands. When it is no member any more and
// its streams have ended, a Tombstone takes its place. On the loop.
class PeerRecord final : public OutgoingStream::Owner, Inbox::Owner {
 public:
  // The events that the streams of a peer lead to. They may change the standing, but never destroy the record.
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
  // Each tick looks at these of all peers: they lie side by side.
  Standing standing = Standing::kMember;
  struct Times {
    Nanos heard = -1;   // -1: never
    Nanos spoken = -1;  // anything on its own stream
    Nanos part = -1;    // some bytes of a message
    Nanos ack = -1;     // an ACK, whether it acknowledged more or not
  };
  Times last;
  OutgoingStream outgoing;
  Error gone;  // why it is no member
  // What it lacks to answer, as it says. An ACK goes by WELCOME with that meanwhile.
  Lack lack;

  // The stream from the peer: the connection it came on last, the one before that, and what has come.
  ConnectionToken connection;
  ConnectionToken stale_connection;
  uint64_t next_number = 1;
  Transfers transfers;
  Inbox inbox;
  Task on_heard;  // an end that waits until the inbox is empty

  // For the two events of a peer that are heard in no other way; held by their tasks.
  std::shared_ptr<TaskPlace> admission = std::make_shared<TaskPlace>();
  std::shared_ptr<TaskPlace> ending = std::make_shared<TaskPlace>();
  bool has_events_to_tell() const { return admission.use_count() + ending.use_count() != 2; }

  // The acknowledgement that is to go to it.
  struct Ack {
    uint64_t sent = 0;       // all up to this number is acknowledged
    size_t bytes = 0;        // of those behind it
    Nanos due = kNever;      // for one that goes alone; kNever: none does
    Nanos welcomed = -1;     // when WELCOME last went, the answer to HELLO too; -1: never
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
  // It hears this worker by WELCOME alone: no connection to it is open, and it has dialled one.
  bool hears_welcome_alone() const { return is_member() && !connection.empty() && !outgoing.is_open(); }
  // Whatever else it says, it may be deaf.
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
