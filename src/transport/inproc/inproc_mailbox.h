#pragma once

#include <cassert>
#include <cstdint>
#include <memory>

#include "base/fifo.h"
#include "base/loop.h"
#include "base/mutex.h"
#include "transport/transport.h"

namespace distag {

// The way to the loop of one transport, for the other sides of its connections; nothing is posted once it is closed.
class InprocPort {
 public:
  explicit InprocPort(Loop& loop) : loop_(&loop) {}

  void post(Task task);
  void close();
  // First in each method that lives on the loop, or is called while it does not run.
  void assert_on_loop() { assert(may_touch()); }

 private:
  bool may_touch();

  Mutex mutex_;  // held while posting, so that the loop cannot end meanwhile
  Loop* loop_ GUARDED_BY(mutex_);
};

// The items that are on their way to one acceptor or connection, in order. Pushed to by any thread; taken on the loop
// of its owner, who is called there.
class InprocMailbox : public std::enable_shared_from_this<InprocMailbox> {
 public:
  // Beyond these a push would block.
  static constexpr size_t kMaxBytes = 16u << 20;
  static constexpr size_t kMaxMessages = 4096;

  struct Item {
    enum class Kind { kConnected, kMessage, kWritable, kRefused, kDropped };
    Kind kind = Kind::kMessage;
    uint64_t from = 0;  // number of a connection
    Frames frames;
  };

  // On the loop.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_item(Item item) = 0;
  };

  // The owner is asked for each item again, and may go meanwhile.
  InprocMailbox(std::shared_ptr<InprocPort> port, std::weak_ptr<Owner> owner)
      : port_(std::move(port)), owner_(std::move(owner)) {}

  // A message, from `waiter` (nullable), which gets kWritable once there is room again when this answers kFull.
  enum class Pushed { kTaken, kFull, kClosed };
  Pushed push_message(uint64_t from, Frames frames, const std::shared_ptr<InprocMailbox>& waiter);
  void push(Item::Kind kind);
  void assert_on_loop() { port_->assert_on_loop(); }  // of its owner

  // Drops what is here and takes no more. Whoever waits for room is on his own.
  void close();

 private:
  bool add(Item item) REQUIRES(mutex_);
  void post_delivery();
  void deliver();
  bool take(Item& item, std::vector<std::shared_ptr<InprocMailbox>>& woken);

  const std::shared_ptr<InprocPort> port_;
  const std::weak_ptr<Owner> owner_;

  Mutex mutex_;  // held with no other lock
  Fifo<Item> items_ GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<InprocMailbox>> waiters_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  size_t messages_ GUARDED_BY(mutex_) = 0;
  bool scheduled_ GUARDED_BY(mutex_) = false;  // a task that delivers is posted
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag
