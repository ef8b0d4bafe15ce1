#include "transport/inproc/inproc_mailbox.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"

namespace distag {
namespace {

// Items handed out before the loop looks at everything else again.
constexpr int kItemsPerTurn = 64;
constexpr size_t kBytesPerTurn = size_t{1} << 20;  // of messages, which may be copied

size_t size_of(const Frames& frames) {
  size_t bytes = 0;
  for (const Frame& frame : frames) bytes += frame.size();
  return bytes;
}

}  // namespace

void InprocPort::post(Task task) {
  MutexLock lock(mutex_);
  // A task that is refused is the caller's parameter, destroyed after the lock is gone; one the loop refuses holds
  // nothing but a mailbox.
  if (loop_ != nullptr) loop_->post_or_drop(std::move(task));
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
  // A message larger than all the room goes alone.
  if (messages_ > 0 && (bytes_ + bytes > kMaxBytes || messages_ == kMaxMessages)) {
    if (waiter) waiters_.push_back(waiter);
    return Pushed::kFull;
  }
  const bool is_first = add({Item::Kind::kMessage, from, std::move(frames)});
  bytes_ += bytes;
  ++messages_;
  lock.unlock();
  if (is_first) post_delivery();
  return Pushed::kTaken;
}

void InprocMailbox::push(Item::Kind kind) {
  MutexLock lock(mutex_);
  const bool is_first = !closed_ && add({kind, 0, {}});
  lock.unlock();
  if (is_first) post_delivery();
}

void InprocMailbox::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    waiters_.clear();
  }
  // One by one, each destroyed without the lock: a second queue would need memory, and this ends connections.
  for (;;) {
    Item dropped;
    MutexLock lock(mutex_);
    if (items_.empty()) return;
    dropped = items_.take_front();
  }
}

// True: the caller posts the delivery, once it has let go of the lock.
bool InprocMailbox::add(Item item) {
  items_.push_back(std::move(item));
  return !std::exchange(scheduled_, true);
}

void InprocMailbox::post_delivery() {
  try {
    port_->post([self = shared_from_this()] { self->deliver(); });
  } catch (...) {
    // Without memory for the task: the next item posts one.
    MutexLock lock(mutex_);
    scheduled_ = false;
    throw;
  }
}

void InprocMailbox::deliver() {
  assert_on_loop();
  size_t bytes = 0;
  for (int i = 0; i < kItemsPerTurn && bytes < kBytesPerTurn; ++i) {
    Item item;
    std::vector<std::shared_ptr<InprocMailbox>> woken;
    if (!take(item, woken)) return;
    for (const auto& waiter : woken) waiter->push(Item::Kind::kWritable);
    bytes += size_of(item.frames);
    if (const auto owner = owner_.lock()) owner->on_item(std::move(item));
  }
  post_delivery();
}

// False when there is none; the next push posts a task again.
bool InprocMailbox::take(Item& item, std::vector<std::shared_ptr<InprocMailbox>>& woken) {
  MutexLock lock(mutex_);
  if (items_.empty()) {
    scheduled_ = false;
    return false;
  }
  item = items_.take_front();
  if (item.kind == Item::Kind::kMessage) {
    bytes_ -= size_of(item.frames);
    --messages_;
  }
  if (!waiters_.empty() && bytes_ <= kMaxBytes / 2 && messages_ <= kMaxMessages / 2) {
    for (const auto& weak : std::exchange(waiters_, {})) {
      auto waiter = weak.lock();
      if (waiter && std::find(woken.begin(), woken.end(), waiter) == woken.end()) woken.push_back(std::move(waiter));
    }
  }
  return true;
}

}  // namespace distag
