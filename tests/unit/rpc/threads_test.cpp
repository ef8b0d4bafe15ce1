#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/fd_loop.h"
#include "base/pool.h"
#include "rpc/rpc.h"
#include "session/session.h"
#include "transport/inproc/inproc_transport.h"
#include "worker/routes.h"

namespace distag {
namespace {

// A worker up to this layer, on a loop thread and a pool of its own.
class ThreadedNode final : public SessionEvents {
 public:
  explicit ThreadedNode(int32_t rank)
      : loop("loop", ThreadHooks{}),
        pool("pool", 1, ThreadHooks{}),
        members(Group::Environment{loop, random}),
        rpc(members, Rpc::Environment{loop, pool, pool, log}, RpcConfig{}) {
    loop.start();
    on_loop([this, rank] {
      transport = std::make_unique<InprocTransport>(loop);
      SessionConfig config;
      config.job = "job";
      config.self.rank = rank;
      config.self.name = "w" + std::to_string(rank);
      config.self.incarnation = random.next() | 1;
      config.self.generation = 1;
      session = std::make_unique<Session>(loop, *transport, random, log, config, static_cast<SessionEvents&>(*this));
      session->listen(transport->private_address());
      self = session->self();
    });
  }
  ~ThreadedNode() override {
    on_loop([this] {
      session.reset();
      transport.reset();
    });
    pool.stop();
    loop.stop();
  }

  void begin(const std::vector<Peer>& given) {
    on_loop([&] {
      for (const Peer& member : given) {
        if (member.incarnation != self.incarnation) session->add_peer(member);
      }
      this->members.begin(*session, given);
    });
  }
  void on_loop(std::function<void()> task) {
    auto done = Future<Unit>::make();
    loop.post_or_drop([&task, done] {
      task();
      done->complete(Unit{});
    });
    ASSERT_TRUE(wait(*done, 120 * kSecond));
  }
  std::shared_ptr<Future<ShutdownReport>> shutdown(Nanos timeout) {
    std::shared_ptr<Future<ShutdownReport>> report;
    on_loop([&] { report = members.shutdown(deadline_after(loop.now(), timeout)); });
    return report;
  }

  Heard on_message(const Peer& from, wire::Message& message) override {
    return route_of(message.body).taker == Taker::kGroup ? members.handle(from, message) : rpc.handle(from, message);
  }
  void on_unstored(const Peer& from, wire::Message& outline, const Error& why) override {
    rpc.refuse(from, outline, why);
  }
  void on_lost(const Peer& peer, const Error& error) override { members.on_lost(peer, error); }
  void on_left(const Peer& peer) override { members.on_left(peer); }
  bool on_stranger(const Peer&) override { return false; }

