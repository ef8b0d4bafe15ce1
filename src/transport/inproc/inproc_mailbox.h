#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fifo.h"
#include "base/loop.h"
#include "base/mutex.h"
#include "transport/transport.h"

namespace distag {

// The way to the loop of one transport, for the other sides of its connections. Posts nothing once it is closed.
class InprocPort {
 public:
  explicit InprocPort(Loop& loop) : loop_(&loop) {}

  void post(TaskPlace& place, Task task) noexcept;
  void close();
  // Called first in each method that runs on the loop, or while the loop does not run.
  void assert_on_loop() { assert(may_touch()); }

 private:
  bool may_touch();

  Mutex mutex_;  // held while posting, so that the loop cannot end meanwhile
  Loop* loop_ GUARDED_BY(mutex_);
};

// The items under way to one acceptor or connection, in order. Any thread pushes them; they are taken on the loop of
// the owner, whose on_item() is called there.
class InprocMailbox : public std::enable_shared_from_this<InprocMailbox> {
 public:
  // Limits beyond which a push would block.
  static constexpr size_t kMaxBytes = 16u << 20;
  static constexpr size_t kMaxMessages = 4096;

  struct Item {
    enum class Kind : uint8_t { kConnected, kWritable, kMessage, kRefused, kDropped };
    Kind kind = Kind::kMessage;
    uint64_t from = 0;  // number of a connection
    Frames frames;
  };

  // Called on the loop.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_item(Item item) = 0;
  };

  // The owner is locked again for each item, and may go meanwhile.
  InprocMailbox(std::shared_ptr<InprocPort> port, std::weak_ptr<Owner> owner)
      : port_(std::move(port)), owner_(std::move(owner)) {}

  // Pushes a message. On kFull, `waiter` (nullable) gets kWritable once there is room again.
  enum class Pushed { kTaken, kFull, kClosed };
  Pushed push_message(uint64_t from, Frames frames, const std::shared_ptr<InprocMailbox>& waiter);
  // Pushes an item of any other kind, once: before the messages; an end, behind them. Needs no memory.
  void push(Item::Kind kind) noexcept;
  void assert_on_loop() { port_->assert_on_loop(); }  // of the owner

  // Drops all items and takes no more. Waiters for room are not told.
  void close();

 private:
  using Waiters = std::vector<std::weak_ptr<InprocMailbox>>;

  void post_delivery() noexcept;
  void deliver();
  bool take(Item& item, Waiters& woken);
  bool take_word(Item& item, Item::Kind kind) REQUIRES(mutex_);
  void take_message(Item& item, Waiters& woken) REQUIRES(mutex_);

  const std::shared_ptr<InprocPort> port_;
  const std::weak_ptr<Owner> owner_;

  Mutex mutex_;  // held with no other lock
  Fifo<Item> messages_ GUARDED_BY(mutex_);
  std::array<bool, 5> words_ GUARDED_BY(mutex_){};  // by kind
  Waiters waiters_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  TaskPlace delivery_;                         // while it is scheduled
  bool scheduled_ GUARDED_BY(mutex_) = false;  // a task that delivers is posted
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag
