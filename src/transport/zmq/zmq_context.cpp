#include "transport/zmq/zmq_context.h"

#include <zmq.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/reserve.h"
#include "transport/zmq/probe.h"

namespace distag {
namespace {

constexpr int kMaxSockets = 32768;
constexpr int kTries = 16;

void set(void* context, int option, int value) {
  if (zmq_ctx_set(context, option, value) != 0) {
    fail(Status::kInternal, "ZeroMQ context option {} = {}: {}", option, value, zmq_strerror(zmq_errno()));
  }
}

}  // namespace

ZmqContext::ZmqContext(FdLoop& loop) : loop_(loop), lent_frames_(std::make_shared<LentFrames>(loop)) {
  require_descriptors(kDialReserve);
  context_ = zmq_ctx_new();
  if (context_ == nullptr) {
    fail(Status::kOutOfMemory, "a ZeroMQ context cannot be made: {}", zmq_strerror(zmq_errno()));
  }
  try {
    set(context_, ZMQ_IO_THREADS, 1);
    set(context_, ZMQ_MAX_SOCKETS, kMaxSockets);
    set(context_, ZMQ_BLOCKY, 0);
    idle_check_ = loop_.add_idle_check([this] { return check(); });
  } catch (...) {
    zmq_ctx_term(context_);
    throw;
  }
}

ZmqContext::~ZmqContext() {
  loop_.remove_idle_check(idle_check_);
  if (is_left_alone_) return;
  while (zmq_ctx_term(context_) != 0 && zmq_errno() == EINTR) {
  }
  // All are back now, but the loop may have ended.
  lent_frames_->release();
}

void* ZmqContext::open_socket(int type) {
  assert_on_loop(loop_);
  for (int left = kTries; left > 0; --left) {
    make_room_if_short();
    void* const socket = call([this, type] { return zmq_socket(context_, type); });
    if (socket != nullptr || zmq_errno() != ENOMEM) return socket;
    is_left_alone_ = true;
  }
  return nullptr;
}

void ZmqContext::watch(int fd, const std::shared_ptr<ZmqHandler>& handler) {
  assert_on_loop(loop_);
  loop_.watch(fd, [this, weak = std::weak_ptr(handler)] {
    const auto alive = weak.lock();
    if (alive && alive->handle()) check_later(alive);
  });
  check_later(handler);
}

void ZmqContext::unwatch(int fd) {
  assert_on_loop(loop_);
  loop_.unwatch(fd);
}

void ZmqContext::check_later(const std::shared_ptr<ZmqHandler>& handler) {
  assert_on_loop(loop_);
  if (handler->to_be_checked_) return;
  to_check_.push_back(handler);
  handler->to_be_checked_ = true;
}

bool ZmqContext::check() {
  assert_on_loop(loop_);
  for (size_t left = to_check_.size(); left > 0; --left) {
    // One that throws stays, to be looked at again.
    if (const auto handler = to_check_.front().lock()) {
      handler->to_be_checked_ = false;
      if (handler->handle()) check_later(handler);
    }
    to_check_.pop_front();
  }
  return !to_check_.empty();
}

}  // namespace distag
