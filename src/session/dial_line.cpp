#include "session/dial_line.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"

namespace distag {

void DialLine::Place::enter() noexcept {
  assert_on_loop(line_.loop_);
  if (where_ != Where::kOutside) return;
  where_ = Where::kWaiting;
  line_.add(*this);
  line_.serve_soon();
}

void DialLine::Place::hurry() noexcept {
  assert_on_loop(line_.loop_);
  const bool waits = where_ == Where::kWaiting;
  if (waits) line_.remove(*this);
  is_awaited_ = true;
  if (waits) line_.add(*this);
}

void DialLine::Place::leave() noexcept {
  assert_on_loop(line_.loop_);
  const Where from = std::exchange(where_, Where::kOutside);
  if (from == Where::kWaiting) line_.remove(*this);
  if (from != Where::kTurn) return;
  --line_.turns_;
  line_.serve_soon();
}

void DialLine::Place::note_pace(bool is_quick) noexcept {
  assert_on_loop(line_.loop_);
  if (!has_turn()) return;
  if (std::exchange(is_noted_, true)) return;
  const size_t more = std::min(line_.at_once_ + 1, kAtOnce);
  const size_t fewer = std::max(line_.at_once_ / 2, size_t{1});
  line_.at_once_ = is_quick ? more : fewer;
}

void DialLine::make_room(size_t places) {
  assert_on_loop(loop_);
  for (auto& waiting : waiting_) waiting.reserve(places);
}

void DialLine::close() {
  assert_on_loop(loop_);
  is_closed_ = true;
}

void DialLine::add(Place& place) noexcept {
  std::vector<Place*>& waiting = waiting_[place.rank()];
  place.index_ = waiting.size();
  waiting.push_back(&place);  // there is room for all
}

void DialLine::remove(Place& place) noexcept {
  std::vector<Place*>& waiting = waiting_[place.rank()];
  waiting[place.index_] = waiting.back();
  waiting[place.index_]->index_ = place.index_;
  waiting.pop_back();
}

std::vector<DialLine::Place*>* DialLine::first_waiting() {
  const auto first =
      std::find_if(waiting_.begin(), waiting_.end(), [](const auto& waiting) { return !waiting.empty(); });
  return first == waiting_.end() ? nullptr : &*first;
}

void DialLine::serve_soon() noexcept {
  if (is_posted_ || is_closed_ || turns_ >= at_once_ || first_waiting() == nullptr) return;
  is_posted_ = true;
  loop_.post_or_drop(*post_, [this, alive = std::weak_ptr<char>(alive_), held = post_] {
    if (!alive.expired()) serve();
  });
}

// A dial that fails at once gives its turn to the next place, in the next task, because a dial takes a while.
void DialLine::serve() noexcept {
  is_posted_ = false;
  for (size_t given = 0; given < kAtOnce && turns_ < at_once_ && !is_closed_; ++given) {
    std::vector<Place*>* const waiting = first_waiting();
    if (waiting == nullptr) return;
    Place& next = *(*waiting)[waiting->size() == 1 ? 0 : random_.next() % waiting->size()];
    remove(next);
    next.where_ = Place::Where::kTurn;
    next.had_turn_ = true;
    next.is_noted_ = false;
    ++turns_;
    EachStep each;  // a dial that fails for lack of memory is dialled again like a stalled one
    each([&next] { next.on_turn_(); });
  }
  serve_soon();
}

}  // namespace distag
