#include "transport/zmq/zmq_context.h"

#include <cerrno>

#include "base/error.h"
#include "base/executor.h"
#include "base/process.h"
#include "base/threaded_library.h"
#include "transport/socket/descriptors.h"
#include "transport/zmq/libzmq.h"
#include "transport/zmq/zap.h"

namespace distag {
namespace {

// Three for each of 4,096 members, and some. libzmq allocates a table of that size with its first socket.
constexpr int kMaxSockets = 16384;
// Twice the threads that libzmq starts with its first socket: threads of the trial may count for a moment after they
// have ended. Without room for a thread, libzmq ends the process.
constexpr size_t kThreadsTried = 4;
constexpr size_t kMemoryTried = size_t{1} << 20;

void set(void* context, int option, int value) {
  if (libzmq.zmq_ctx_set(context, option, value) != 0) {
    fail(Status::kInternal, "ZeroMQ context option {} = {}: {}", option, value,
         libzmq.zmq_strerror(libzmq.zmq_errno()));
  }
}

// Ends the context in its destructor: with the task that holds it, whether that has run or not.
class Ending {
 public:
  Ending(void* context, std::shared_ptr<LentFrames> lent) : context_(context), lent_(std::move(lent)) {}
  ~Ending() {
    while (libzmq.zmq_ctx_term(context_) != 0 && libzmq.zmq_errno() == EINTR) {
    }
    lent_->release();  // all frames are back, and the loop may have ended
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  void* const context_;
  const std::shared_ptr<LentFrames> lent_;
};

}  // namespace

ZmqContext::ZmqContext(FdLoop& loop, Executor* ender, Nanos last_words)
    : turns_(std::make_shared<SocketTurns>(loop)),
      ender_(ender),
      last_words_(last_words),
      lent_frames_(std::make_shared<LentFrames>(loop)),
      generation_(process_generation()) {}

ZmqContext::~ZmqContext() {
  zap_.reset();
  if (context_ == nullptr || is_left_alone_ || !is_here()) return;
  try {
    auto ending = std::make_unique<Ending>(context_, lent_frames_);
    if (ender_ != nullptr) ender_->post_or_drop([held = std::move(ending)] {});
  } catch (...) {
    // Without memory for the task, the context ended here; without memory even for that, its threads stay.
  }
}

void ZmqContext::let_last_words_go() {
  assert_on_loop(loop());
  is_orderly_end_ = true;
}

const std::shared_ptr<ZapHandler>& ZmqContext::zap() {
  assert_on_loop(loop());
  if (zap_ == nullptr) zap_ = ZapHandler::make(*this);
  return zap_;
}

bool ZmqContext::is_here() const { return generation_ == process_generation(); }

void* ZmqContext::open_socket(int type) {
  assert_on_loop(loop());
  require_descriptors(kDescriptorReserve);
  if (context_ == nullptr) {
    libzmq.find_all();
    if (!has_room_for_threads(kThreadsTried, kMemoryTried)) {
      fail(Status::kOutOfMemory,
           "libzmq has no room for its threads; raise the limit of threads (ulimit -u), of memory (ulimit -v), or of "
           "mappings (vm.max_map_count)");
    }
    void* const context = libzmq.zmq_ctx_new();
    if (context == nullptr) {
      fail(Status::kOutOfMemory, "a ZeroMQ context cannot be made: {}", libzmq.zmq_strerror(libzmq.zmq_errno()));
    }
    context_ = context;
    set(context_, ZMQ_IO_THREADS, 1);
    set(context_, ZMQ_MAX_SOCKETS, kMaxSockets);
    set(context_, ZMQ_BLOCKY, 0);
  }
  void* const socket = call([this, type] { return libzmq.zmq_socket(context_, type); });
  if (socket == nullptr) {
    fail(Status::kOutOfMemory, "a ZeroMQ socket cannot be made: {}; raise the limit of open files (ulimit -n)",
         libzmq.zmq_strerror(libzmq.zmq_errno()));
  }
  return socket;
}

}  // namespace distag
