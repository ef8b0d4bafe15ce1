#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/fd_loop.h"
#include "transport/transport.h"

namespace distag {

class LaneContext;

// The same-machine lane: two rings in memory that both processes have mapped, instead of a connection of the transport
// below, between processes of one user whose endpoint is ipc://. A worker that listens at ipc:///path accepts lanes at
// /path.lane; diallers try there first. If that fails in any way, the connection is one of the transport below. So each
// connection goes one way, from its first message to its last. schemas/lane.md specifies the format.
class ShmTransport final : public Transport {
 public:
  // `why_off`: empty, or why all connections go below. `background`, which outlives this: runs slow work. `worker`: a
  // unique number, by which the other side of a lane tells this worker from others of its process; 0: memory that it
  // lends does not come back by name.
  ShmTransport(FdLoop& loop, std::shared_ptr<Transport> below, const std::string& why_off,
               Executor* background = nullptr, uint64_t worker = 0);
  ~ShmTransport() override;

  std::unique_ptr<Acceptor> listen(const std::string& address, AcceptorEvents events) override;
  std::unique_ptr<Connection> dial(const std::string& endpoint, ConnectionEvents events) override;
  std::string explain_denial() const override { return below_->explain_denial(); }
  // Lanes do not exist beside worker keys, so this transport is not in use then.
  std::unique_ptr<Connection> dial_worker(const std::string&, const std::string& endpoint,
                                          ConnectionEvents events) override {
    return dial(endpoint, std::move(events));
  }
  void check_endpoint(const std::string& endpoint) const override { below_->check_endpoint(endpoint); }
  std::string private_address() override { return below_->private_address(); }
  void let_last_words_go() override { below_->let_last_words_go(); }
  // Bytes in a ring may change after they were written, as the other process can write there.
  bool is_exact() const override { return below_->is_exact(); }
  bool reports_every_loss() const override { return below_->reports_every_loss(); }
  LaneReport lane_report() const override;
  SocketReport socket_report() const override { return below_->socket_report(); }
  void check_descriptors(size_t members) const override { below_->check_descriptors(members); }

 private:
  const std::shared_ptr<Transport> below_;
  const std::shared_ptr<LaneContext> context_;
};

}  // namespace distag
