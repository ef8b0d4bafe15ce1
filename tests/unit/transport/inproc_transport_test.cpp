#include "transport/inproc/inproc_transport.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/timer_queue.h"

namespace distag {
namespace {

// A loop without a thread: the test runs what was posted.
class ManualLoop final : public Loop {
 public:
  [[nodiscard]] bool post(Task task) override {
    tasks_.add(0, std::move(task));
    return true;
  }
  [[nodiscard]] bool post(TaskPlace&, Task task) noexcept override { return post(std::move(task)); }
  TimerId start_timer(Nanos, Task) override { return 0; }
  void start_timer(TaskPlace&, Nanos, Task) noexcept override {}
  void cancel_timer(TimerId) override {}
  const Clock& clock() const override { return clock_; }
  bool is_current() const override { return true; }

  void run() {
    while (Task task = tasks_.take_due(0)) task();
  }

 private:
  SteadyClock clock_;
  TimerQueue tasks_;
};

Frame text_frame(const std::string& text) { return Frame::copy_of(text.data(), text.size()); }

class InprocTransportTest : public ::testing::Test {
 protected:
  ConnectionEvents recording() {
    return {[this] { seen_ += "connected "; }, [this](Frames) { seen_ += "message "; },
            [this] { seen_ += "writable "; }, [this](bool refused) { seen_ += refused ? "refused " : "dropped "; }};
  }
  AcceptorEvents counting() {
    return {[this](const ConnectionToken& from, Frames) {
      ++received_;
      from_ = from;
    }};
  }

  ManualLoop server_loop_;
  ManualLoop client_loop_;
  InprocTransport server_{server_loop_};
  InprocTransport client_{client_loop_};
  std::string seen_;
  int received_ = 0;
  ConnectionToken from_;
};

TEST_F(InprocTransportTest, NothingHappensBeforeTheLoopsRun) {
  auto acceptor = server_.listen("inproc://test-a", counting());
  auto connection = client_.dial("inproc://test-a", recording());
  EXPECT_EQ(seen_, "");
  client_loop_.run();
  EXPECT_EQ(seen_, "connected ");
  EXPECT_TRUE(connection->send({text_frame("x")}));
  EXPECT_EQ(received_, 0);
  server_loop_.run();
  EXPECT_EQ(received_, 1);
  EXPECT_TRUE(acceptor->reply(from_, {text_frame("y")}));
  EXPECT_EQ(seen_, "connected ");
  client_loop_.run();
  EXPECT_EQ(seen_, "connected message ");
}

TEST_F(InprocTransportTest, FramesAreHandedOverAndNotCopied) {
  Frames got;
  auto acceptor = server_.listen("inproc://test-b", {[&got](const ConnectionToken&, Frames frames) { got = frames; }});
  auto connection = client_.dial("inproc://test-b", recording());
  client_loop_.run();
  const Frame frame = text_frame("as it is");
  ASSERT_TRUE(connection->send({frame}));
  server_loop_.run();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].data(), frame.data());
}

TEST_F(InprocTransportTest, MailboxIsBoundedAndTellsWhenThereIsRoom) {
  auto acceptor = server_.listen("inproc://test-c", counting());
  auto connection = client_.dial("inproc://test-c", recording());
  client_loop_.run();
  const Frame mebibyte = Frame::of(std::vector<std::byte>(1u << 20));
  int sent = 0;
  while (sent < 1000 && connection->send({mebibyte})) ++sent;
  EXPECT_EQ(sent, 16);
  client_loop_.run();
  EXPECT_EQ(seen_, "connected ");
  server_loop_.run();
  EXPECT_EQ(received_, 16);
  client_loop_.run();
  EXPECT_EQ(seen_, "connected writable ");
  EXPECT_TRUE(connection->send({mebibyte}));
}

TEST_F(InprocTransportTest, DialThatMeetsAClosingListenerIsDroppedAfterItConnected) {
  auto acceptor = server_.listen("inproc://test-d", counting());
  auto connection = client_.dial("inproc://test-d", recording());
  acceptor.reset();
  client_loop_.run();
  EXPECT_EQ(seen_, "connected dropped ");
}

TEST_F(InprocTransportTest, TransportMayGoWhileOthersStillSend) {
  auto server = std::make_unique<InprocTransport>(server_loop_);
  auto acceptor = server->listen("inproc://test-e", counting());
  auto connection = client_.dial("inproc://test-e", recording());
  client_loop_.run();
  acceptor.reset();
  server.reset();
  EXPECT_FALSE(connection->send({text_frame("x")}));
  client_loop_.run();
  EXPECT_EQ(seen_, "connected dropped ");
}

TEST_F(InprocTransportTest, WhatIsOnItsWayGoesWithTheConnection) {
  auto token = std::make_shared<std::string>("held");
  auto acceptor = server_.listen("inproc://test-f", counting());
  auto connection = client_.dial("inproc://test-f", recording());
  client_loop_.run();
  ASSERT_TRUE(connection->send({Frame(token->data(), token->size(), token)}));
  EXPECT_EQ(token.use_count(), 2);
  acceptor.reset();
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(InprocTransportTest, PrivateAddressesAreDifferent) {
  EXPECT_NE(server_.private_address(), client_.private_address());
}

}  // namespace
}  // namespace distag
