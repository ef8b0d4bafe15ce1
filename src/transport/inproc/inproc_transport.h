#pragma once

#include <memory>
#include <string>

#include "base/loop.h"
#include "transport/transport.h"

namespace distag {

class InprocPort;

// Frames between workers of one process, whatever loops they run on: the frames themselves are handed over. Names are
// unique in the process. Made, used and destroyed on the loop, or while the loop does not run; its acceptors and
// connections must go first. Loops may end in any order.
class InprocTransport final : public Transport {
 public:
  explicit InprocTransport(Loop& loop);
  ~InprocTransport() override;

  std::unique_ptr<Acceptor> listen(const std::string& address, AcceptorEvents events) override;
  std::unique_ptr<Connection> dial(const std::string& endpoint, ConnectionEvents events) override;
  std::unique_ptr<Connection> dial_worker(const std::string&, const std::string& endpoint,
                                          ConnectionEvents events) override {
    return dial(endpoint, std::move(events));
  }
  std::string explain_denial() const override { return "its keys do not fit"; }
  void check_endpoint(const std::string& endpoint) const override;
  std::string private_address() override;
  void let_last_words_go() override {}
  bool is_exact() const override { return true; }
  bool reports_every_loss() const override { return true; }
  LaneReport lane_report() const override { return {}; }
  SocketReport socket_report() const override { return {}; }
  void check_descriptors(size_t) const override {}

 private:
  const std::shared_ptr<InprocPort> port_;
};

}  // namespace distag
