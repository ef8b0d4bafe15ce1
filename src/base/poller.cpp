#include "base/poller.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/sandbox.h"
#include "base/system_error.h"

namespace distag {
namespace {

constexpr uint64_t kAlarmKey = 0;
constexpr uint64_t kBellKey = 1;

constexpr const char* kCannotBeMade = "a loop cannot be made";

// Returns `fd`, the result of that call, or throws.
int need_descriptor(int fd, const char* call) {
  if (fd < 0) throw system_error(kCannotBeMade, call, errno);
  return fd;
}

bool add_to(int epoll_fd, int fd, uint64_t key, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

// Empties an eventfd, or a timer that went off. Neither waits.
void read_count(int fd) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
}

// Fails only when the counter is full, and then it is readable. Not write(), in which a thread may be cancelled.
void add_one(int fd) {
  const uint64_t one = 1;
  syscall(SYS_write, fd, &one, sizeof one);
}

}  // namespace

Bell::Bell() : fd_(need_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")) {}

Bell::~Bell() { close(fd_); }

// Changes the count, though by 0: either this sees the listener, or the listener sees all that came before.
void Bell::ring() noexcept {
  if (listeners_.fetch_add(0) != 0) add_one(fd_);
}

Poller::Poller() {
  check_loop_calls();
  try {
    epoll_fd_ = need_descriptor(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    alarm_fd_ = need_descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd_create");
    sleep_fd_ = need_descriptor(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    wake_fd_ = need_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd");
    const bool is_whole = add_to(epoll_fd_, alarm_fd_, kAlarmKey, EPOLLIN) &&
                          add_to(epoll_fd_, bell_->fd(), kBellKey, EPOLLIN) && add_to(sleep_fd_, epoll_fd_, 0, 0) &&
                          add_to(sleep_fd_, wake_fd_, 0, EPOLLIN);
    if (!is_whole) throw system_error(kCannotBeMade, "epoll_ctl", errno);
  } catch (...) {
    close_all();
    throw;
  }
}

Poller::~Poller() { close_all(); }

void Poller::close_all() {
  for (const int fd : {sleep_fd_, epoll_fd_, alarm_fd_, wake_fd_}) {
    if (fd >= 0) close(fd);
  }
}

void Poller::watch(int fd, std::function<void()> on_readable, std::function<void()> on_writable) {
  unwatch(fd);
  const uint64_t key = next_key_++;
  watches_[key] = std::make_shared<Watch>(Watch{fd, std::move(on_readable), std::move(on_writable)});
  try {
    keys_[fd] = key;
  } catch (...) {
    watches_.erase(key);
    throw;
  }
  if (add_to(epoll_fd_, fd, key, EPOLLIN)) return;
  const int reason = errno;
  watches_.erase(key);
  keys_.erase(fd);
  fail(Status::kInternal, "descriptor {} cannot be watched: {}", fd, std::strerror(reason));
}

void Poller::await_writable(int fd, bool is_awaited) noexcept {
  const auto key = keys_.find(fd);
  if (key == keys_.end()) return;
  Watch& watch = *watches_.find(key->second)->second;
  if (watch.is_writable_awaited == is_awaited) return;
  watch.is_writable_awaited = is_awaited;
  epoll_event event{};
  event.events = is_awaited ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u64 = key->second;
  // Takes no memory, and fails only for a descriptor that was closed.
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event);
}

void Poller::unwatch(int fd) {
  const auto key = keys_.find(fd);
  if (key == keys_.end()) return;
  // Fails if the descriptor was closed, which has removed it as well.
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(key->second);
  keys_.erase(key);
}

void Poller::wake() { add_one(wake_fd_); }

void Poller::clear() {
  // An object that a callback owns may call unwatch from its destructor.
  const auto watches = std::exchange(watches_, {});
  for (const auto& [fd, key] : std::exchange(keys_, {})) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void Poller::rest() {
  epoll_event event{};
  if (epoll_wait(sleep_fd_, &event, 1, -1) == 1) read_count(wake_fd_);
}

void Poller::arm() { listen_to_watched(EPOLLIN); }
void Poller::disarm() { listen_to_watched(0); }

// Cannot fail: the descriptor was added, and this needs no memory.
void Poller::listen_to_watched(uint32_t events) {
  epoll_event event{};
  event.events = events;
  epoll_ctl(sleep_fd_, EPOLL_CTL_MOD, epoll_fd_, &event);
}

void Poller::set_alarm(Nanos when) {
  if (when >= alarm_at_) return;
  alarm_at_ = when;
  itimerspec alarm{};
  const Nanos at = std::max<Nanos>(when, 1);  // 0 would turn it off
  alarm.it_value.tv_sec = static_cast<time_t>(at / kSecond);
  alarm.it_value.tv_nsec = static_cast<long>(at % kSecond);
  timerfd_settime(alarm_fd_, TFD_TIMER_ABSTIME, &alarm, nullptr);
}

bool Poller::wait(int milliseconds) {
  const int count = epoll_wait(epoll_fd_, events_.data(), static_cast<int>(events_.size()), milliseconds);
  event_count_ = static_cast<size_t>(std::max(count, 0));
  return event_count_ != 0;
}

void Poller::dispatch(const std::function<void(const std::function<void()>&)>& call) {
  for (size_t i = 0; i < event_count_; ++i) {
    const uint64_t key = events_[i].data.u64;
    if (key == kAlarmKey) {
      read_count(alarm_fd_);
      alarm_at_ = kNever;
      continue;
    }
    if (key == kBellKey) {
      read_count(bell_->fd());
      continue;
    }
    const auto found = watches_.find(key);
    if (found == watches_.end()) continue;
    // Held: the callback may unwatch itself.
    const std::shared_ptr<Watch> watch = found->second;
    const uint32_t events = events_[i].events;
    if ((events & ~uint32_t{EPOLLOUT}) != 0) call(watch->on_readable);
    if ((events & EPOLLOUT) == 0 || !watch->is_writable_awaited || !watches_.contains(key)) continue;
    call(watch->on_writable);
  }
  event_count_ = 0;
}

}  // namespace distag
