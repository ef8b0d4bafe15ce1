#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/rendezvous.h"
#include "support/fake_etcd.h"
#include "support/sim_lanes.h"
#include "support/sim_network.h"
#include "support/sim_scheduler.h"

namespace distag::testing {

using Environment = std::map<std::string, std::string>;

// A worker that joins, with a loop and a transport of its own in a simulation.
class Joiner {
 public:
  Joiner(sim::SimScheduler& scheduler, sim::SimNetwork& network, FakeEtcd& etcd, Environment environment,
         const std::string& uri, JoinRequest request, const std::string& host = {}, JobBoard* board = nullptr)
      : scheduler_(scheduler),
        network_(network),
        request_(std::move(request)),
        loop_(scheduler, host.empty() ? request_.self.name : host),
        transport_(network, loop_, host.empty() ? request_.self.name : host),
        environment_(std::move(environment)),
        http_(etcd, loop_) {
    log_ = Log(LogLevel::kDebug, [this](LogLevel, std::string line) { logged.push_back(std::move(line)); });
    RendezvousTools tools{loop_, transport_, log_};
    tools.get_environment = [this](const char* name) -> const char* {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    };
    tools.http = [this]() -> HttpClient& { return http_; };
    if (board != nullptr) tools.board = [board]() -> JobBoard& { return *board; };
    loop_.run([&] { rendezvous_ = make_rendezvous(uri, tools); });
  }
  ~Joiner() { leave(); }

  void join() {
    loop_.run([this] {
      rendezvous_->join(request_, [this](Rendezvous::Outcome outcome) {
        EXPECT_FALSE(outcome_.has_value()) << "told twice";
        outcome_ = std::move(outcome);
        told_at_ = loop_.now();
      });
    });
  }
  void leave() {
    loop_.run([this] { rendezvous_.reset(); });
  }

  // As SIGKILL does it.
  void kill() {
    network_.kill(request_.self.name);
    http_.stop();
    leave();
  }

  void on_gone(Incarnation incarnation) {
    loop_.run([&] { rendezvous_->on_gone(incarnation); });
  }

  uint64_t refused() {
    uint64_t refused = 0;
    loop_.run([&] { refused = rendezvous_->refused(); });
    return refused;
  }

  // The answer of the rendezvous to: who is it?
  struct Found {
    bool is_answered = false;
    std::optional<Peer> peer;
  };
  std::shared_ptr<Found> look_up(Incarnation incarnation) {
    auto found = std::make_shared<Found>();
    loop_.run([&] {
      rendezvous_->look_up(incarnation, [found](const std::optional<Peer>& peer) {
        EXPECT_FALSE(found->is_answered) << "told twice";
        *found = {true, peer};
      });
    });
    return found;
  }

  bool is_done() const { return outcome_.has_value(); }
  const Rendezvous::Outcome& outcome() const { return *outcome_; }
  Nanos told_at() const { return told_at_; }
  const JoinRequest& request() const { return request_; }
  sim::SimLoop& loop() { return loop_; }
  std::vector<std::string> logged;

  // Runs the simulation until there is an outcome, and gives its error.
  const Error& error() {
    EXPECT_TRUE(scheduler_.run_until([this] { return is_done(); }, 3600 * kSecond));
    EXPECT_FALSE(outcome_->ok);
    return outcome_->error;
  }
  bool succeeds() {
    EXPECT_TRUE(scheduler_.run_until([this] { return is_done(); }, 3600 * kSecond));
    EXPECT_EQ(outcome_->error.message(), "");
    return outcome_->ok;
  }

 private:
  sim::SimScheduler& scheduler_;
  sim::SimNetwork& network_;
  JoinRequest request_;
  Log log_;
  sim::SimLoop loop_;
  sim::SimTransport transport_;
  Environment environment_;
  FakeHttp http_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::optional<Rendezvous::Outcome> outcome_;
  Nanos told_at_ = 0;
};

// A simulation with joiners "w0", "w1", ... that meet at one uri.
class Meeting {
 public:
  explicit Meeting(std::string uri, uint64_t seed = 1)
      : scheduler(seed), network(scheduler), etcd(scheduler), uri_(std::move(uri)) {}

  JoinRequest request(int32_t rank, int32_t world_size, Nanos timeout = 10 * kSecond) {
    JoinRequest request;
    request.job = "job";
    request.world_size = world_size;
    request.self.rank = rank;
    request.self.name = "w" + std::to_string(rank);
    request.self.endpoint = "sim://" + request.self.name;
    request.self.incarnation = 1000 + ++made_;
    request.deadline = deadline_after(scheduler.now(), timeout);
    return request;
  }

  Joiner& add(JoinRequest request) {
    joiners.push_back(std::make_unique<Joiner>(scheduler, network, etcd, environment, uri_, std::move(request)));
    joiners.back()->join();
    return *joiners.back();
  }
  // As the host of that name in the network.
  Joiner& add_at(const std::string& host, JoinRequest request) {
    joiners.push_back(std::make_unique<Joiner>(scheduler, network, etcd, environment, uri_, std::move(request), host));
    joiners.back()->join();
    return *joiners.back();
  }
  Joiner& add(int32_t rank, int32_t world_size, Nanos timeout = 10 * kSecond) {
    return add(request(rank, world_size, timeout));
  }

  sim::SimScheduler scheduler;
  sim::SimNetwork network;
  FakeEtcd etcd;
  Environment environment;
  std::vector<std::unique_ptr<Joiner>> joiners;

 private:
  const std::string uri_;
  uint64_t made_ = 0;
};

// "w0 w1 w2": the members in order, checked to be whole.
inline std::string names(const Rendezvous::Outcome& outcome) {
  std::string text;
  int32_t rank = 0;
  for (const Peer& peer : outcome.members) {
    EXPECT_EQ(peer.rank, rank++);
    EXPECT_EQ(peer.endpoint, "sim://" + peer.name);
    EXPECT_NE(peer.incarnation, 0u);
    EXPECT_GE(peer.generation, 1u);
    text += (text.empty() ? "" : " ") + peer.name;
  }
  return text;
}

}  // namespace distag::testing
