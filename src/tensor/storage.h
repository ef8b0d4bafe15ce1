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

// The slot that a tensor, its views and its detached twins share. It points to the current buffer.
//
// Many threads may use a slot. A reader holds the buffer: it takes the lock, retains the buffer and releases the lock.
// A writer has the lock for as long as it writes. If the slot is the buffer's only holder, it writes in place, since no
// reader can hold the buffer meanwhile; else it puts a copy here and writes that. So a reader has the values before a
// write or after it, and writers follow one another. No thread runs host code under the lock, or takes it twice; the
// locks of several storages are taken in the order of their addresses (LockedStorages).
//
// A deferred storage (tensor/deferred.h) has no buffer until its elements are made. Readers and writers call
// make_elements() before they take the lock.
//
// The lock is a word, not a mutex: each storage has one, and a call may take those of thousands at once.
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

  // Whether it is over memory of the host: writes are refused. A snapshot is not read-only: a write to it copies.
  bool is_read_only() const { return kind_ == Kind::kReadOnly; }
  // Whether it is neither read-only nor deferred at first.
  bool is_common() const { return kind_ == Kind::kOwn; }
  bool is_deferred() const { return kind_ == Kind::kDeferred; }

  // Ensures that there is a buffer. May run host code, and wait for another thread that does; throws its failure, and
  // OUT_OF_MEMORY, and then nothing has changed. Not under the lock.
  void make_elements() {
    if (is_deferred()) make_deferred();
  }
  // Whether there is a buffer.
  bool is_made() const { return !is_deferred() || is_made_deferred(); }

  // Members below are for the holder of the lock, or of the only tensor of this storage.

  const BufferRef& buffer() const { return buffer_; }
  // Makes all of the buffer writable, since views of other parts move along. If another buffer takes its place, gives
  // the former one, to be freed, which may run host code, after the lock is released.
  BufferRef make_writable();

  // Sets another buffer, and gives the former one, to be freed after the lock is released.
  BufferRef exchange_buffer(BufferRef buffer) { return std::exchange(buffer_, std::move(buffer)); }

 protected:
  enum class Kind : uint8_t { kOwn, kReadOnly, kDeferred };
  Storage(BufferRef buffer, Kind kind) : buffer_(std::move(buffer)), kind_(kind) {}

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kAwaited = 2;  // taken, and a thread sleeps until it is released
  void wait_for_lock();
  void make_deferred();  // these two in deferred.cpp
  bool is_made_deferred() const;

  BufferRef buffer_;
  std::atomic<uint32_t> lock_{kFree};
  const Kind kind_;
};

// The locks of a set of storages, taken in the order of their addresses and released at the end.
class LockedStorages {
 public:
  LockedStorages() = default;
  ~LockedStorages() {
    for (size_t i = locked_; i-- > 0;) first()[i]->unlock();
  }
  LockedStorages(const LockedStorages&) = delete;
  LockedStorages& operator=(const LockedStorages&) = delete;

  // Adds a storage; a second time has no effect. Not after lock().
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

  // Inserts the storage in order into few_, unless it is there.
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
  std::vector<Storage*> many_;  // all storages, if there are too many for few_
  size_t count_ = 0;
  size_t locked_ = 0;
};

}  // namespace distag
