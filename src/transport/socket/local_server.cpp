#include "transport/socket/local_server.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <unordered_map>
#include <utility>

#include "base/each_step.h"
#include "base/error.h"
#include "base/fd_loop.h"
#include "base/own_descriptors.h"
#include "transport/socket/credentials.h"
#include "transport/socket/descriptors.h"
#include "transport/socket/local_address.h"

namespace distag {
namespace {

constexpr size_t kMostGuests = 32;
constexpr size_t kLongestQuestion = 128;
constexpr int kGuestsPerTurn = 8;
constexpr Nanos kGuestPatience = 2 * kSecond;
// The pause in accepting after descriptors ran short.
constexpr Nanos kShortagePause = 100 * kMillisecond;
// Descriptors that stay free for everything else.
constexpr int kLocalReserve = 2 * kDialReserve;

}  // namespace

class LocalServer::State final : public std::enable_shared_from_this<State> {
 public:
  State(FdLoop& loop, uint64_t id, OnQuestion on_question)
      : loop_(loop), on_question_(std::move(on_question)), address_(id) {}

  void watch();
  void close();

 private:
  using Id = uint64_t;
  struct Guest {
    int fd = -1;
    std::string question;
    bool has_asked = false;
    std::string answer;
    size_t sent = 0;
    Loop::TimerId timer = 0;
  };

  void unwatch();
  void accept_waiting();
  void pause();
  void resume() noexcept;
  void take_in(int fd);
  void on_readable(Id id);
  void ask(Id id, Guest& guest);
  void on_answer(Id id, std::string text);
  void send_on(Id id);
  void restart_timer(Id id, Guest& guest);
  void hang_up(Id id);

  FdLoop& loop_;
  const OnQuestion on_question_;
  const LocalAddress address_;
  bool is_watched_ = false;
  bool is_closed_ = false;
  Loop::TimerId pause_timer_ = 0;
  std::unordered_map<Id, Guest> guests_;
  Id last_id_ = 0;
};

void LocalServer::State::watch() {
  if (is_watched_) return;
  loop_.watch(address_.fd(), [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->accept_waiting();
  });
  is_watched_ = true;
}

void LocalServer::State::unwatch() {
  if (std::exchange(is_watched_, false)) loop_.unwatch(address_.fd());
}

void LocalServer::State::accept_waiting() {
  assert_on_loop(loop_);
  for (int i = 0; i < kGuestsPerTurn; ++i) {
    if (guests_.size() >= kMostGuests) return unwatch();
    if (!has_descriptors(kLocalReserve)) return pause();
    const int fd =
        OwnDescriptors::open([this] { return accept4(address_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (fd >= 0) {
      take_in(fd);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != ECONNABORTED) {
      return pause();
    }
  }
}

// Waiting guests are accepted once descriptors are free again, or time out.
void LocalServer::State::pause() {
  try {
    pause_timer_ = loop_.start_timer(loop_.now() + kShortagePause, [weak = weak_from_this()] {
      const auto state = weak.lock();
      if (state == nullptr) return;
      state->pause_timer_ = 0;
      state->resume();
    });
  } catch (const std::bad_alloc&) {
    return;  // the socket is still watched, and accepting is tried again
  }
  unwatch();
}

// Without memory to watch the socket, the end of the next guest tries again.
void LocalServer::State::resume() noexcept {
  if (is_closed_ || pause_timer_ != 0) return;
  EachStep each;
  each([this] { watch(); });
}

void LocalServer::State::take_in(int fd) {
  if (!is_of_same_user(fd)) return OwnDescriptors::close(fd);
  const Id id = ++last_id_;
  try {
    Guest& guest = guests_[id];
    guest.fd = fd;
    restart_timer(id, guest);
    loop_.watch(
        fd,
        [weak = weak_from_this(), id] {
          if (const auto state = weak.lock()) state->on_readable(id);
        },
        [weak = weak_from_this(), id] {
          if (const auto state = weak.lock()) state->send_on(id);
        });
  } catch (...) {
    // Without memory this guest gets no answer.
    if (guests_.contains(id)) {
      hang_up(id);
    } else {
      OwnDescriptors::close(fd);
    }
  }
}

void LocalServer::State::restart_timer(Id id, Guest& guest) {
  loop_.cancel_timer(std::exchange(guest.timer, 0));
  guest.timer = loop_.start_timer(loop_.now() + kGuestPatience, [weak = weak_from_this(), id] {
    if (const auto state = weak.lock()) state->hang_up(id);
  });
}

// A guest that has asked must not send more: it has hung up, or is hung up on.
void LocalServer::State::on_readable(Id id) {
  assert_on_loop(loop_);
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  Guest& guest = found->second;
  std::array<char, kLongestQuestion> bytes{};
  const ssize_t size = recv(guest.fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0 || guest.has_asked) return hang_up(id);
  guest.question.append(bytes.data(), static_cast<size_t>(size));
  const size_t end = guest.question.find('\n');
  if (end == std::string::npos && guest.question.size() < kLongestQuestion) return;
  if (end == std::string::npos || end + 1 != guest.question.size()) return hang_up(id);
  guest.question.pop_back();
  ask(id, guest);
}

// The answer has no time limit here: `on_question_` has to bound it.
void LocalServer::State::ask(Id id, Guest& guest) {
  guest.has_asked = true;
  loop_.cancel_timer(std::exchange(guest.timer, 0));
  try {
    on_question_(std::exchange(guest.question, {}), [weak = weak_from_this(), id](std::string text) {
      if (const auto state = weak.lock()) state->on_answer(id, std::move(text));
    });
  } catch (...) {
    hang_up(id);  // no memory for an answer
  }
}

void LocalServer::State::on_answer(Id id, std::string text) {
  assert_on_loop(loop_);
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  try {
    found->second.answer = std::move(text);
    restart_timer(id, found->second);
  } catch (...) {
    return hang_up(id);
  }
  send_on(id);
}

void LocalServer::State::send_on(Id id) {
  assert_on_loop(loop_);
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  Guest& guest = found->second;
  const ssize_t size =
      send(guest.fd, guest.answer.data() + guest.sent, guest.answer.size() - guest.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size < 0 && errno != EAGAIN && errno != EINTR) return hang_up(id);
  if (size > 0) guest.sent += static_cast<size_t>(size);
  if (guest.sent == guest.answer.size()) return hang_up(id);
  loop_.await_writable(guest.fd, true);
}

void LocalServer::State::hang_up(Id id) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  loop_.cancel_timer(found->second.timer);
  loop_.unwatch(found->second.fd);
  OwnDescriptors::close(found->second.fd);
  guests_.erase(found);
  resume();
}

void LocalServer::State::close() {
  is_closed_ = true;
  loop_.cancel_timer(std::exchange(pause_timer_, 0));
  unwatch();
  while (!guests_.empty()) hang_up(guests_.begin()->first);
}

LocalServer::LocalServer(FdLoop& loop, uint64_t id, OnQuestion on_question) {
  require_descriptors(kLocalReserve);
  state_ = std::make_shared<State>(loop, id, std::move(on_question));
  state_->watch();
}

LocalServer::~LocalServer() { state_->close(); }

}  // namespace distag
