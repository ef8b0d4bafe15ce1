#include "transport/zmq/zmq_engine.h"

#include <utility>

#include "base/error.h"
#include "transport/socket/descriptors.h"
#include "transport/zmq/libzmq.h"
#include "transport/zmq/zmq_acceptor.h"
#include "transport/zmq/zmq_connection.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {
namespace {

// Functions by which libzmq calls itself, like those called here: its monitor opens a socket and sends.
constexpr const char* kInside[] = {"zmq_bind",     "zmq_close",    "zmq_errno", "zmq_msg_data",   "zmq_msg_init_size",
                                   "zmq_msg_send", "zmq_msg_size", "zmq_poll",  "zmq_setsockopt", "zmq_socket"};

// If the host exports these, two libraries would work at one socket.
void refuse_displaced() {
  for (const char* name : kInside) {
    if (!is_displaced(name, libzmq.zmq_ctx_new.address())) continue;
    fail(Status::kUnsupported,
         "the host exports {} of another libzmq, which that of distag would call: link the host's so that it does not "
         "export its names (docs/embedding.md), or take the other engine (socket_engine, DISTAG_SOCKET_ENGINE=zmtp)",
         name);
  }
}

}  // namespace

ZmqEngine::ZmqEngine(FdLoop& loop, Executor* ender, Nanos look_interval, Nanos last_words)
    : context_(std::make_shared<ZmqContext>(loop, ender, last_words)), look_interval_(look_interval) {}

FdLoop& ZmqEngine::loop() const { return context_->loop(); }

void ZmqEngine::let_last_words_go() { context_->let_last_words_go(); }

// Measured with 4.3.4: a dialled connection takes its mailbox, the socket and two ends of a monitor; an accepted one
// takes a socket; the context, ROUTER, monitor, ZAP and both copies of the listening socket take 11.
size_t ZmqEngine::descriptors_for(size_t members) const {
  constexpr size_t kOfOnePeer = 5, kOfContext = 11;
  return kOfOnePeer * (members - 1) + kOfContext + kLeftForHost;
}

std::unique_ptr<Acceptor> ZmqEngine::listen(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                            AcceptorEvents events) {
  refuse_displaced();
  return std::make_unique<ZmqAcceptor>(context_, address, keys, std::move(events), look_interval_);
}

std::unique_ptr<Connection> ZmqEngine::dial(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                            ConnectionEvents events) {
  if (keys) require_zmq_curve();
  return std::make_unique<ZmqConnection>(context_, address, keys, std::move(events));
}

// The version is of the library in this process.
SocketReport ZmqEngine::report() const {
  int major = 0, minor = 0, patch = 0;
  libzmq.zmq_version(&major, &minor, &patch);
  return {"zmq", fmt::format("{}.{}.{}", major, minor, patch)};
}

std::string_view ZmqEngine::promise(EnginePromise promise) const {
  switch (promise) {
    case EnginePromise::kProcessLives:
      return "no: libzmq ends the process on some malformed ZMTP, after the handshake";
    case EnginePromise::kDescriptorsRunOut:
      return "accepting on `ipc://` ends the process; on `tcp://` the IO thread turns without a pause "
             "until some are free";
    case EnginePromise::kMemoryRunsOut:
      return "the process ends when libzmq asks for it";
    case EnginePromise::kSilentConnections:
      return "each for the 5 s of a handshake; without a number";
    case EnginePromise::kAddressLogged:
      return "where it is known before libzmq has closed the connection; else \"an address that is not "
             "known\". ZAP knows no port";
    case EnginePromise::kHangUpWithoutAWord:
      return "counted, as one in the midst of a handshake";
    case EnginePromise::kDiallerOfAnotherUser:
      return "its greeting and READY are read, no message is heard";
    case EnginePromise::kListenerOfAnotherUser:
      return "greeting and READY go there, no message";
    case EnginePromise::kMemoryOfAStranger:
      return "up to 1 MiB and 64 KiB";
    case EnginePromise::kFramesInOrder:
      return "none is handed out twice or changed: by the numbers of CURVE, which may have gaps, and by "
             "numbers and checksums of the session. The connection ends, over `ipc://` with all others of its "
             "listener, which dial again; libzmq may keep its descriptor";
    case EnginePromise::kDeniedDialler:
      return "at once, by what the handshake says. A listener of libzmq says that a key is another "
             "one by hanging up at HELLO, so there two more connections go through the handshake up "
             "to that; it counts up to three refusals";
    case EnginePromise::kBudgets:
      return "no: libzmq keeps up to 64 messages of each connection besides";
    case EnginePromise::kForkedChild:
      return "yes, except a connection that opened or closed during the fork";
    case EnginePromise::kKeysInMemory:
      return "as libzmq keeps them with each socket";
  }
  return {};
}

}  // namespace distag
