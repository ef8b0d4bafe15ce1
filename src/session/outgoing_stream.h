#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fifo.h"
#include "session/debt.h"
#include "session/large_message.h"
#include "session/outgoing_connection.h"
#include "session/sent_messages.h"

namespace distag {

// All that this worker says to one peer: numbers messages, keeps them until they are acknowledged, and sends again from
// where the peer asks for it, over one connection at a time. On the loop.
//
// A message may wait in queue_, or in large_ while its payload goes ahead; it runs on_number, from which on others
// count on it; it is stuck as long as there is no memory to encode it; then it has a number, and is kept until it is
// acknowledged. Messages get their numbers in the order in which they have run on_number, and each connection takes
// them in the order of their numbers, so nothing overtakes what is stuck.
class OutgoingStream final : OutgoingConnection::Owner {
 public:
  // The rest of what is known about the peer. None of these may destroy the stream.
  class Owner {
   public:
    virtual ~Owner() = default;
    // All of the peer's own stream up to this number has arrived; goes out with each message.
    virtual uint64_t received() const = 0;
    virtual void on_ack_sent(uint64_t number) = 0;
    // WELCOME or REFUSE has come; leads to on_welcome() or close().
    virtual void on_answer(Frames frames) = 0;
    // The connection failed for good, as `why` says; leads to close().
    virtual void on_dead(const Error& why) = 0;
    // An unacknowledged message is gone from the list, or it is not kept any more.
    virtual void on_progress() = 0;
  };

  OutgoingStream(StreamShared& shared, const Peer& peer, Owner& owner);
  OutgoingStream(const OutgoingStream&) = delete;
  OutgoingStream& operator=(const OutgoingStream&) = delete;

  // Dials, unless it has.
  void open() { connection_.open(); }
  // What is short here to say something to the peer, or was.
  const Lack& lack() const { return lack_; }
  // For good: drops the connection and whatever was not acknowledged.
  void close() { connection_.close(); }
  // A message that came on the connection, or a report of the peer on it, shows that bytes were changed, or it was lost
  // for want of something here: the connection is dialled again.
  void on_damaged(const Error* lack = nullptr) { lack == nullptr ? connection_.drop() : connection_.stall_for(*lack); }
  // The peer has said LEAVE: nothing more goes to it but the acknowledgement, and a drop is the end. `is_told`: it has
  // been acknowledged already, so that it is not dialled for that.
  void end(bool is_told);
  // LEAVE, after all that waits. Nothing follows it.
  void leave();
  // Never asked to dial.
  bool is_idle() const { return connection_.is_idle(); }
  bool is_open() const { return connection_.is_open(); }
  // Nothing leaves by it any more, or ever did.
  bool is_over() const { return connection_.is_over(); }
  // Nothing queued and nothing unacknowledged.
  bool is_drained() const {
    return stuck_ == nullptr && queue_.empty() && large_.empty() && abandoned_.empty() && sent_.is_empty() &&
           farewell_ != Farewell::kDue;
  }

  // `size` is about what the message takes. 0: it has its number; else the ticket, under which it waits.
  Session::Ticket send(Session::Ticket ticket, wire::Body body, SendOptions options, size_t size);
  bool withdraw(Session::Ticket ticket);
  // Without a number. When it cannot go now, or the connection drops, it goes again with the next one.
  void send_ack();

  // Both false when the peer speaks of numbers that were never sent.
  bool on_welcome(const wire::Welcome& welcome);
  bool on_ack(uint64_t number);

  // Messages that are kept for the peer: it has not acknowledged them, or they wait to be numbered.
  size_t kept() const { return sent_.size() + queue_.size() + large_.size(); }
  // For how long the peer has owed an acknowledgement or an answer, without the time of what was lacking here, and that
  // in the line of first dials; -1: it owes none.
  struct Owed {
    Nanos time = -1;
    OutgoingConnection::HandshakeSign handshake;
  };
  Owed owed(Nanos now);
  // The loop was away for that time, which is not the peer's.
  void excuse(Nanos now, Nanos time);
  // Keeps the stream alive where the transport does not report every loss, or dials again where half a lease has
  // brought nothing, in a handshake three quarters of one, or two where the link is slow. A peer that was heard just
  // now has asked whether this worker lives, and is not asked in turn.
  void tick(Nanos now, Nanos heard_at, Nanos hears_at);

 private:
  void on_dialling() override { debt_.begin(shared_.loop.now()); }
  void on_in_line() override;
  void on_ready() override;
  void on_answer(Frames frames) override { owner_.on_answer(std::move(frames)); }
  void on_dead(const Error& why) override { owner_.on_dead(why); }
  void on_closed() override { drop_messages(); }

  struct Stuck {
    wire::Message message;
    Task on_acknowledged;
    std::optional<LargeMessage> large;
    std::unique_ptr<Stuck> next;
  };

  void drop_messages();
  void note_shortage() noexcept;
  bool can_number() const { return connection_.is_ready() && stuck_ == nullptr && sent_.has_all_transmitted(); }
  bool begin_turn();
  bool has_turn();
  void go_on();
  void pump();
  void pump_if_possible();
  void make_spare();
  void number(wire::Message& message, SendOptions& options, LargeMessage* large);
  void number_queued();
  void keep_whole(wire::Message& message, const std::optional<LargeMessage>& large, Task& on_acknowledged);
  void stick(std::unique_ptr<Stuck> place);
  void free_stuck();
  bool pump_large();
  void number(wire::Body body, SendOptions options);
  void number_large();
  void give_up(const LargeMessage& large);
  void keep_and_transmit(wire::Message& message, size_t chunk_bytes, size_t ahead);
  wire::Encoded encode_next(wire::Message& message);
  void keep(wire::Message& message, wire::Encoded encoded, size_t chunk_bytes, Task& on_acknowledged);
  void transmit_last();
  uint64_t send_ahead(const Frame& frame);
  bool transmit(SentMessages::Sent& sent);

  StreamShared& shared_;
  Owner& owner_;
  Lack lack_;
  OutgoingConnection connection_;

  // Side by side, for the tick of an idle stream.
  SentMessages sent_;
  Debt debt_;
  Nanos last_numbered_ = 0;
  enum class Farewell : uint8_t { kNone, kDue, kSaid };
  Farewell farewell_ = Farewell::kNone;
  bool ack_due_ = false;         // one could not go, or may be lost with the connection that it was on
  bool waits_for_turn_ = false;  // the next one
  size_t turn_bytes_ = 0;        // sent in this turn

  Fifo<QueuedMessage> queue_;
  Fifo<LargeMessage> large_;
  std::vector<uint64_t> abandoned_;  // transfers that the peer is to forget
  uint64_t last_transfer_ = 0;
  // Messages that are to be numbered next, as there was no memory when it was their turn: others count on them, so
  // they go as soon as there is some. The room for one is kept ready.
  std::unique_ptr<Stuck> stuck_;
  std::unique_ptr<Stuck> spare_;
  Frames scratch_;
};

}  // namespace distag
