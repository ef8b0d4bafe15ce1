#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/session.h"
#include "support/sim_lanes.h"
#include "support/sim_network.h"
#include "support/sim_scheduler.h"

namespace distag {

using sim::SimExecutor;
using sim::SimFaults;
using sim::SimLoop;
using sim::SimNetwork;
using sim::SimScheduler;
using sim::SimTransport;

// A worker's session on a simulated host, and what it was told.
class Node final : public SessionEvents {
 public:
  Node(SimScheduler& scheduler, SimNetwork& network, const std::string& name, int32_t rank, SessionConfig config = {})
      : loop(scheduler, name), decoder(scheduler, name + " decoder"), random_(scheduler.random().next()) {
    config.self.name = name;
    config.self.rank = rank;
    if (config.self.incarnation == 0) config.self.incarnation = scheduler.random().next() | 1;
    if (config.job.empty()) config.job = "job";
    config.decoder = &decoder;
    config.on_lack = [this](const Peer& peer, const Error& lack, bool is_long) {
      lacks.push_back({peer.incarnation, lack, is_long});
    };
    transport = std::make_unique<SimTransport>(network, loop, name);
    log_ = Log(LogLevel::kWarning, [this](LogLevel, std::string text) { logged.push_back(std::move(text)); });
    loop.run([this, &config] {
      session = std::make_unique<Session>(loop, *transport, random_, log_, config, *this);
      session->listen(transport->private_address());
    });
  }
  ~Node() override { stop(); }

  void stop() {
    loop.run([this] {
      session.reset();
      transport.reset();
    });
  }

  Peer self() const { return session->self(); }
  Incarnation id() const { return self().incarnation; }
  void know(const Node& other) {
    loop.run([this, &other] { session->add_peer(other.self()); });
  }
  const Peer* find(Incarnation incarnation) {
    const Peer* found = nullptr;
    loop.run([&] { found = session->find(incarnation); });
    return found;
  }
  void settle_stranger(Incarnation incarnation, const std::optional<Peer>& vouched) {
    loop.run([&] { session->settle_stranger(incarnation, vouched ? &*vouched : nullptr); });
  }
  std::string lack_text(const Node& of) {
    std::string text;
    loop.run([&] { text = session->lack_text(of.id()); });
    return text;
  }
  bool is_drained() {
    bool drained = false;
    loop.run([&] { drained = session->is_drained(); });
    return drained;
  }
  // Sends a message that carries `round`.
  Session::Ticket say(const Node& to, uint64_t round, SendOptions options = {}) {
    return send(to.id(), wire::ShutdownVerdict{round}, std::move(options));
  }
  Session::Ticket send(Incarnation to, wire::Body body, SendOptions options = {}) {
    Session::Ticket ticket = 0;
    loop.run([&] { ticket = session->send(to, std::move(body), std::move(options)); });
    return ticket;
  }
  // A call with a tensor of this many bytes.
  wire::Call big_call(size_t bytes, const std::string& function = "big") {
    Tensor tensor = Tensor::empty(Dtype::kInt64, {static_cast<int64_t>(bytes / 8)});
    for (int64_t i = 0; i < tensor.count(); ++i) tensor.mutable_data_as<int64_t>()[i] = i * 31;
    return {{id(), ++last_call_}, function, {Value(tensor)}, kForever, {}, ""};
  }

  Heard on_message(const Peer& from, wire::Message& message) override {
    senders.push_back(from.incarnation);
    if (const auto* verdict = std::get_if<wire::ShutdownVerdict>(&message.body)) heard.push_back(verdict->round);
    if (on_each) on_each(from, message);
    messages.push_back(std::move(message));
    return Heard::kHandled;
  }
  void on_unstored(const Peer&, wire::Message& outline, const Error& why) override {
    unstored.emplace_back(std::move(outline), why);
  }
  void on_lost(const Peer& peer, const Error& error) override { lost.emplace_back(peer.incarnation, error); }
  void on_left(const Peer& peer) override { left.push_back(peer.incarnation); }
  bool on_stranger(const Peer& peer) override {
    strangers.push_back(peer);
    if (takes_strangers && vouches) {
      loop.post_or_drop([this, peer] {
        if (session) session->settle_stranger(peer.incarnation, &peer);
      });
    }
    return takes_strangers;
  }

  SimLoop loop;
  SimExecutor decoder;
  std::unique_ptr<SimTransport> transport;
  std::unique_ptr<Session> session;
  std::vector<wire::Message> messages;
  std::vector<std::pair<wire::Message, Error>> unstored;
  std::vector<uint64_t> heard;
  std::vector<Incarnation> senders;
  std::vector<std::pair<Incarnation, Error>> lost;
  std::vector<Incarnation> left;
  struct Lack {
    Incarnation peer;
    Error lack;
    bool is_long;
  };
  std::vector<Lack> lacks;
  std::vector<std::string> logged;
  std::function<void(const Peer&, wire::Message&)> on_each;
  bool takes_strangers = false;
  bool vouches = true;  // at once, for strangers that it takes
  std::vector<Peer> strangers;

 private:
  SeededRandom random_;
  Log log_;
  uint64_t last_call_ = 0;
};

}  // namespace distag
