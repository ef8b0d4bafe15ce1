#pragma once

#include <list>
#include <memory>

#include "session/inbox.h"
#include "session/session_log.h"

namespace distag {

// Messages from this worker to itself: encoded, ordered and decoded like those to a peer, but over no connection. A
// message whose on_number has run is delivered as soon as there is memory for it, and before all that are sent later,
// because other messages depend on it. Each numbered message arrives in a task of its own. On the loop.
class SelfStream final : Inbox::Owner {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // A message has arrived.
    virtual void on_progress() = 0;
  };

  SelfStream(StreamShared& shared, SessionLog& log, SessionEvents& events, Owner& owner);

  void send(wire::Body body, SendOptions options);
  // Hands out the messages that a shortage of memory has held back.
  void drain();
  // True if every message has arrived.
  bool is_drained() const { return waiting_.empty() && last_arrived_ == last_number_; }

 private:
  struct Waiting {
    wire::Message message;
    Task on_acknowledged;
  };
  // A message on its way. Its places are allocated before other messages depend on it.
  struct Travelling {
    wire::Encoded encoded;
    size_t bytes = 0;
    Task on_acknowledged;
    Inbox::Place place = Inbox::make_place();
    TaskPlace post;
  };

  void number_waiting(bool is_sent_now);
  void number(Waiting& waiting);
  void arrive(Travelling& travelling);
  void receive(wire::Encoded encoded, Inbox::Place place);
  bool on_decoded(Inbox::Decoded& decoded) override;

  StreamShared& shared_;
  SessionLog& log_;
  SessionEvents& events_;
  Owner& owner_;
  uint64_t last_number_ = 0;
  uint64_t last_arrived_ = 0;
  std::list<Waiting> waiting_;  // messages that wait for memory
  Inbox inbox_;
  std::shared_ptr<TaskPlace> again_ = std::make_shared<TaskPlace>();  // for the next attempt
  bool tries_again_ = false;                                          // the next attempt is posted at again_
};

}  // namespace distag
