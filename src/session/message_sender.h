#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "session/debt.h"
#include "session/large_message.h"
#include "session/outgoing_connection.h"
#include "session/send_turn.h"
#include "session/sent_messages.h"

namespace distag {

// Gives the messages of one stream their numbers, keeps them until they are acknowledged, and sends them over the
// connection in the order of their numbers: on each new connection again from the first that is kept. A message that
// has its number goes out in any case, if need be later. A frame that is too large for its message goes ahead in
// chunks: messages with numbers of their own, which the peer is told to forget if that message does not follow. On the
// loop.
class MessageSender {
 public:
  // Each message acknowledges the messages that have come from the peer.
  class Arrivals {
   public:
    virtual ~Arrivals() = default;
    // The highest number up to which the peer's own stream has arrived without a gap.
    virtual uint64_t received() const = 0;
    virtual void on_ack_sent(uint64_t number) = 0;
  };

  // `lack`: of memory to send. `debt`: what the peer owes for messages that are not acknowledged.
  MessageSender(StreamShared& shared, OutgoingConnection& connection, SendTurn& turn, Lack& lack, Debt& debt,
                Arrivals& arrivals)
      : sent_(shared.stats),
        debt_(debt),
        shared_(shared),
        connection_(connection),
        turn_(turn),
        lack_(lack),
        arrivals_(arrivals) {}

  uint64_t last_number() const { return sent_.last_number(); }
  Nanos last_numbered() const { return last_numbered_; }  // the time of it
  size_t unacknowledged() const { return sent_.size(); }
  bool is_closed() const { return connection_.is_closed(); }
  bool owes_ack() const { return ack_due_; }
  bool has_abandoned() const { return !abandoned_.empty(); }
  // True if the connection has taken every message and takes more: a new one goes out at once.
  bool takes_more() const { return connection_.is_ready() && sent_.has_all_transmitted(); }

  // These three give the next number. Without memory they throw: then there is no new message, and nothing is lost.
  // `large`: a message of which chunks went ahead.
  void add(wire::Message& message, const std::optional<LargeMessage>& large, Task& on_acknowledged);
  // The next chunk of the message. Returns false when too much is unacknowledged.
  bool add_chunk(LargeMessage& large);
  // Tells the peer to forget an abandoned frame.
  void add_abandoned();
  // The chunks that went ahead of the message are abandoned.
  void abandon(const LargeMessage& large);

  // Sends what the connection has not taken. Returns false when the connection or the turn takes no more.
  bool send_all();
  // An acknowledgement has no number. If it cannot go now, or the connection drops, it goes with the next message.
  void send_ack();
  // Returns false if no message up to `number` was still unacknowledged.
  bool acknowledge(uint64_t number);
  // A new connection sends all messages again.
  void rewind();
  // Drops all messages.
  void clear();
  // A send failed for lack of memory: the peer may have heard nothing.
  void note_shortage() noexcept;

 private:
  wire::Encoded encode_next(wire::Message& message);
  void keep(wire::Message& message, wire::Encoded encoded, size_t chunk_bytes, Task& on_acknowledged);
  void keep_chunk(wire::Chunk chunk);
  uint64_t send_ahead(const Frame& frame);
  void transmit_last();
  bool transmit(SentMessages::Sent& sent);

  // These lie side by side, for the tick of an idle stream.
  SentMessages sent_;
  Debt& debt_;
  Nanos last_numbered_ = 0;
  bool ack_due_ = false;  // an acknowledgement could not go, or may be lost with its connection

  StreamShared& shared_;
  OutgoingConnection& connection_;
  SendTurn& turn_;
  Lack& lack_;
  Arrivals& arrivals_;
  std::vector<uint64_t> abandoned_;  // transfers that the peer has to forget
  uint64_t last_transfer_ = 0;
  Frames scratch_;
};

}  // namespace distag
