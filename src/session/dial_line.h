#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/loop.h"
#include "base/random.h"

namespace distag {

// The line in which first dials of a worker wait, so that handshakes end one after the other: all that begin at once
// end late and together, and are given up half way. At most kAtOnce have their turn at a time, half as many after each
// handshake that is seen to be slow, and one more after each that was quick: a host that is slow for all has fewer to
// do at once. The next one is chosen by chance among the first of these that there are: those for which a message
// waits, and which have had no turn yet; others of them; those that no message waits for, likewise. A place is outside,
// waits, or has its turn. On the loop.
class DialLine {
 public:
  static constexpr size_t kAtOnce = 8;  // at first, and at most

  class Place {
   public:
    // `on_turn` may leave the line, and may not destroy a place.
    Place(DialLine& line, std::function<void()> on_turn) : line_(line), on_turn_(std::move(on_turn)) {}
    ~Place() { leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Its turn comes by a task of its own: all that enter in one task are chosen from. Once there was room for it,
    // neither this nor what follows needs memory.
    void enter() noexcept;
    // A message waits for it, from now on.
    void hurry() noexcept;
    // From the line, or from its turn, which another one gets.
    void leave() noexcept;
    bool has_turn() const { return where_ == Where::kTurn; }
    // The handshake of its turn was quick, or is slow: more or fewer have theirs at a time from now on. Counts once a
    // turn.
    void note_pace(bool is_quick) noexcept;

   private:
    friend class DialLine;
    enum class Where : uint8_t { kOutside, kWaiting, kTurn };

    size_t rank() const { return (is_awaited_ ? 0u : 2u) + (had_turn_ ? 1u : 0u); }

    DialLine& line_;
    const std::function<void()> on_turn_;
    size_t index_ = 0;  // among those of its rank, while it waits
    Where where_ = Where::kOutside;
    bool is_awaited_ = false;
    bool had_turn_ = false;
    bool is_noted_ = false;
  };

  DialLine(Loop& loop, Random& random) : loop_(loop), random_(random) {}
  DialLine(const DialLine&) = delete;
  DialLine& operator=(const DialLine&) = delete;

  // For that number of places.
  void make_room(size_t places);
  // From now on no place gets a turn.
  void close();

 private:
  void add(Place& place) noexcept;
  void remove(Place& place) noexcept;
  void serve_soon() noexcept;
  void serve() noexcept;
  std::vector<Place*>* first_waiting();

  Loop& loop_;
  Random& random_;
  std::array<std::vector<Place*>, 4> waiting_;  // by rank
  size_t turns_ = 0;
  size_t at_once_ = kAtOnce;
  bool is_closed_ = false;
  bool is_posted_ = false;
  const std::shared_ptr<TaskPlace> post_ = std::make_shared<TaskPlace>();  // held by its task
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace distag
