#include "transport/zmtp/probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/each_step.h"
#include "base/own_descriptors.h"
#include "transport/socket/credentials.h"
#include "transport/socket/descriptors.h"
#include "transport/socket/findings.h"
#include "transport/socket/sodium.h"

namespace distag {
namespace {

constexpr Nanos kProbeTimeout = 500 * kMillisecond;
// The time that a listener may take to speak first, as each ZMTP peer does. It would report a greeting that is only
// begun as a broken handshake, so this side speaks only after that time.
constexpr Nanos kFirstWord = 100 * kMillisecond;
constexpr Nanos kHandshake = 2 * kSecond;
// The first bytes for a program that waits for the other side: the signature of ZMTP's greeting. After the version,
// libzmq sends its whole greeting, before it could refuse this one.
constexpr size_t kSignatureBytes = 10;
constexpr size_t kVersionBytes = 12;
// libzmq hangs up at a HELLO for another key, while distag's own engine says why. A process that ends just then hangs
// up too, but not that many times in a row.
constexpr int kRefusedHellos = 2;

bool is_refusal(int error) { return error == ECONNREFUSED || error == ENOENT; }

// With a new key that no peer knows: a process that answers HELLO has the expected key, and nothing more is asked.
std::optional<SocketKeys> keys_for(const std::optional<CurveKey>& server) {
  if (!server) return std::nullopt;
  CurveKeyPair own;
  fill_with_key_pair(own);
  return SocketKeys(own, *server, nullptr);
}

}  // namespace

Probe::Probe(FdLoop& loop, const SocketAddress& address, const std::optional<CurveKey>& server,
             std::function<void(Answer answer)> done)
    : loop_(loop), address_(address), keys_(keys_for(server)), done_(std::move(done)) {
  try {
    dial();
  } catch (...) {
    hang_up();
    throw;
  }
}

Probe::~Probe() { hang_up(); }

void Probe::dial() {
  reader_.emplace(ZmtpReader::Role::kDials, keys_ ? &*keys_ : nullptr);
  words_ = reader_->take_answer();
  said_ = 0;
  is_connected_ = false;
  int error = 0;
  fd_ =
      OwnDescriptors::open([this] { return socket(address_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (fd_ < 0 || connect(fd_, reinterpret_cast<const sockaddr*>(&address_.address), address_.length) != 0) {
    error = errno;
  }
  if (error != 0 && error != EINPROGRESS) {
    timer_ = loop_.start_timer(loop_.now(), [this, error] { on_connected(error); });
    return;
  }
  limit(kProbeTimeout, findings::kNoAnswer);
  const auto look = [this] { on_ready(); };
  loop_.watch(fd_, look, look);
  loop_.await_writable(fd_, true);
}

void Probe::hang_up() {
  loop_.cancel_timer(std::exchange(timer_, 0));
  if (fd_ < 0) return;
  loop_.unwatch(fd_);
  OwnDescriptors::close(std::exchange(fd_, -1));
}

void Probe::on_ready() {
  assert_on_loop(loop_);
  if (is_connected_) return on_readable();
  int reason = 0;
  socklen_t size = sizeof reason;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &reason, &size) != 0) reason = errno;
  on_connected(reason);
}

void Probe::on_connected(int error) {
  assert_on_loop(loop_);
  if (is_refusal(error)) return finish({.is_refused = true, .found = findings::kNobodyListens});
  if (std::optional<Error> lack = own_lack(error, address_)) {
    std::string text;
    EachStep each;  // without memory nothing is found
    each([&] { text = lack->message(); });
    return finish({.found = std::move(text), .lack = std::move(lack)});
  }
  if (error != 0) return finish({.found = findings::of_connect(error)});
  if (address_.is_ipc() && !keys_ && !is_of_same_user(fd_)) return finish({.is_denied = true, .found = {}});
  is_connected_ = true;
  loop_.await_writable(fd_, false);
  listen();
}

// Waits for the first bytes of the other side, then for its answer to the signature.
void Probe::listen() {
  loop_.cancel_timer(timer_);
  timer_ = loop_.start_timer(loop_.now() + kFirstWord, [this] {
    limit(kProbeTimeout, findings::kIsSilent);
    say(kSignatureBytes);
  });
}

// Sends a few hundred bytes, which a new connection takes without blocking.
void Probe::say(size_t end) {
  end = std::min(end, words_.size());
  if (end <= said_) return;
  static_cast<void>(::send(fd_, words_.data() + said_, end - said_, MSG_NOSIGNAL));
  said_ = end;
}

void Probe::on_readable() {
  assert_on_loop(loop_);
  const std::span<std::byte> room = reader_->room();
  const ssize_t got = ::read(fd_, room.data(), room.size());
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return on_hang_up();
  hear(static_cast<size_t>(got));
}

// Each side greets, then sends its first command: so the whole greeting of the other side is read before it can hang up
// on bytes of this one.
void Probe::hear(size_t count) {
  if (said_ < kVersionBytes) limit(kHandshake, findings::kBrokeOff);
  reader_->add(count);
  try {
    static_cast<void>(reader_->next());
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kDenied) return finish({.is_denied = true, .found = {}});
    if (error.status() != Status::kProtocol) return finish({.found = {}});
    return finish({.found = findings::another_program(error.message())});
  }
  say(reader_->has_greeting() ? words_.size() : kVersionBytes);
  const bool is_answered = reader_->is_ready() || !reader_->take_answer().empty();
  if (is_answered) finish({.found = {}});
}

void Probe::on_hang_up() {
  const bool has_said_hello_to_libzmq = keys_ && reader_->is_greeted_by_libzmq();
  if (!has_said_hello_to_libzmq) return finish({.found = findings::kHangsUp});
  if (++refused_hellos_ == kRefusedHellos) return finish({.is_denied = true, .found = {}});
  hang_up();
  try {
    dial();
  } catch (...) {
    finish({.found = findings::kHangsUp});
  }
}

void Probe::limit(Nanos most, const char* found) {
  loop_.cancel_timer(timer_);
  timer_ = loop_.start_timer(loop_.now() + most, [this, found] { finish({.found = found}); });
}

void Probe::finish(Answer answer) {
  assert_on_loop(loop_);
  // The callback may destroy this.
  const auto done = std::exchange(done_, nullptr);
  if (done) done(std::move(answer));
}

}  // namespace distag
