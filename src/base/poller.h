#pragma once

#include <sys/epoll.h>

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/clock.h"

namespace distag {

// Waits for descriptors to become readable, or writable: epoll. Of one thread, except wake().
class Poller {
 public:
  Poller();  // throws OUT_OF_MEMORY when descriptors run out
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // A failure of either side of the descriptor makes it readable.
  void watch(int fd, std::function<void()> on_readable, std::function<void()> on_writable = nullptr);
  // Whether on_writable is called from now on; not to begin with.
  void await_writable(int fd, bool is_awaited) noexcept;
  void unwatch(int fd);
  void clear();

  // Any thread: ends the wait now running, or the next one.
  void wake();

  // Sleeps until a descriptor is ready, a wake, or the deadline (not after `now`: not at all). False: nothing came.
  bool wait(Nanos now, Nanos deadline);
  // Passes on what became readable or writable in the last wait and is still watched.
  void dispatch(const std::function<void(const std::function<void()>&)>& call);

 private:
  struct Watch {
    int fd;
    std::function<void()> on_readable;
    std::function<void()> on_writable;
    bool is_writable_awaited = false;
  };

  int poll(Nanos timeout);

  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  std::array<epoll_event, 64> events_;
  size_t event_count_ = 0;
  bool precise_ = true;  // the kernel takes nanoseconds
  // By a number that never repeats: an event of a closed descriptor does not reach the next one of its number.
  uint64_t next_key_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> keys_;
};

}  // namespace distag
