#pragma once

#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "base/loop.h"

namespace distag {

// The times at which a waiting vote checks again: at a pace that doubles up to 20 ms, or a while after a step that
// found no memory. Both may be due at once. The owner requests no more ticks, or ignores them, once it is over. On the
// loop.
class VoteTicks {
 public:
  VoteTicks(Loop& loop, std::function<void()> on_tick) : loop_(loop), on_tick_(std::move(on_tick)) {}

  // Does nothing if a tick of this kind is due already. `first` applies when the pace begins anew.
  void pace(Nanos first);
  void begin_anew() { pace_ = 0; }
  // Runs the step; if it finds no memory, a tick follows later.
  template <typename Step>
  void attempt(Step&& step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      tick_later();
    }
  }
  void stop();

 private:
  struct Later {
    TaskPlace place;
    bool is_set = false;
  };

  void tick_later() noexcept;

  Loop& loop_;
  const std::function<void()> on_tick_;
  Loop::TimerId timer_ = 0;
  Nanos pace_ = 0;
  const std::shared_ptr<Later> later_ = std::make_shared<Later>();
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace distag
