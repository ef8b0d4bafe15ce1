#pragma once

#include <cstdint>
#include <utility>

#include "session/debt.h"
#include "session/message_sender.h"
#include "session/outgoing_connection.h"
#include "session/send_turn.h"
#include "session/waiting_messages.h"

namespace distag {

// All messages from this worker to one peer, over one connection at a time. A message waits (WaitingMessages), then
// gets its number and is kept until it is acknowledged (MessageSender). This class tells both what the connection does,
// and watches what the peer owes. On the loop.
class OutgoingStream final : OutgoingConnection::Owner {
 public:
  // The owner of the stream, which knows the rest about the peer. No method may destroy the stream.
  class Owner : public MessageSender::Arrivals {
   public:
    // WELCOME or REFUSE has come. The owner calls on_welcome() or close() then.
    virtual void on_answer(Frames frames) = 0;
    // The connection failed for good with `why`. The owner calls close() then.
    virtual void on_dead(const Error& why) = 0;
    // An unacknowledged message was acknowledged, withdrawn or dropped.
    virtual void on_progress() = 0;
  };

  OutgoingStream(StreamShared& shared, const Peer& peer, Owner& owner);
  OutgoingStream(const OutgoingStream&) = delete;
  OutgoingStream& operator=(const OutgoingStream&) = delete;

  // Dials on the first call.
  void open() { connection_.open(); }
  // The lack that keeps, or kept, this worker from sending to the peer.
  const Lack& lack() const { return lack_; }
  // For good: drops the connection and every unacknowledged message.
  void close() { connection_.close(); }
  // A message on the connection was damaged or, with `lack`, lost because this worker lacks a resource; or the peer
  // reports damage. The connection is dialled again.
  void on_damaged(const Error* lack = nullptr) { lack == nullptr ? connection_.drop() : connection_.stall_for(*lack); }
  // The peer has said LEAVE: nothing more goes to it except the acknowledgement, and a drop closes the stream.
  // `is_told`: the acknowledgement has gone already, so there is no dial for it.
  void end(bool is_told);
  // Sends LEAVE after all waiting messages; nothing follows it.
  void leave();
  // True if it was never asked to dial.
  bool is_idle() const { return connection_.is_idle(); }
  bool is_open() const { return connection_.is_open(); }
  // True if nothing leaves by this stream any more, or ever did.
  bool is_over() const { return connection_.is_over(); }
  // True if nothing is queued and nothing is unacknowledged.
  bool is_drained() const { return waiting_.is_empty() && !sender_.has_abandoned() && sender_.unacknowledged() == 0; }

  // `size`: the approximate size of the message. Returns 0 if the message got its number, otherwise the ticket under
  // which it waits.
  Session::Ticket send(Session::Ticket ticket, wire::Body body, SendOptions options, size_t size);
  bool withdraw(Session::Ticket ticket);
  // Acknowledges what has come from the peer.
  void send_ack() { sender_.send_ack(); }

  // Both return false when the peer names numbers that were never sent.
  bool on_welcome(const wire::Welcome& welcome);
  bool on_ack(uint64_t number);

  // The number of messages that are unacknowledged or wait to be numbered.
  size_t kept() const { return sender_.unacknowledged() + waiting_.size(); }
  // For how long the peer has owed an acknowledgement or an answer, not counting time in which this worker lacked a
  // resource or waited in the line of first dials; -1: the peer owes nothing.
  struct Owed {
    Nanos time = -1;
    OutgoingConnection::HandshakeSign handshake;
  };
  Owed owed(Nanos now);
  // Excuses the peer for `time`, in which the loop was away.
  void excuse(Nanos now, Nanos time);
  // Sends a PING on an idle stream if the transport does not report every loss. Dials again after half a lease without
  // an answer, in a handshake after three quarters of a lease, over a slow link after two leases. A peer heard just now
  // has asked for a sign of life itself, so no PING goes back.
  void tick(Nanos now, Nanos heard_at, Nanos hears_at);

 private:
  void on_dialling() override { debt_.begin(shared_.loop.now()); }
  void on_in_line() override;
  void on_ready() override;
  void on_answer(Frames frames) override { owner_.on_answer(std::move(frames)); }
  void on_dead(const Error& why) override { owner_.on_dead(why); }
  void on_closed() override { drop_messages(); }

  void drop_messages();

  StreamShared& shared_;
  Owner& owner_;
  Lack lack_;
  OutgoingConnection connection_;
  SendTurn turn_;
  Debt debt_;
  MessageSender sender_;
  WaitingMessages waiting_;
};

}  // namespace distag
