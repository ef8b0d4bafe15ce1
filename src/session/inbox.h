#pragma once

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/executor.h"
#include "base/loop.h"
#include "wire/codec.h"

namespace distag {

// The messages that have come from one worker and wait to be decoded, in order. One that takes long is decoded by the
// decoder, and those behind it wait for it. On the loop.
class Inbox {
 public:
  // A message as its frames have come.
  struct Arrived {
    Frame header;
    Frames payload;
    std::optional<Error> shortage;  // there was no memory for the payload, of which the long header alone is there
    bool takes_long = false;
    std::vector<Task> rest;  // to be run before it is decoded
  };
  struct Decoded {
    wire::Message message;
    std::optional<Error> shortage;  // the message is an outline
    std::exception_ptr failure;     // there is no message: a Violation, or no memory even for an outline
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    // May clear the inbox, but not destroy it. False: there was no memory for it, not even to refuse it. It is given
    // again after a while, as an outline, and what is behind it waits.
    virtual bool on_decoded(Decoded& decoded) = 0;
  };

  // Without a decoder all are decoded on the loop.
  Inbox(Loop& loop, Executor* decoder, const wire::Limits& limits, Owner& owner)
      : loop_(loop), decoder_(decoder), limits_(limits), owner_(owner) {}

  // A place for a message, made while nothing of the message has taken effect yet. The decoder and tasks hold it too,
  // so it may outlive the inbox; while it is given out only the decoder touches what has arrived and what is decoded.
  struct Turn {
    Arrived arrived;
    Decoded decoded;
    bool is_given_out = false;  // the decoder has it
    bool is_put_back = false;   // its place has the task that looks again
    bool is_decoded = false;
    TaskPlace decoded_place;  // of the decoder, for the word that it has
    TaskPlace place;          // for a later look at the inbox
  };
  using Place = std::list<std::shared_ptr<Turn>>;
  static Place make_place() { return {std::make_shared<Turn>()}; }

  bool is_empty() const { return waiting_.empty(); }
  void add(Place place, Arrived arrived) noexcept;
  // In front of all, one that its owner could not take.
  void put_back(Place place, Decoded decoded) noexcept;
  // Hands out those that are ready. Not from within on_decoded. Runs by itself.
  void drain();
  void clear() { waiting_.clear(); }

  static Decoded decode(const wire::Arrival& arrival, const Frames& payload, std::optional<Error> shortage);
  // There was not even memory for an outline: it is to be decoded again.
  static bool lacks_memory(const Decoded& decoded) noexcept;

 private:
  static void decode(Turn& turn, const wire::Limits& limits);
  bool give_out(const std::shared_ptr<Turn>& turn);
  void put_back(Place place) noexcept;
  Task make_look(std::shared_ptr<Turn> turn) const noexcept;

  Loop& loop_;
  Executor* const decoder_;
  const wire::Limits& limits_;
  Owner& owner_;
  std::list<std::shared_ptr<Turn>> waiting_;
  std::shared_ptr<Inbox*> self_ = std::make_shared<Inbox*>(this);
};

}  // namespace distag
