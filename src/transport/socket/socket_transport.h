#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/security.h"
#include "transport/socket/socket_engine.h"
#include "transport/transport.h"

namespace distag {

class PrivateDirectory;

// tcp and ipc in the protocol of ZeroMQ, by an engine. Decides on addresses and keys. Made, used and destroyed on the
// loop, or while the loop does not run; its acceptors and connections may outlive it. With a group key all tcp traffic
// is encrypted (CURVE), and a peer without the key is refused; without one tcp stays on loopback, and uses the key of
// the user. With a key for each worker ipc uses CURVE as well.
class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(std::unique_ptr<SocketEngine> engine, Security security = {});
  ~SocketTransport() override;

  std::unique_ptr<Acceptor> listen(const std::string& address, AcceptorEvents events) override;
  // Also throws OUT_OF_MEMORY when descriptors run out.
  std::unique_ptr<Connection> dial(const std::string& endpoint, ConnectionEvents events) override;
  std::unique_ptr<Connection> dial_worker(const std::string& name, const std::string& endpoint,
                                          ConnectionEvents events) override;
  std::string explain_denial() const override;
  void check_endpoint(const std::string& endpoint) const override;
  std::string private_address() override;
  void let_last_words_go() override { engine_->let_last_words_go(); }
  bool is_exact() const override { return false; }
  bool reports_every_loss() const override { return false; }
  LaneReport lane_report() const override;
  SocketReport socket_report() const override { return engine_->report(); }
  void check_descriptors(size_t members) const override;

 private:
  std::optional<SocketKeys> keys_for(const SocketAddress& address, const std::string& text,
                                     const CurveKey* server = nullptr);
  CurveKey need_key_of(const std::string& name) const;

  std::optional<CurveKeyPair> user_key_;  // set when first needed
  const std::unique_ptr<SocketEngine> engine_;
  const Security security_;
  std::unique_ptr<PrivateDirectory> directory_;
  uint64_t last_address_ = 0;
};

}  // namespace distag
