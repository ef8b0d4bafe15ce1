// A side of a lane wakes the other one only while that one sleeps, and once.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/shm/lane.h"
#include "transport/shm/shm_transport.h"

namespace distag::testing {
namespace {

constexpr size_t kLong = 3 * kLaneSizes.there;

// An end of a lane, with counts of its own.
struct End {
  std::shared_ptr<LaneContext> context;
  std::shared_ptr<Lane> lane;
  std::vector<Frames> came;

  uint64_t wakes() const { return context->report().wakes_sent; }
};

// Both ends of a lane on one loop, which looks at neither within a task: a test says who sleeps when.
class LaneWakesTest : public ::testing::Test {
 protected:
  LaneWakesTest() : loop_("test", {}) {
    loop_.start();
    run([this] {
      int sockets[2] = {-1, -1};
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
      LaneMemory memory = LaneMemory::make(kLaneSizes);
      LaneMemory same = LaneMemory::adopt(dup(memory.fd()), kLaneSizes);
      open(dialler_, std::move(memory), sockets[0], true);
      open(acceptor_, std::move(same), sockets[1], false);
    });
  }
  ~LaneWakesTest() override {
    run([this] {
      for (End* end : {&dialler_, &acceptor_}) {
        end->lane->close();
        *end = End();
      }
    });
  }

  void open(End& end, LaneMemory memory, int socket, bool is_dialler) {
    end.context = std::make_shared<LaneContext>(loop_);
    LaneEvents events;
    events.on_message = [&end](Frames frames) { end.came.push_back(std::move(frames)); };
    end.lane =
        std::make_shared<Lane>(end.context, std::move(memory), LaneSocket(socket), is_dialler, std::move(events));
    end.lane->open();
  }
  // Runs a task on the loop, and waits for it.
  void run(std::function<void()> task) {
    const auto done = Future<Unit>::make();
    loop_.post_or_drop([&task, done] {
      task();
      done->complete(Unit{});
    });
    if (!wait(*done, kPatience)) std::abort();
  }

  FdLoop loop_;
  End dialler_;
  End acceptor_;
};

TEST_F(LaneWakesTest, ASideThatIsAwakeGetsNone) {
  run([this] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(dialler_.lane->send({text_frame("there")}));
      acceptor_.lane->turn();
      EXPECT_TRUE(acceptor_.lane->send({text_frame("back")}));
      dialler_.lane->turn();
    }
    EXPECT_EQ(acceptor_.came.size(), 100u);
    EXPECT_EQ(dialler_.came.size(), 100u);
    EXPECT_EQ(dialler_.wakes(), 0u);
    EXPECT_EQ(acceptor_.wakes(), 0u);
  });
}

