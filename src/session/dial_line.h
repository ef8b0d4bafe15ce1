#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/loop.h"
#include "base/random.h"

namespace distag {

// The queue for the first dials of a worker. Handshakes that all begin at once also end late together, and are given
// up half way; the queue lets them end one after the other. At most kAtOnce places have their turn at a time. A slow
// handshake halves this limit and a quick one raises it by one, so a slow host has fewer to do at once. The next
// place is picked at random from the best rank that is not empty. Places for which a message waits rank before all
// others; in each group, those without a turn so far rank first. A place is outside, waits, or has its turn. On the
// loop.
class DialLine {
 public:
  static constexpr size_t kAtOnce = 8;  // at first, and at most

  class Place {
   public:
    // `on_turn` may leave the line but must not destroy a place.
    Place(DialLine& line, std::function<void()> on_turn) : line_(line), on_turn_(std::move(on_turn)) {}
    ~Place() { leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // The turn comes in a task of its own, so all places that enter in one task compete for it. Once make_room() has
    // reserved memory, neither this nor what follows allocates.
    void enter() noexcept;
    // A message waits for this dial from now on.
    void hurry() noexcept;
    // Leaves the line, or ends the turn, which then goes to another place.
    void leave() noexcept;
    bool has_turn() const { return where_ == Where::kTurn; }
    // Reports that the handshake of this turn was quick or is slow, which raises or lowers the number of turns at a
    // time. Counts once per turn.
    void note_pace(bool is_quick) noexcept;

   private:
    friend class DialLine;
    enum class Where : uint8_t { kOutside, kWaiting, kTurn };

    size_t rank() const { return (is_awaited_ ? 0u : 2u) + (had_turn_ ? 1u : 0u); }

    DialLine& line_;
    const std::function<void()> on_turn_;
    size_t index_ = 0;  // index among the waiting places of its rank
    Where where_ = Where::kOutside;
    bool is_awaited_ = false;
    bool had_turn_ = false;
    bool is_noted_ = false;
  };

  DialLine(Loop& loop, Random& random) : loop_(loop), random_(random) {}
  DialLine(const DialLine&) = delete;
  DialLine& operator=(const DialLine&) = delete;

  // Reserves memory for this number of places.
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
