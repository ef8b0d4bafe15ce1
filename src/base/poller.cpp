#include "base/poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

constexpr uint64_t kWakeKey = 0;

int timeout_ms(Nanos timeout) {
  if (timeout < 0) return -1;
  return static_cast<int>(std::min<Nanos>((timeout + kMillisecond - 1) / kMillisecond, INT_MAX));
}

}  // namespace

Poller::Poller() {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (epoll_fd_ < 0 || wake_fd_ < 0 || epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) != 0) {
    const int reason = errno;
    if (epoll_fd_ >= 0) close(epoll_fd_);
    if (wake_fd_ >= 0) close(wake_fd_);
    fail(Status::kOutOfMemory, "a loop cannot be made: {}; raise the limit of open files", std::strerror(reason));
  }
}

Poller::~Poller() {
  close(epoll_fd_);
  close(wake_fd_);
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
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return;
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

void Poller::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

void Poller::clear() {
  // An object that a callback owns may call unwatch when it goes.
  const auto watches = std::exchange(watches_, {});
  for (const auto& [fd, key] : std::exchange(keys_, {})) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

int Poller::poll(Nanos timeout) {
  const int capacity = static_cast<int>(events_.size());
  if (precise_ && timeout > 0) {
    timespec duration{};
    duration.tv_sec = static_cast<time_t>(timeout / kSecond);
    duration.tv_nsec = static_cast<long>(timeout % kSecond);
    const int count = epoll_pwait2(epoll_fd_, events_.data(), capacity, &duration, nullptr);
    if (count >= 0 || errno != ENOSYS) return count;
    precise_ = false;
  }
  return epoll_wait(epoll_fd_, events_.data(), capacity, timeout_ms(timeout));
}

bool Poller::wait(Nanos now, Nanos deadline) {
  const int count = poll(deadline == kNever ? -1 : std::max<Nanos>(deadline - now, 0));
  event_count_ = static_cast<size_t>(std::max(count, 0));
  return event_count_ != 0;
}

void Poller::dispatch(const std::function<void(const std::function<void()>&)>& call) {
  for (size_t i = 0; i < event_count_; ++i) {
    const uint64_t key = events_[i].data.u64;
    if (key == kWakeKey) {
      uint64_t wakes = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &wakes, sizeof wakes);
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