  FdLoop loop;
  Pool pool;
  Log log;
  SystemRandom random;
  Group members;
  Rpc rpc;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Session> session;
  Peer self;
};

class ThreadedPairTest : public ::testing::Test {
 protected:
  ThreadedPairTest() {
    for (int32_t rank = 0; rank < 2; ++rank) nodes.push_back(std::make_unique<ThreadedNode>(rank));
  }
  void begin() {
    for (auto& node : nodes) node->begin({nodes[0]->self, nodes[1]->self});
  }
  std::shared_ptr<Future<Value>> start(size_t from, const std::string& to, const std::string& function,
                                       Values args = {}) {
    CallRequest request;
    request.to = to;
    request.function = function;
    request.args = std::move(args);
    return nodes[from]->rpc.call(std::move(request));
  }
  std::vector<std::unique_ptr<ThreadedNode>> nodes;
};

TEST_F(ThreadedPairTest, ManyThreadsCallBothWays) {
  std::atomic<int> runs{0};
  for (auto& node : nodes) {
    node->rpc.register_function("next", [&runs](Invocation& invocation) {
      ++runs;
      invocation.set_result(Value(invocation.args()[0].as_int64() + 1));
    });
  }
  begin();
  constexpr int kThreads = 4;
  constexpr int64_t kCalls = 200;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int64_t i = 0; i < kCalls; ++i) {
        auto future = start(t % 2, t % 4 < 2 ? "w1" : "w0", "next", {Value(i)});
        ASSERT_TRUE(wait(*future, 120 * kSecond));
        EXPECT_EQ(future->value().as_int64(), i + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runs.load(), kThreads * kCalls);
}

TEST_F(ThreadedPairTest, CallsNestDeeplyWithOnePoolThread) {
  for (size_t rank = 0; rank < 2; ++rank) {
    nodes[rank]->rpc.register_function("down", [this, rank](Invocation& invocation) {
      const int64_t left = invocation.args()[0].as_int64();
      if (left == 0) return invocation.set_result(Value(int64_t{0}));
      auto future = start(rank, rank == 0 ? "w1" : "w0", "down", {Value(left - 1)});
      wait(*future, kForever);
      invocation.set_result(Value(future->value().as_int64() + 1));
    });
  }
  begin();
  auto future = start(0, "w1", "down", {Value(int64_t{200})});
  ASSERT_TRUE(wait(*future, 100 * kSecond));
  EXPECT_EQ(future->value().as_int64(), 200);
}

// Futures are cancelled, replies finished and dropped on threads of the host while calls end by themselves.
TEST_F(ThreadedPairTest, CancelsRaceWithAnswers) {
  std::mutex mutex;
  std::vector<std::shared_ptr<PendingReply>> replies;
  std::atomic<bool> stop{false};
  nodes[1]->rpc.register_function("later", [&](Invocation& invocation) {
    auto reply = invocation.defer();
    std::lock_guard<std::mutex> lock(mutex);
    replies.push_back(std::move(reply));
  });
  begin();
  std::thread answering([&] {
    bool finish = false;
    while (!stop.load()) {
      std::vector<std::shared_ptr<PendingReply>> taken;
      {
        std::lock_guard<std::mutex> lock(mutex);
        taken.swap(replies);
      }
      for (auto& reply : taken) {
        if ((finish = !finish)) reply->finish(Value(int64_t{1}));
      }
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 500; ++i) {
    auto future = start(0, "w1", "later");
    if (i % 3 == 0) std::this_thread::yield();
    if (i % 2 == 0) future->cancel();
    ASSERT_TRUE(wait(*future, 120 * kSecond));
    if (future->error() == nullptr) continue;
    const Status status = future->error()->status();
    EXPECT_TRUE(status == Status::kCancelled || status == Status::kRemote) << future->error()->message();
  }
  stop.store(true);
  answering.join();
  replies.clear();
}

TEST_F(ThreadedPairTest, ShutDownWhileOthersCall) {
  nodes[1]->rpc.register_function("quick", [](Invocation&) {});
  begin();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, &stop] {
      while (!stop.load()) {
        try {
          auto future = start(0, "w1", "quick");
          ASSERT_TRUE(wait(*future, 120 * kSecond));
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), Status::kInvalidState);
          return;
        }
      }
    });
  }
  auto second = nodes[1]->shutdown(0);
  ASSERT_TRUE(wait(*second, 120 * kSecond));
  auto first = nodes[0]->shutdown(60 * kSecond);
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(wait(*first, 120 * kSecond));
}

TEST_F(ThreadedPairTest, RepliesOutliveTheirWorker) {
  std::shared_ptr<PendingReply> reply;
  std::shared_ptr<Invocation> invocation;
  auto held = Future<Unit>::make();
  nodes[1]->rpc.register_function("hold", [&](Invocation& call) {
    reply = call.defer();
    invocation = call.shared_from_this();
    held->complete(Unit{});
  });
  begin();
  auto future = start(0, "w1", "hold");
  ASSERT_TRUE(wait(*held, 120 * kSecond));
  auto first = nodes[0]->shutdown(0);
  auto second = nodes[1]->shutdown(0);
  ASSERT_TRUE(wait(*first, 120 * kSecond));
  ASSERT_TRUE(wait(*second, 120 * kSecond));
  nodes.clear();
  EXPECT_EQ(future->error()->status(), Status::kCancelled);
  EXPECT_TRUE(reply->is_cancelled());
  EXPECT_FALSE(reply->finish(Value()));
  future->cancel();
}

}  // namespace
}  // namespace distag
