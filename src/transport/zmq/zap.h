#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/security.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {

// The request of libzmq whether to admit a connection (rfc.zeromq.org/spec/27).
struct ZapRequest {
  std::string domain;   // of the acceptor
  std::string address;  // "127.0.0.1" without a port; over ipc it ends in ":uid:gid:pid"
  std::string request_id;
  std::string mechanism;
  std::optional<CurveKey> key;  // with CURVE
};

// Parses the parts of a request, without the routing id. nullopt: they make no request.
std::optional<ZapRequest> parse_zap_request(std::span<const std::string_view> parts);

// The identity of an admitted connection, which each of its messages carries.
struct ZapTicket {
  uint64_t serial = 0;
  std::optional<CurveKey> key;
  std::string name;  // of the worker whose key it is; empty if keys have no names
};

// nullopt for a text that was not made with that secret.
std::optional<ZapTicket> parse_ticket(std::string_view text, std::string_view secret);

// "tcp://127.0.0.1", or "process 7 of user 1000", as logs name it.
std::string describe_zap_address(const std::string& address, bool is_ipc);
// The user in an ipc address; nullopt if it has none.
std::optional<uint32_t> user_of_zap_address(const std::string& address);

// Tells libzmq which connections to admit, for the acceptors of a context. On the loop. Without a handler libzmq admits
// all: so it is bound before the first ROUTER, and the context, which owns it, closes it after the last.
//
// Each connection gets a serial number of its own, never used again, which comes with each of its messages: whatever
// routing id a peer shows, the number identifies the connection of a message.
class ZapHandler final : public SocketWork, public std::enable_shared_from_this<ZapHandler> {
 public:
  struct Guard {
    std::optional<SocketKeys> keys;
    bool is_ipc = false;  // then, without keys, only this user is admitted
    std::function<void(const std::string& why)> on_denied;
  };

  // The context outlives the handler. Throws OUT_OF_MEMORY.
  static std::shared_ptr<ZapHandler> make(ZmqContext& context);
  ~ZapHandler() override;

  // The domain under which libzmq asks about the sockets of an acceptor, until remove().
  std::string add(Guard guard);
  void remove(const std::string& domain) { guards_.erase(domain); }

  // The serial number that this handler has given the connection of a message; 0 for a message of a connection that it
  // has not admitted.
  uint64_t serial_of(ZmqPart& part) const;
  // All data about that connection; nullopt if the handler has not admitted it.
  std::optional<ZapTicket> ticket_of(ZmqPart& part) const;

  bool take_turn() override;

 private:
  explicit ZapHandler(ZmqContext& context);
  void answer(std::span<ZmqPart> parts);
  std::string why_refused(const Guard& guard, const ZapRequest& request, std::string& name) const;
  std::string next_ticket(const ZapRequest& request, const std::string& name);

  ZmqSocket socket_;
  const std::string secret_;  // in each ticket, so that no peer can make up a User-Id
  std::map<std::string, Guard> guards_;
  uint64_t last_serial_ = 0;
};

}  // namespace distag
