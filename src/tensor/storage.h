#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tensor/buffer.h"

namespace distag {

// The slot that a tensor, its views and its detached twins share. It points to the buffer of today.
//
// Many threads may use one. A reader holds the buffer: it takes the lock, retains the buffer and lets the lock go
// again. A writer has the lock for as long as it writes: where the slot is the buffer's only holder it writes in place,
// since no reader can take hold of it meanwhile; else it puts a copy here and writes that. So a reader has the values
// before a write or after it, and writers come one after the other. No thread runs code of the host under the lock, or
// takes it twice; whoever takes those of several storages takes them in the order of their addresses (LockedStorages).
//
// A deferred one (tensor/deferred.h) has no buffer until its elements are made. Who reads or writes has them made
// before taking the lock, by make_elements().
//
// The lock is a word, not a mutex: there is one in each storage, and a call may take those of thousands at once.
class Storage {
 public:
  explicit Storage(BufferRef buffer, bool read_only = false)
      : Storage(std::move(buffer), read_only ? Kind::kReadOnly : Kind::kOwn) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void lock() {
    if (!try_lock()) wait_for_lock();
  }
  bool try_lock() {
    uint32_t expected = kFree;
    return lock_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() {
    if (lock_.exchange(kFree, std::memory_order_release) == kAwaited) lock_.notify_one();
  }

  // Over memory of the host: writes are refused. A snapshot of it is not read-only, a write to that copies.
  bool is_read_only() const { return kind_ == Kind::kReadOnly; }
  // Neither read-only nor deferred at first.
  bool is_common() const { return kind_ == Kind::kOwn; }
  bool is_deferred() const { return kind_ == Kind::kDeferred; }

  // From its end on there is a buffer. May run host code and wait for another thread that does; throws what that
  // throws, and OUT_OF_MEMORY, and leaves all as it was then. Not under the lock.
  void make_elements() {
    if (is_deferred()) make_deferred();
  }
  // Whether there is a buffer.
  bool is_made() const { return !is_deferred() || is_made_deferred(); }

  // The rest is for whoever has the lock, or the only tensor of this storage.

  const BufferRef& buffer() const { return buffer_; }
  // Makes the buffer writable, in its whole, since views of other parts move along. Gives the one that was there
  // before if another took its place: it may be freed, host code included, once the lock is given back.
  BufferRef make_writable();

  // Another buffer takes the place of the one that is given back, which may be freed once the lock is given back.
  BufferRef exchange_buffer(BufferRef buffer) { return std::exchange(buffer_, std::move(buffer)); }

 protected:
  enum class Kind : uint8_t { kOwn, kReadOnly, kDeferred };
  Storage(BufferRef buffer, Kind kind) : buffer_(std::move(buffer)), kind_(kind) {}

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kAwaited = 2;  // taken, and somebody sleeps until it is given back
  void wait_for_lock();
  void make_deferred();  // these two in deferred.cpp
  bool is_made_deferred() const;

  BufferRef buffer_;
  std::atomic<uint32_t> lock_{kFree};
  const Kind kind_;
};

// The locks of a set of storages, taken in the order of their addresses and given back at the end.
class LockedStorages {
 public:
  LockedStorages() = default;
  ~LockedStorages() {
    for (size_t i = locked_; i-- > 0;) first()[i]->unlock();
  }
  LockedStorages(const LockedStorages&) = delete;
  LockedStorages& operator=(const LockedStorages&) = delete;

  // One more; twice is as good as once. Not once they are locked.
  void add(Storage& storage) {
    if (count_ < few_.size()) {
      insert(storage);
    } else {
      add_to_many(storage);
    }
  }
  void lock() {
    if (!many_.empty()) sort_many();
    for (Storage* const* storages = first(); locked_ < count_; ++locked_) storages[locked_]->lock();
  }
  bool try_lock();  // all or none, without waiting
  std::span<Storage* const> all() const { return {first(), count_}; }

 private:
  Storage* const* first() const { return many_.empty() ? few_.data() : many_.data(); }

  // At its place in few_, unless it is there.
  void insert(Storage& storage) {
    size_t place = count_;
    while (place > 0 && std::less<>()(&storage, few_[place - 1])) --place;
    if (place > 0 && few_[place - 1] == &storage) return;
    for (size_t i = count_++; i > place; --i) few_[i] = few_[i - 1];
    few_[place] = &storage;
  }
  void add_to_many(Storage& storage);
  void sort_many();

  std::array<Storage*, 4> few_;
  std::vector<Storage*> many_;  // all of them, where they are more than a few
  size_t count_ = 0;
  size_t locked_ = 0;
};

}  // namespace distag
