#include "tensor/storage.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace distag {

void Storage::wait_for_lock() {
  while (lock_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
    lock_.wait(kAwaited, std::memory_order_relaxed);
  }
}

BufferRef Storage::make_writable() {
  if (buffer_->is_writable()) return {};
  BufferRef own = Buffer::allocate(buffer_->size());
  std::memcpy(own->mutable_data(), buffer_->data(), own->size());
  return std::exchange(buffer_, std::move(own));
}

LockedStorages::~LockedStorages() {
  for (size_t i = locked_; i-- > 0;) all()[i]->unlock();
}

void LockedStorages::add(Storage& storage) {
  if (count_ < few_.size()) {
    few_[count_++] = &storage;
    return;
  }
  if (many_.empty()) many_.assign(few_.begin(), few_.end());
  many_.push_back(&storage);
  ++count_;
}

void LockedStorages::lock() {
  sort();
  for (; locked_ < count_; ++locked_) all()[locked_]->lock();
}

bool LockedStorages::try_lock() {
  sort();
  for (; locked_ < count_; ++locked_) {
    if (all()[locked_]->try_lock()) continue;
    while (locked_ > 0) all()[--locked_]->unlock();
    return false;
  }
  return true;
}

void LockedStorages::sort() {
  if (count_ < 2) return;
  Storage** first = many_.empty() ? few_.data() : many_.data();
  std::sort(first, first + count_, std::less<>());
  count_ = static_cast<size_t>(std::unique(first, first + count_) - first);
}

}  // namespace distag
