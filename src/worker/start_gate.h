#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/loop.h"
#include "base/task.h"
#include "base/task_queue.h"
#include "session/session.h"
#include "wire/message.h"

namespace distag {

// Holds back what others do while a worker starts, in order, until its layers are there to hear of it. Those who met
// the group before us, members or not, have a bounded room for it. On the loop.
class StartGate {
 public:
  explicit StartGate(Loop& loop) : loop_(loop) {}
  ~StartGate() { close(); }

  // Runs the event at once when the gate is open, else once it opens.
  void pass(Task event);
  // Holds a message of `bytes`, of which `most_bytes` may wait in all. False when there is no room. `lead` tells
  // whether it has led the message on: if not, for want of memory, it is asked again after a while, before what came
  // later.
  bool hold_message(UniqueFunction<bool()> lead, size_t bytes, size_t most_bytes);
  // A call that was refused, since there was no room, has come all the same.
  void count_refused(const Peer& from) { ++refused_.try_emplace(from.incarnation, from, 0).first->second.second; }

  bool is_open() const { return is_open_; }
  // Calls `count` for every call that was refused, then lets through what was held back; throws what the first of its
  // events threw that failed.
  template <typename Count>
  void open(Count&& count) {
    assert_on_loop(loop_);
    for (const auto& [incarnation, refused] : std::exchange(refused_, {})) {
      for (uint64_t i = 0; i < refused.second; ++i) count(refused.first);
    }
    let_through();
  }
  // Forgets what waits, and holds back again.
  void close() noexcept;

 private:
  struct Retry {
    TaskPlace place;
    bool is_over = false;
  };

  struct Held {
    UniqueFunction<bool()> event;  // false: not now
    size_t bytes = 0;              // of a message
    bool is_message = false;
  };

  void hold(Held held);
  void let_through();

  Loop& loop_;
  bool is_open_ = false;
  std::list<Held> held_;
  std::shared_ptr<Retry> retry_;  // there while anything is held
  size_t messages_ = 0;
  size_t bytes_ = 0;
  std::unordered_map<Incarnation, std::pair<Peer, uint64_t>> refused_;
};

}  // namespace distag
