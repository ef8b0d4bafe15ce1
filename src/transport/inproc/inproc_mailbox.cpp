#include "transport/inproc/inproc_mailbox.h"

#include <utility>

#include "base/mutex.h"

namespace distag {
namespace {

// The most items handed out before the loop turns to its other work.
constexpr int kItemsPerTurn = 64;
constexpr size_t kMailboxBytesPerTurn = size_t{1} << 20;  // of messages, which may be copied

size_t size_of(const Frames& frames) {
  size_t bytes = 0;
  for (const Frame& frame : frames) bytes += frame.size();
  return bytes;
}

}  // namespace

void InprocPort::post(TaskPlace& place, Task task) noexcept {
  MutexLock lock(mutex_);
  // The destructor of a refused task must not run under the lock: if this port refuses it, the task is the caller's
  // parameter; if the loop does, it holds nothing but a mailbox.
  if (loop_ != nullptr) loop_->post_or_drop(place, std::move(task));
}

void InprocPort::close() {
  MutexLock lock(mutex_);
  loop_ = nullptr;
}

bool InprocPort::may_touch() {
  MutexLock lock(mutex_);
  return loop_ == nullptr || loop_->is_current();
}

InprocMailbox::Pushed InprocMailbox::push_message(uint64_t from, Frames frames,
                                                  const std::shared_ptr<InprocMailbox>& waiter) {
  const size_t bytes = size_of(frames);
  MutexLock lock(mutex_);
  if (closed_) return Pushed::kClosed;
  // A message larger than the whole room is accepted alone.
  if (!messages_.empty() && (bytes_ + bytes > kMaxBytes || messages_.size() == kMaxMessages)) {
    if (waiter) waiters_.push_back(waiter);
    return Pushed::kFull;
  }
  messages_.push_back({Item::Kind::kMessage, from, std::move(frames)});
  bytes_ += bytes;
  const bool is_first = !std::exchange(scheduled_, true);
  lock.unlock();
  if (is_first) post_delivery();
  return Pushed::kTaken;
}

void InprocMailbox::push(Item::Kind kind) noexcept {
  MutexLock lock(mutex_);
  if (closed_) return;
  words_[static_cast<size_t>(kind)] = true;
  const bool is_first = !std::exchange(scheduled_, true);
  lock.unlock();
  if (is_first) post_delivery();
}

void InprocMailbox::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    words_ = {};
    waiters_.clear();
  }
  // Destroys the items one by one, without the lock. A second queue would need memory, and close() must do without.
  for (;;) {
    Item dropped;
    MutexLock lock(mutex_);
    if (messages_.empty()) return;
    dropped = messages_.take_front();
  }
}

void InprocMailbox::post_delivery() noexcept {
  port_->post(delivery_, [self = shared_from_this()] { self->deliver(); });
}

void InprocMailbox::deliver() {
  assert_on_loop();
  size_t bytes = 0;
  for (int i = 0; i < kItemsPerTurn && bytes < kMailboxBytesPerTurn; ++i) {
    Item item;
    Waiters woken;
    if (!take(item, woken)) return;
    for (const auto& weak : woken) {
      if (const auto waiter = weak.lock()) waiter->push(Item::Kind::kWritable);
    }
    bytes += size_of(item.frames);
    if (const auto owner = owner_.lock()) owner->on_item(std::move(item));
  }
  post_delivery();
}

// False when the mailbox is empty; the next push posts a task again.
bool InprocMailbox::take(Item& item, Waiters& woken) {
  MutexLock lock(mutex_);
  if (take_word(item, Item::Kind::kConnected) || take_word(item, Item::Kind::kWritable)) return true;
  if (!messages_.empty()) {
    take_message(item, woken);
    return true;
  }
  if (take_word(item, Item::Kind::kRefused) || take_word(item, Item::Kind::kDropped)) return true;
  scheduled_ = false;
  return false;
}

bool InprocMailbox::take_word(Item& item, Item::Kind kind) {
  item.kind = kind;
  return std::exchange(words_[static_cast<size_t>(kind)], false);
}

void InprocMailbox::take_message(Item& item, Waiters& woken) {
  item = messages_.take_front();
  bytes_ -= size_of(item.frames);
  if (bytes_ <= kMaxBytes / 2 && messages_.size() <= kMaxMessages / 2) woken.swap(waiters_);
}

}  // namespace distag
