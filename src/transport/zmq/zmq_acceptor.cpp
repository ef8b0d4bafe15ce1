#include "transport/zmq/zmq_acceptor.h"

#include <sys/stat.h>
#include <zmq.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "transport/zmq/probe.h"
#include "transport/zmq/zmq_monitor.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {
namespace {

constexpr int kMessagesPerTurn = 64;
// The IO thread closes a listener at once; it has to be very busy to need this.
constexpr Nanos kCloseTimeout = kSecond;

[[noreturn]] void fail_in_use(const SocketAddress& address) {
  fail(Status::kInvalidState, "\"{}\" is in use: somebody listens there; stop them or take another address",
       address.endpoint);
}

// libzmq replaces whatever file is in the way of an ipc endpoint, so it is looked at before: only what a dead process
// left may go.
void check_path(const SocketAddress& address) {
  struct stat status {};
  if (lstat(address.path(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    fail(Status::kInvalidState, "\"{}\" cannot be listened at: the path exists and is no socket", address.endpoint);
  }
  if (probe_now(address) != ProbeResult::kRefused) fail_in_use(address);
}

}  // namespace

class ZmqAcceptor::State final : public ZmqHandler, public std::enable_shared_from_this<ZmqAcceptor::State> {
 public:
  State(std::shared_ptr<ZmqContext> context, AcceptorEvents events)
      : context_(std::move(context)), events_(std::move(events)) {}

  void listen(const SocketAddress& address);
  bool reply(const ConnectionToken& to, const Frames& frames);
  void close();
  bool handle() override;
  const std::string& endpoint() const { return endpoint_; }

 private:
  const std::shared_ptr<ZmqContext> context_;
  const AcceptorEvents events_;
  std::unique_ptr<ZmqSocket> socket_;  // null once closed
  std::string endpoint_;
  ConnectionToken from_;
};

void ZmqAcceptor::State::listen(const SocketAddress& address) {
  if (address.is_ipc()) check_path(address);
  socket_ = std::make_unique<ZmqSocket>(context_, ZmqSocket::Kind::kRouter, address.family() == AF_INET6);
  if (zmq_bind(socket_->handle(), address.endpoint.c_str()) != 0) {
    const int error = zmq_errno();
    if (error == EADDRINUSE) fail_in_use(address);
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
      fail(Status::kOutOfMemory, "\"{}\" cannot be listened at: {}", address.endpoint, zmq_strerror(error));
    }
    fail(Status::kInvalidArgument, "\"{}\" cannot be listened at: {}", address.endpoint, zmq_strerror(error));
  }
  char text[256] = {};
  size_t size = sizeof text;
  if (zmq_getsockopt(socket_->handle(), ZMQ_LAST_ENDPOINT, text, &size) != 0) {
    fail(Status::kInternal, "the endpoint of \"{}\" is not known: {}", address.endpoint, zmq_strerror(zmq_errno()));
  }
  endpoint_ = text;
  context_->watch(socket_->fd(), shared_from_this());
}

bool ZmqAcceptor::State::reply(const ConnectionToken& to, const Frames& frames) {
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  if (!socket_) return false;
  context_->check_later(shared_from_this());
  return socket_->send(&to, frames) == ZmqSocket::SendResult::kSent;
}

void ZmqAcceptor::State::close() {
  context_->unwatch(socket_->fd());
  try {
    // Who was told that this is closed may listen here again at once, and must not lose its file to a late unlink.
    ZmqMonitor monitor(*context_, socket_->handle());
    if (zmq_unbind(socket_->handle(), endpoint_.c_str()) == 0) {
      monitor.wait_for(ZmqMonitor::Event::kClosed, kCloseTimeout);
    }
  } catch (const Error&) {
    // Without descriptors for a monitor it is closed a moment later.
  }
  socket_.reset();
}

// A callback may destroy the acceptor, which closes the socket.
bool ZmqAcceptor::State::handle() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Frames frames;
    if (!socket_ || !socket_->receive(&from_, frames)) return false;
    if (!frames.empty() && events_.on_message) events_.on_message(from_, std::move(frames));
  }
  return true;
}

ZmqAcceptor::ZmqAcceptor(const std::shared_ptr<ZmqContext>& context, const SocketAddress& address,
                         AcceptorEvents events)
    : state_(std::make_shared<State>(context, std::move(events))) {
  state_->listen(address);
}

ZmqAcceptor::~ZmqAcceptor() { state_->close(); }

const std::string& ZmqAcceptor::endpoint() const { return state_->endpoint(); }

bool ZmqAcceptor::reply(const ConnectionToken& to, Frames frames) { return state_->reply(to, frames); }

}  // namespace distag
