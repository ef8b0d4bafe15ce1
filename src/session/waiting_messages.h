#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/fifo.h"
#include "session/large_message.h"
#include "session/message_sender.h"
#include "session/send_turn.h"

namespace distag {

// The messages of one stream that have no number yet, and the choice of the next. A message may wait in queue_, or in
// large_ while its payload goes ahead. Then on_number runs, after which other messages depend on this one. It is stuck
// while there is no memory to encode it. Then it gets its number, and the sender has it. Messages are numbered in the
// order in which on_number ran, so nothing overtakes a stuck message. On the loop.
class WaitingMessages {
 public:
  WaitingMessages(MessageSender& sender, SendTurn& turn) : sender_(sender), turn_(turn) {}
  WaitingMessages(const WaitingMessages&) = delete;
  WaitingMessages& operator=(const WaitingMessages&) = delete;

  // The number of messages that still have their tickets.
  size_t size() const { return queue_.size() + large_.size(); }
  // True if nothing waits, not even LEAVE.
  bool is_empty() const { return stuck_ == nullptr && queue_.empty() && large_.empty() && farewell_ != Farewell::kDue; }

  // Returns true if on_number has run, false if the message waits.
  bool send(QueuedMessage message);
  void send_large(LargeMessage message);
  bool withdraw(Session::Ticket ticket);
  // LEAVE goes after all other messages; nothing follows it.
  void leave();
  // Sends a PING unless something else is to go.
  void ping();
  // Goes on after a shortage of memory, or when the connection takes more. Throws when there is no memory.
  void pump();
  // Drops all messages, and LEAVE.
  void clear();

 private:
  struct Stuck {
    wire::Message message;
    Task on_acknowledged;
    std::optional<LargeMessage> large;
    std::unique_ptr<Stuck> next;
  };
  enum class Farewell : uint8_t { kNone, kDue, kSaid };

  bool can_number() const { return stuck_ == nullptr && sender_.takes_more(); }
  void pump_if_possible();
  void number_waiting();
  void number(wire::Message& message, SendOptions& options, LargeMessage* large);
  void number(wire::Body body);
  void number_queued();
  void number_large();
  void make_spare();
  void stick(std::unique_ptr<Stuck> place);
  void free_stuck();

  MessageSender& sender_;
  SendTurn& turn_;
  Farewell farewell_ = Farewell::kNone;
  Fifo<QueuedMessage> queue_;
  Fifo<LargeMessage> large_;
  // Messages to be numbered next, for which there was no memory at their turn. They go as soon as there is memory. Room
  // for one such message is kept ready.
  std::unique_ptr<Stuck> stuck_;
  std::unique_ptr<Stuck> spare_;
};

}  // namespace distag