TEST_F(LaneWakesTest, OneThatSleepsGetsOneHoweverMuchIsSent) {
  run([this] {
    for (uint64_t i = 1; i <= 3; ++i) {
      EXPECT_FALSE(acceptor_.lane->begin_sleep());
      for (int k = 0; k < 5; ++k) EXPECT_TRUE(dialler_.lane->send({text_frame("news")}));
      EXPECT_EQ(dialler_.wakes(), i);
      acceptor_.lane->end_sleep();
      acceptor_.lane->turn();
      EXPECT_TRUE(dialler_.lane->send({text_frame("more")}));
      EXPECT_EQ(dialler_.wakes(), i) << "it is awake again";
      acceptor_.lane->turn();
    }
    EXPECT_EQ(acceptor_.wakes(), 0u) << "nobody slept at the other end";
  });
  const auto has_come = [this] {
    uint64_t received = 0;
    run([this, &received] { received = acceptor_.context->report().wakes_received; });
    return received == 3;
  };
  const auto never = Future<Unit>::make();
  for (int i = 0; i < 120'000 && !has_come(); ++i) wait(*never, kMillisecond);
  EXPECT_TRUE(has_come()) << "each was heard";
}

TEST_F(LaneWakesTest, OneThatHasSleptGetsNone) {
  run([this] {
    EXPECT_FALSE(acceptor_.lane->begin_sleep());
    acceptor_.lane->end_sleep();  // something else woke it
    EXPECT_TRUE(dialler_.lane->send({text_frame("news")}));
    EXPECT_EQ(dialler_.wakes(), 0u);
  });
}

TEST_F(LaneWakesTest, OneThatFindsBytesDoesNotSleep) {
  run([this] {
    EXPECT_TRUE(dialler_.lane->send({text_frame("news")}));
    EXPECT_TRUE(acceptor_.lane->begin_sleep());
    acceptor_.lane->end_sleep();
    EXPECT_EQ(dialler_.wakes(), 0u) << "it was awake when the bytes came";
  });
}

TEST_F(LaneWakesTest, RoomWakesOneThatWaitsForItAndNobodyElse) {
  run([this] {
    EXPECT_TRUE(dialler_.lane->send({text_frame("short")}));
    EXPECT_FALSE(dialler_.lane->begin_sleep());
    acceptor_.lane->turn();
    EXPECT_EQ(acceptor_.came.size(), 1u);
    EXPECT_EQ(acceptor_.wakes(), 0u) << "it sleeps for bytes alone";
    dialler_.lane->end_sleep();

    EXPECT_TRUE(dialler_.lane->send({make_frame(kLong, 1)}));
    EXPECT_FALSE(dialler_.lane->begin_sleep());
    acceptor_.lane->turn();
    EXPECT_EQ(acceptor_.wakes(), 1u);
    acceptor_.lane->turn();
    EXPECT_EQ(acceptor_.wakes(), 1u);
    dialler_.lane->end_sleep();
  });
}

// The same of whole transports, each with a loop that sleeps when it likes.
class ShmWakesTest : public ::testing::Test {
 protected:
  ShmWakesTest() : server_(lanes()), client_(lanes()) {
    server_.run([this] { address_ = server_.transport().private_address(); });
    listening_.emplace(server_, address_);
    dialled_.emplace(client_, address_);
    dialled_->record().next("connected");
    pass();
  }

  static TransportKind lanes() {
    TransportKind kind;
    kind.make = [](FdLoop& loop) { return std::make_unique<ShmTransport>(loop, make_zmtp(loop), ""); };
    return kind;
  }
  static LaneReport report(Side& side) {
    LaneReport report;
    side.run([&side, &report] { report = side.transport().lane_report(); });
    return report;
  }
  void pass() {
    EXPECT_TRUE(dialled_->send({text_frame("x")}));
    EXPECT_EQ(text_of(listening_->record().next("message").frames.at(0)), "x");
  }

  Side server_;
  Side client_;
  std::string address_;
  std::optional<Listening> listening_;
  std::optional<Dialled> dialled_;
};

TEST_F(ShmWakesTest, ABusyLoopGetsNone) {
  std::promise<void> is_busy, may_end;
  server_.loop().post_or_drop([&is_busy, &may_end] {
    is_busy.set_value();
    may_end.get_future().wait();
  });
  is_busy.get_future().wait();
  const uint64_t before = report(client_).wakes_sent;
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(dialled_->send({text_frame("x")}));
  EXPECT_EQ(report(client_).wakes_sent, before);
  may_end.set_value();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(listening_->record().next("message").what, "message");
}

TEST_F(ShmWakesTest, ALoopThatSleepsGetsOneAMessageAndHearsOfAll) {
  const auto never = Future<Unit>::make();
  const uint64_t before = report(client_).wakes_sent;
  uint64_t messages = 0;
  for (; messages < 2000 && report(client_).wakes_sent < before + 5; ++messages) {
    wait(*never, 10 * kMillisecond);  // by then it sleeps, as long as somebody lets it run
    pass();
  }
  const uint64_t sent = report(client_).wakes_sent;
  EXPECT_GE(sent, before + 5);
  EXPECT_LE(sent, before + messages);
  for (int i = 0; i < 120'000 && report(server_).wakes_received != sent; ++i) wait(*never, kMillisecond);
  EXPECT_EQ(report(server_).wakes_received, sent);
  EXPECT_GT(report(server_).sleeps, 0u);
  EXPECT_EQ(report(server_).wakes_sent, 0u) << "what it has sent back is nothing";
}

}  // namespace
}  // namespace distag::testing
