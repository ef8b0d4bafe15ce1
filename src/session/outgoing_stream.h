#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "session/stream_shared.h"

namespace distag {

// All that this worker says to one peer: over one connection at a time, dialled again after a drop. Numbers messages,
// keeps them until they are acknowledged, and sends again from where the peer asks for it. On the loop.
class OutgoingStream {
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
    virtual void on_dead(const std::string& why) = 0;
    // An unacknowledged message is gone from the list, or it is not kept any more.
    virtual void on_progress() = 0;
  };

  OutgoingStream(StreamShared& shared, const Peer& peer, Owner& owner);
  ~OutgoingStream();
  OutgoingStream(const OutgoingStream&) = delete;
  OutgoingStream& operator=(const OutgoingStream&) = delete;

  // Dials, unless it has.
  void open();
  // For good: drops the connection and whatever was not acknowledged.
  void close();
  // What came on the connection, or what the peer says of it, shows that bytes were changed: it is dialled again.
  void on_damaged();
  // The peer has said LEAVE: nothing more goes to it but the acknowledgement, and a drop is the end.
  void end();
  // LEAVE, after all that waits. Nothing follows it.
  void leave();
  // Never asked to dial.
  bool is_idle() const { return state_ == State::kIdle; }
  bool is_open() const { return state_ == State::kOpen; }
  // Nothing leaves by it any more, or ever did.
  bool is_over() const { return state_ == State::kClosed || (ending_ && state_ == State::kIdle); }
  // Nothing queued and nothing unacknowledged.
  bool is_drained() const {
    return queue_.empty() && large_.empty() && abandoned_.empty() && unacknowledged_.empty() &&
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

  // Since when the peer has owed an acknowledgement or an answer; kNever: it owes none.
  Nanos owed_since() const { return owed_since_; }
  // The loop was away: what is owed counts from now.
  void restart_lease(Nanos now);
  // Keeps the stream alive, or dials again where half a lease has brought nothing.
  void tick(Nanos now);

 private:
  enum class State {
    kIdle,
    kDialling,  // no connection yet
    kGreeting,  // HELLO is out
    kOpen,      // WELCOME has come
    kWaiting,   // to dial again
    kClosed,
  };
  enum class Event { kNeeded, kConnected, kWelcomed, kDropped, kRefused, kStalled, kRetryDue, kClosed };

  // A message with a number.
  struct Sent {
    uint64_t number;
    Frame header;
    Frames payload;
    size_t bytes;
    size_t chunk_bytes;
    Task on_acknowledged;
    bool transmitted = false;
  };
  // One without, in order.
  struct Queued {
    Session::Ticket ticket;
    wire::Body body;
    SendOptions options;
  };
  // One whose payload goes ahead in chunks.
  struct Large {
    Queued message;
    Frames payload;
    std::vector<wire::Transfer> transfers;
    size_t current = 0;  // of transfers
    size_t offset = 0;   // of its frame
  };

  void transition(Event event);
  void enter(State state);
  void dial();
  void greet();
  void drop_connection();
  void drop_messages();
  void wait_to_retry();
  bool note_drop(bool refused);

  bool can_number() const;
  void pump();
  bool pump_large();
  void number(wire::Body body, SendOptions options);
  void number_large(Large large);
  void give_up(Large& large);
  static Frame take_long_header(wire::Encoded& encoded);
  uint64_t send_ahead(const Frame& frame);
  void keep_and_transmit(wire::Message& message, size_t chunk_bytes, Task on_acknowledged);
  bool transmit(Sent& sent);
  bool transmit(const Frame& header, const Frames& payload);
  bool transmit(wire::Body body, uint64_t ack);
  bool put_on_connection(const Frames& frames);
  void flush();
  void owe_from_now();

  StreamShared& shared_;
  const Peer& peer_;
  Owner& owner_;
  State state_ = State::kIdle;

  std::unique_ptr<Connection> connection_;
  std::vector<std::unique_ptr<Connection>> dropped_;  // until the task that called back has ended
  uint64_t epoch_ = 0;                                // of the connection: callbacks of older ones are stale
  std::shared_ptr<char> alive_ = std::make_shared<char>();
  bool blocked_ = false;  // the connection takes no more for now
  bool greeted_ = false;  // HELLO was taken by the connection
  bool ack_due_ = false;  // one could not go, or may be lost with the connection that it was on
  Loop::TimerId retry_timer_ = 0;
  unsigned drops_ = 0;     // since it was open
  unsigned refusals_ = 0;  // in a row, after a drop

  enum class Farewell { kNone, kDue, kSaid };
  Farewell farewell_ = Farewell::kNone;
  bool ending_ = false;

  uint64_t last_number_ = 0;
  uint64_t last_transfer_ = 0;
  std::deque<Queued> queue_;
  std::deque<Large> large_;
  std::vector<uint64_t> abandoned_;  // transfers that the peer is to forget
  std::deque<Sent> unacknowledged_;
  uint64_t next_to_transmit_ = 1;
  size_t unacknowledged_chunk_bytes_ = 0;
  Frames scratch_;

  Nanos owed_since_ = kNever;
  Nanos connected_since_ = 0;
  Nanos last_numbered_ = 0;
};

}  // namespace distag
