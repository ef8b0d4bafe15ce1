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

// The messages that have come from one worker and wait to be decoded, in order. A message that takes long to decode
// goes to the decoder, and those behind it wait. On the loop.
class Inbox {
 public:
  // The frames of a message, as they came.
  struct Arrived {
    Frame header;
    Frames payload;
    std::optional<Error> shortage;  // set if there was no memory for the payload; only the long header is there then
    bool takes_long = false;
    std::vector<Task> rest;  // tasks that must run before the message is decoded
  };
  struct Decoded {
    wire::Message message;
    std::optional<Error> shortage;  // set if the message is only an outline
    std::exception_ptr failure;     // there is no message: a Violation, or no memory even for an outline
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    // May clear the inbox, but not destroy it. Returns false if there was no memory for the message, not even to refuse
    // it. The message is then handed out again later, as an outline, and those behind it wait.
    virtual bool on_decoded(Decoded& decoded) = 0;
  };

  // Without a decoder all messages are decoded on the loop.
  Inbox(Loop& loop, Executor* decoder, const wire::Limits& limits, Owner& owner)
      : loop_(loop), decoder_(decoder), limits_(limits), owner_(owner) {}

  // A place for a message, made while nothing of the message has taken effect yet. The decoder and tasks hold it too,
  // so it may outlive the inbox. While the decoder has it, only the decoder touches `arrived` and `decoded`.
  struct Turn {
    Arrived arrived;
    Decoded decoded;
    bool is_given_out = false;  // the decoder has it
    bool is_put_back = false;   // a task at `place` will look at the inbox again
    bool is_decoded = false;
    TaskPlace decoded_place;  // for the task that reports the decoder's result
    TaskPlace place;          // for a later look at the inbox
  };
  using Place = std::list<std::shared_ptr<Turn>>;
  static Place make_place() { return {std::make_shared<Turn>()}; }

  bool is_empty() const { return waiting_.empty(); }
  void add(Place place, Arrived arrived) noexcept;
  // Puts a message that the owner could not take back to the front.
  void put_back(Place place, Decoded decoded) noexcept;
  // Hands out the messages that are ready. Must not be called within on_decoded. Also runs by itself.
  void drain();
  void clear() { waiting_.clear(); }

  static Decoded decode(const wire::Arrival& arrival, const Frames& payload, std::optional<Error> shortage);
  // True if there was no memory even for an outline: the message has to be decoded again.
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
