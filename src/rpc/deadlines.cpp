#include "rpc/deadlines.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"

namespace distag {
namespace {

constexpr size_t kEndedKept = 64;
constexpr int kMostAtOnce = 64;  // calls that end in one turn, as many may be due

}  // namespace

Deadlines::Deadlines(Loop& loop, std::function<bool(const Id&)> is_open, std::function<void(const Id&)> on_due)
    : loop_(loop), is_open_(std::move(is_open)), on_due_(std::move(on_due)) {}

void Deadlines::add(const Id& call, Nanos when) {
  assert_on_loop(loop_);
  if (when == kNever) return;
  heap_.push_back({when, call});
  std::push_heap(heap_.begin(), heap_.end(), later);
  arm();
}

void Deadlines::note_end(Nanos when) {
  assert_on_loop(loop_);
  if (when == kNever) return;
  ++ended_;
  if (ended_ > heap_.size() / 2 + kEndedKept) drop_ended();
}

void Deadlines::clear() {
  assert_on_loop(loop_);
  heap_.clear();
  ended_ = 0;
  if (timer_ != 0) loop_.cancel_timer(std::exchange(timer_, 0));
}

// The timer of an entry that ended stays: it finds nothing due and is started again.
void Deadlines::arm() {
  if (heap_.empty()) return;
  const Nanos when = heap_.front().when;
  if (timer_ != 0 && timer_when_ <= when) return;
  const Loop::TimerId before = timer_;
  timer_ = loop_.start_timer(when, [this] { fire(); });  // first: without memory for it the earlier timer stays
  timer_when_ = when;
  if (before != 0) loop_.cancel_timer(before);
}

void Deadlines::fire() {
  assert_on_loop(loop_);
  timer_ = 0;
  EachStep each;  // a call that finds no memory does not keep the others from their end
  const Nanos now = loop_.now();
  for (int ended = 0; ended < kMostAtOnce && !heap_.empty();) {
    const Entry first = heap_.front();
    const bool open = is_open_(first.call);
    if (open && first.when > now) break;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
    if (open) {
      ++ended;
      each([this, &first] { on_due_(first.call); });  // ends the call, which counts an entry already out of the heap
    }
    if (ended_ > 0) --ended_;
  }
  each([this] { arm(); });
  each.check();
}

void Deadlines::drop_ended() {
  std::erase_if(heap_, [this](const Entry& entry) { return !is_open_(entry.call); });
  std::make_heap(heap_.begin(), heap_.end(), later);
  ended_ = 0;
}

}  // namespace distag
