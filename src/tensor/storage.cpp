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

void LockedStorages::add_to_many(Storage& storage) {
  if (many_.empty()) many_.assign(few_.begin(), few_.end());
  many_.push_back(&storage);
  ++count_;
}

void LockedStorages::sort_many() {
  std::sort(many_.begin(), many_.end(), std::less<>());
  count_ = static_cast<size_t>(std::unique(many_.begin(), many_.end()) - many_.begin());
}

bool LockedStorages::try_lock() {
  if (!many_.empty()) sort_many();
  for (; locked_ < count_; ++locked_) {
    if (first()[locked_]->try_lock()) continue;
    while (locked_ > 0) first()[--locked_]->unlock();
    return false;
  }
  return true;
}

}  // namespace distag
