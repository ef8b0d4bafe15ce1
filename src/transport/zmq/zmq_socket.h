#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/security.h"
#include "transport/socket/address.h"
#include "transport/transport.h"
#include "transport/zmq/libzmq.h"
#include "transport/zmq/zmq_context.h"
#include "transport/zmq/zmq_message.h"

namespace distag {

// A socket of libzmq with every option that matters set explicitly. On the loop. The destructor closes it, but not in a
// forked child.
class ZmqSocket {
 public:
  enum class SendResult { kSent, kWouldBlock, kGone };
  enum class Received { kMessage, kPart, kNothing };

  // The most messages that are queued in either direction of a connection.
  static constexpr int kHighWaterMark = 64;

  // Throws OUT_OF_MEMORY when descriptors or sockets run out.
  ZmqSocket(std::shared_ptr<ZmqContext> context, int type);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  ZmqContext& context() const { return *context_; }
  const std::shared_ptr<ZmqContext>& shared_context() const { return context_; }
  void* handle() const { return socket_; }
  int fd() const { return fd_; }

  void set(int option, int value);
  void set(int option, const void* value, size_t size);
  // Sets the options of a ZMTP connection, dialled or accepted.
  void set_connection_options(const SocketAddress& address, const std::optional<SocketKeys>& keys);

  // Queued messages are still sent for up to that long after the end.
  void let_linger(Nanos most);

  // Sends a multipart message; at a ROUTER, to the peer with the routing id `to`. All or nothing.
  SendResult send(std::span<const std::byte> to, const Frames& frames);

  // Takes parts until a message is whole or nothing is left. kPart: there is more than one call takes.
  Received receive();
  // The parts of the message that receive() found: at a ROUTER the routing id first. Of a message that is too large
  // only the first two.
  std::span<ZmqPart> parts() { return parts_; }
  bool is_too_large() const { return is_too_large_; }
  // The number of messages that this one counts for in a turn of the loop, as payload takes time to copy and to free.
  int turn_cost() const { return static_cast<int>(1 + bytes_ / kBytesOfOne); }

  // The operations that are possible now. This, and a receive() that finds nothing, process all that libzmq knows so
  // far: anything later makes the descriptor readable.
  struct Readiness {
    bool readable = false;
    bool writable = false;
  };
  Readiness readiness();

  // A call of libzmq has failed half way, without memory: the socket neither receives nor sends any more.
  bool is_broken() const { return is_broken_; }

 private:
  static constexpr size_t kBytesOfOne = 4 << 10;

  Received receive_parts();

  const std::shared_ptr<ZmqContext> context_;
  void* socket_ = nullptr;
  int fd_ = -1;
  std::vector<ZmqPart> parts_;
  size_t bytes_ = 0;      // of the message under way
  bool is_whole_ = true;  // the last part was received
  bool is_too_large_ = false;
  bool is_broken_ = false;
};

// Repeats the call while signals interrupt it. For functions that return 0 or -1.
template <typename Call>
int retry_zmq(Call&& call) {
  int result = -1;
  do {
    result = call();
  } while (result != 0 && libzmq.zmq_errno() == EINTR);
  return result;
}

// Throws UNSUPPORTED when libzmq was built without CURVE.
void require_zmq_curve();

}  // namespace distag
