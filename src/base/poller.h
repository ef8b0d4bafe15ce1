#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/clock.h"

namespace distag {

// Ends a poller's wait. Any thread may ring, also when the poller is gone.
class Bell {
 public:
  Bell();  // throws OUT_OF_MEMORY when descriptors run out
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  int fd() const { return fd_; }
  // From here on a ring is heard. The caller checks only afterwards what a ring would report.
  void listen() { listeners_.fetch_add(1); }
  void ignore() { listeners_.fetch_sub(1); }
  void ring() noexcept;

 private:
  const int fd_;
  std::atomic<int> listeners_{0};
};

// Waits for descriptors to become readable, or writable: epoll. For one thread at a time, except rest() and wake(): one
// thread may rest while another looks or waits.
class Poller {
 public:
  Poller();  // disarmed; throws OUT_OF_MEMORY when descriptors run out
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // A failure of either side of the descriptor makes it readable.
  void watch(int fd, std::function<void()> on_readable, std::function<void()> on_writable = nullptr);
  // Whether on_writable is called from now on; at first it is not.
  void await_writable(int fd, bool is_awaited) noexcept;
  void unwatch(int fd);
  void clear();

  // Any thread: ends the rest now running, or the next one.
  void wake();
  // Sleeps until a wake; while armed, also until a descriptor is readable or the alarm goes off. May end early.
  void rest();
  void arm();
  void disarm();
  // At this time there is something to do. An earlier alarm stays; it goes off once.
  void set_alarm(Nanos when);

  // Asks which descriptors are ready, without waiting. False: none is.
  bool look() { return wait(0); }
  // Waits that long for a descriptor, the alarm or the bell. False: none of them came.
  bool wait(int milliseconds);
  const std::shared_ptr<Bell>& bell() const { return bell_; }
  // Calls back for what was readable or writable at the last look or wait and is still watched.
  void dispatch(const std::function<void(const std::function<void()>&)>& call);

 private:
  struct Watch {
    int fd;
    std::function<void()> on_readable;
    std::function<void()> on_writable;
    bool is_writable_awaited = false;
  };

  void close_all();
  void listen_to_watched(uint32_t events);

  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  int epoll_fd_ = -1;  // for the watched descriptors, the alarm and the bell
  int alarm_fd_ = -1;
  int sleep_fd_ = -1;  // an epoll of the one above, while it is armed, and of the next
  int wake_fd_ = -1;
  Nanos alarm_at_ = kNever;
  std::array<epoll_event, 64> events_;
  size_t event_count_ = 0;
  // Keyed by a number that never repeats: an event of a closed descriptor does not reach the next one of its number.
  uint64_t next_key_ = 2;
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> keys_;
};

}  // namespace distag
