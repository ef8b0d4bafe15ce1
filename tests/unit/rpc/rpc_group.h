#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"
#include "rpc/rpc.h"
#include "session/session.h"
#include "support/sim_lanes.h"
#include "support/sim_network.h"
#include "support/sim_scheduler.h"
#include "worker/routes.h"

namespace distag::testing {

struct NodeConfig {
  Nanos call_timeout = RpcConfig{}.call_timeout;
  Nanos lease = 5 * kSecond;
  uint64_t max_in_flight = RpcConfig{}.max_in_flight;
  CallBounds bounds = {};
};

// A worker up to this layer: a session, a Group and an Rpc over a simulated network.
class RpcNode final : private SessionEvents {
 public:
  RpcNode(sim::SimScheduler& scheduler, sim::SimNetwork& network, int32_t rank, NodeConfig config,
          std::shared_ptr<FrameMemory> memory = nullptr)
      : loop(scheduler, name_of(rank) + " loop"),
        functions(scheduler, name_of(rank) + " functions"),
        compute(scheduler, name_of(rank) + " compute"),
        random_(scheduler.random().next()),
        transport_(network, loop, name_of(rank)),
        members(Group::Environment{loop, random_, config.lease}),
        rpc(members, Rpc::Environment{loop, functions, compute, log_},
            RpcConfig{config.call_timeout, config.max_in_flight, config.bounds}) {
    rpc.set_op_runner([](const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes, bool) {
      ops::check_arguments(op, inputs, attributes);
      return op.forward(inputs, attributes, nullptr);
    });
    SessionConfig session_config;
    session_config.job = "job";
    session_config.lease = config.lease;
    session_config.limits.max_message_bytes = 4u << 20;
    session_config.memory = std::move(memory);
    session_config.self.rank = rank;
    session_config.self.name = name_of(rank);
    session_config.self.incarnation = random_.next();
    session_config.self.generation = 1;
    loop.run([&] {
      session = std::make_unique<Session>(loop, transport_, random_, log_, session_config,
                                          static_cast<SessionEvents&>(*this));
      session->listen(transport_.private_address());
    });
  }
  ~RpcNode() override {
    loop.run([this] { session.reset(); });
    functions.stop();
    compute.stop();
    loop.stop();
  }

  void begin(const std::vector<Peer>& given) {
    loop.run([&] {
      for (const Peer& member : given) {
        if (member.incarnation != session->self().incarnation) session->add_peer(member);
      }
      this->members.begin(*session, given);
    });
  }

  std::shared_ptr<Future<ShutdownReport>> shutdown(Nanos timeout) {
    std::shared_ptr<Future<ShutdownReport>> report;
    loop.run([&] { report = members.shutdown(deadline_after(loop.now(), timeout)); });
    return report;
  }

  Heard handle(const Peer& from, wire::Message& message) {
    return route_of(message.body).taker == Taker::kGroup ? members.handle(from, message) : rpc.handle(from, message);
  }

  static std::string name_of(int32_t rank) { return "w" + std::to_string(rank); }

  sim::SimLoop loop;
  sim::SimExecutor functions;
  sim::SimExecutor compute;

 private:
  Heard on_message(const Peer& from, wire::Message& message) override { return handle(from, message); }
  void on_unstored(const Peer& from, wire::Message& outline, const Error& why) override {
    rpc.refuse(from, outline, why);
  }
  void on_lost(const Peer& peer, const Error& error) override { members.on_lost(peer, error); }
  void on_left(const Peer& peer) override { members.on_left(peer); }
  bool on_stranger(const Peer&) override { return false; }

  Log log_;
  SeededRandom random_;
  sim::SimTransport transport_;

 public:
  Group members;
  Rpc rpc;
  std::unique_ptr<Session> session;
};

// Workers "w0", "w1", ... that know each other.
class RpcGroup {
 public:
  explicit RpcGroup(int32_t size, uint64_t seed = 1, NodeConfig config = {},
                    const std::shared_ptr<FrameMemory>& memory = nullptr)
      : scheduler(seed), network(scheduler) {
    for (int32_t rank = 0; rank < size; ++rank) {
      nodes.push_back(std::make_unique<RpcNode>(scheduler, network, rank, config, memory));
    }
  }

  // Once the hooks and functions are there.
  void begin() {
    std::vector<Peer> members;
    for (auto& node : nodes) members.push_back(node->session->self());
    for (auto& node : nodes) node->begin(members);
  }

  Rpc& rpc(size_t rank) { return nodes[rank]->rpc; }
  RpcNode& node(size_t rank) { return *nodes[rank]; }

  std::shared_ptr<Future<Value>> start(size_t from, const std::string& to, const std::string& function,
                                       Values args = {}) {
    CallRequest request;
    request.to = to;
    request.function = function;
    request.args = std::move(args);
    return rpc(from).call(std::move(request));
  }
  Value call(size_t from, const std::string& to, const std::string& function, Values args = {}) {
    auto future = start(from, to, function, std::move(args));
    await(*future);
    return future->value();
  }
  void await(Completion& completion) {
    ASSERT_TRUE(scheduler.run_until([&completion] { return completion.is_done(); }, 600 * kSecond));
  }
  Error error_of(Completion& completion) {
    await(completion);
    EXPECT_NE(completion.error(), nullptr);
    return completion.error() == nullptr ? Error() : *completion.error();
  }
  bool run_until(const std::function<bool()>& condition) { return scheduler.run_until(condition, 600 * kSecond); }

  sim::SimScheduler scheduler;
  sim::SimNetwork network;
  std::vector<std::unique_ptr<RpcNode>> nodes;
};

inline Value number(int64_t value) { return Value(value); }
inline Tensor tensor(std::vector<float> values) {
  Tensor made = Tensor::empty(Dtype::kFloat32, Dims{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), made.mutable_data_as<float>());
  return made;
}
inline std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  tensor.copy_to(values.data());
  return values;
}

}  // namespace distag::testing
