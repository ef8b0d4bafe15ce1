#include "group/rendezvous_tcp.h"

#include <utility>

#include "group/rendezvous_guest.h"
#include "group/rendezvous_host.h"

namespace distag {
namespace {

// Rank 0 is the host, all others are its guests.
class TcpRendezvous final : public Rendezvous {
 public:
  TcpRendezvous(std::string uri, Loop& loop, Transport& transport, Log& log)
      : uri_(std::move(uri)), loop_(loop), transport_(transport), log_(log) {}

  void join(const JoinRequest& request, Callback done) override {
    if (request.self.rank == 0) {
      role_ = std::make_unique<RendezvousHost>(uri_, loop_, transport_, log_);
    } else {
      role_ = std::make_unique<RendezvousGuest>(uri_, loop_, transport_, log_);
    }
    role_->join(request, std::move(done));
  }
  void on_gone(Incarnation incarnation) override {
    if (role_ != nullptr) role_->on_gone(incarnation);
  }
  void look_up(Incarnation incarnation, Answer answer) override { role_->look_up(incarnation, std::move(answer)); }
  uint64_t refused() const override { return role_ == nullptr ? 0 : role_->refused(); }

 private:
  const std::string uri_;
  Loop& loop_;
  Transport& transport_;
  Log& log_;
  std::unique_ptr<Rendezvous> role_;
};

void check_address(const std::string& uri, const Transport& transport) {
  if (uri.ends_with(":0")) {
    fail(Status::kInvalidArgument, "rendezvous \"{}\": port 0 would be another one each time; choose one that all know",
         uri);
  }
  try {
    transport.check_endpoint(uri);
  } catch (...) {
    throw current_error().add_context("rendezvous");
  }
}

}  // namespace

std::unique_ptr<Rendezvous> make_tcp_rendezvous(const std::string& uri, Loop& loop, Transport& transport, Log& log) {
  check_address(uri, transport);
  return std::make_unique<TcpRendezvous>(uri, loop, transport, log);
}

}  // namespace distag
