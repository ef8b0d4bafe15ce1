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

// Holds back the events of others while a worker starts, in order, until its layers exist. Peers that met the group
// before this worker, members or not, have a bounded room here. On the loop.
class StartGate {
 public:
  explicit StartGate(Loop& loop) : loop_(loop) {}
  ~StartGate() { close(); }

  // Runs the event at once when the gate is open, else once it opens.
  void pass(Task event);
  // Holds a message of `bytes`, with at most `most_bytes` in all. False when there is no room. `lead` gives whether it
  // has led the message on: if not, for lack of memory, it is called again after a while, before later events.
  bool hold_message(UniqueFunction<bool()> lead, size_t bytes, size_t most_bytes);
  // Counts a call that was refused for lack of room: it was received all the same.
  void count_refused(const Peer& from) { ++refused_.try_emplace(from.incarnation, from, 0).first->second.second; }

  bool is_open() const { return is_open_; }
  // Calls `count` for every refused call, then runs the held events. Throws the exception of the first event that
  // has thrown.
  template <typename Count>
  void open(Count&& count) {
    assert_on_loop(loop_);
    for (const auto& [incarnation, refused] : std::exchange(refused_, {})) {
      for (uint64_t i = 0; i < refused.second; ++i) count(refused.first);
    }
    let_through();
  }
  // Drops the held events, and holds back again.
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
  std::shared_ptr<Retry> retry_;  // exists while anything is held
  size_t messages_ = 0;
  size_t bytes_ = 0;
  std::unordered_map<Incarnation, std::pair<Peer, uint64_t>> refused_;
};

}  // namespace distag
