#pragma once

#include <sys/epoll.h>

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/clock.h"

namespace distag {

// Waits for descriptors to become readable, or writable: epoll. Of one thread at a time, except rest() and wake(): one
// may rest while another looks.
class Poller {
 public:
  Poller();  // disarmed; throws OUT_OF_MEMORY when descriptors run out
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // A failure of either side of the descriptor makes it readable.
  void watch(int fd, std::function<void()> on_readable, std::function<void()> on_writable = nullptr);
  // Whether on_writable is called from now on; not to begin with.
  void await_writable(int fd, bool is_awaited) noexcept;
  void unwatch(int fd);
  void clear();

  // Any thread: ends the rest now running, or the next one.
  void wake();
  // Until a wake; while it is armed, also until a descriptor is readable or the alarm goes off. May end early.
  void rest();
  void arm();
  void disarm();
  // From this time on there is something to do. An earlier alarm stays; it goes off once.
  void set_alarm(Nanos when);

  // Asks which descriptors are ready, without waiting. False: none is.
  bool look();
  // Passes on what was readable or writable at the last look and is still watched.
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

  int epoll_fd_ = -1;  // of the watched descriptors and the alarm
  int alarm_fd_ = -1;
  int sleep_fd_ = -1;  // an epoll of the two others
  int wake_fd_ = -1;
  Nanos alarm_at_ = kNever;
  std::array<epoll_event, 64> events_;
  size_t event_count_ = 0;
  // By a number that never repeats: an event of a closed descriptor does not reach the next one of its number.
  uint64_t next_key_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> keys_;
};

}  // namespace distag
