#pragma once

#include <zmq.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/security.h"
#include "transport/transport.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

// A DEALER with every option that matters set explicitly. On the loop.
class ZmqSocket {
 public:
  enum class SendResult { kSent, kWouldBlock, kGone };

  // Throws OUT_OF_MEMORY when descriptors or sockets run out.
  ZmqSocket(std::shared_ptr<ZmqContext> context, bool ipv6);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void* handle() const { return socket_; }
  int fd() const { return fd_; }

  // Encrypts what it dials from now on. Throws UNSUPPORTED when libzmq was built without CURVE.
  void set_keys(const SocketKeys& keys);

  // Throws INVALID_ARGUMENT for what libzmq does not take as an endpoint.
  void connect(const std::string& endpoint);

  // A multipart message. All or nothing.
  SendResult send(const Frames& frames);

  // False when there is none.
  bool receive(Frames& frames);

  // The operations that could be done now. This and a receive() that found nothing take in all that is known to libzmq:
  // whatever is not told by the last of such calls makes the descriptor readable later.
  struct Readiness {
    bool readable = false;
    bool writable = false;
  };
  Readiness readiness();

  // A call of libzmq has failed half way, for want of memory: nothing comes and nothing goes any more.
  bool is_broken() const { return is_broken_; }

 private:
  std::shared_ptr<ZmqContext> context_;
  void* socket_ = nullptr;
  int fd_ = -1;
  bool is_broken_ = false;
};

// Sets an option; throws INTERNAL naming it.
void set_zmq_option(void* socket, int option, int value);

// Calls until it is not interrupted by a signal. For functions that answer 0 or -1.
template <typename Call>
int retry_zmq(Call&& call) {
  int result = -1;
  do {
    result = call();
  } while (result != 0 && zmq_errno() == EINTR);
  return result;
}

// Closes a socket of any kind; does nothing for nullptr.
void close_zmq_socket(void* socket);

}  // namespace distag
