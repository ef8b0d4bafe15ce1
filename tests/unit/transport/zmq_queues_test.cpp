// The queues of libzmq for a side that does not read: how much waits in them, and what becomes of it at an end.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <vector>

#include "base/clock.h"
#include "contract/transport_contract.h"
#include "support/zmq_sides.h"
#include "transport/zmq/zmq_socket.h"

namespace distag::testing {
namespace {

constexpr size_t kQueue = 64;  // messages: the high-water mark of each direction
static_assert(kQueue == ZmqSocket::kHighWaterMark);
// The system keeps less than two messages of this size: a message in neither queue, the sender's or the receiver's, is
// half written, on its way, or half read.
constexpr size_t kBytes = size_t{128} << 10;
constexpr size_t kOnItsWay = 4;
constexpr size_t kMany = 1000;  // where nothing bounds the queues
constexpr Nanos kHour = 3600 * kSecond;

// Makes frames that libzmq does not copy, and counts those that are not given back.
class Lender {
 public:
  Frame frame() {
    ++*held_;
    return Frame(bytes_->data(), bytes_->size(),
                 std::shared_ptr<const void>(bytes_->data(), [held = held_, bytes = bytes_](const void*) { --*held; }));
  }
  size_t held() const { return *held_; }
  bool has_all_back() const {
    const SteadyClock clock;
    for (const Nanos until = clock.now() + kPatience; held() > 0 && clock.now() < until;) poll(nullptr, 0, 1);
    return held() == 0;
  }

 private:
  const std::shared_ptr<std::vector<std::byte>> bytes_ = std::make_shared<std::vector<std::byte>>(kBytes);
  const std::shared_ptr<std::atomic<size_t>> held_ = std::make_shared<std::atomic<size_t>>(0);
};

// Keeps the loop of a side from reading.
class Held {
 public:
  explicit Held(Side& side) {
    side.loop().post_or_drop([go = go_] { go->acquire(); });
  }
  ~Held() { go_->release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const std::shared_ptr<std::binary_semaphore> go_ = std::make_shared<std::binary_semaphore>(0);
};

// A connection; each side may be the one that sends.
class ZmqQueuesTest : public ::testing::TestWithParam<bool> {
 protected:
  // Over ipc, unless there is an address.
  void connect(Nanos last_words = ZmqContext::kLastWords, std::string address = {}) {
    server_.emplace(zmq_kind(nullptr, last_words));
    client_.emplace(zmq_kind(nullptr, last_words));
    if (address.empty()) server_->run([&] { address = server_->transport().private_address(); });
    listening_.emplace(*server_, address);
    dialled_.emplace(*client_, listening_->endpoint());
    ASSERT_EQ(dialled_->record().next("connected").what, "connected");
    ASSERT_TRUE(dialled_->send({text_frame("hello")}));
    token_ = listening_->record().next("message").from;
  }
  void TearDown() override { disconnect(); }
  void disconnect() {
    dialled_.reset();
    listening_.reset();
  }

  bool dialler_sends() const { return GetParam(); }
  Side& sender() { return dialler_sends() ? *client_ : *server_; }
  Side& receiver() { return dialler_sends() ? *server_ : *client_; }
  Record& received() { return dialler_sends() ? listening_->record() : dialled_->record(); }
  bool send_on_loop() {
    return dialler_sends() ? dialled_->connection().send({lender_.frame()})
                           : listening_->acceptor().reply(token_, {lender_.frame()});
  }
  // Sends until the queue of the receiver, which does not read, and at least half of the sender's own are full, and no
  // more is taken for a while. Returns the number of messages that were taken.
  size_t fill() {
    size_t taken = 0;
    const Nanos until = sender().loop().now() + kPatience;
    for (int quiet = 0; quiet < 10; ++quiet) {
      sender().run([&] {
        for (; taken < kMany && send_on_loop(); ++taken) quiet = 0;
      });
      if (taken < kQueue * 3 / 2 && sender().loop().now() < until) quiet = 0;
      poll(nullptr, 0, 10);
    }
    sender().run([] {});  // the last one, which was not taken, is back
    return taken;
  }
  // Once one has come, and no more come for a while.
  size_t count_received() {
    const size_t before = dialler_sends() ? 1 : 0;  // the first one
    const Nanos until = receiver().loop().now() + kPatience;
    size_t count = 0;
    for (int quiet = 0; quiet < 10; ++quiet) {
      receiver().run([] {});
      const std::vector<std::string> events = received().all();
      const auto all = static_cast<size_t>(std::count(events.begin(), events.end(), "message"));
      if (all > count || (all == before && receiver().loop().now() < until)) quiet = 0;
      count = all;
      poll(nullptr, 0, 10);
    }
    return count - before;
  }
  void end_sender() {
    if (dialler_sends()) {
      dialled_->close();
    } else {
      listening_->close();
    }
  }
  void let_last_words_go() {
    sender().run([this] { sender().transport().let_last_words_go(); });
  }

  Lender lender_;
  ConnectionToken token_;
  std::optional<Side> server_, client_;
  std::optional<Listening> listening_;
  std::optional<Dialled> dialled_;
};

TEST_P(ZmqQueuesTest, WhoIsNotReadWaitsAtTheMarkAndGoesOnLater) {
  connect();
  std::optional<Held> held(receiver());
  size_t sent = fill();
  EXPECT_GE(sent, kQueue);
  EXPECT_LE(sent, 2 * kQueue + kOnItsWay);
  EXPECT_LE(lender_.held(), kQueue + 1) << "in the memory of the sender: a queue, and what is half written";
  held.reset();
  for (size_t more = 0; more < 2 * kQueue; ++more) {
    bool is_taken = false;
    const Nanos until = sender().loop().now() + kPatience;
    while (!is_taken && sender().loop().now() < until) sender().run([&] { is_taken = send_on_loop(); });
    ASSERT_TRUE(is_taken) << more;
    ++sent;
  }
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(received().next("message").what, "message") << i << " of " << sent;
  EXPECT_TRUE(lender_.has_all_back());
}

// Else it would come late, beside what is said again by another connection.
TEST_P(ZmqQueuesTest, WhatWaitsIsDroppedAtAnEndThatIsNotOrderly) {
  connect(kHour);
  std::optional<Held> held(receiver());
  const size_t sent = fill();
  ASSERT_GE(sent, kQueue);
  end_sender();
  EXPECT_TRUE(lender_.has_all_back()) << "although no more was read";
  held.reset();
  const size_t count = count_received();
  EXPECT_GE(count, 1u);
  EXPECT_LE(count, sent - kQueue / 2) << "room is told of for half a queue at a time";
}

TEST_P(ZmqQueuesTest, WhatWaitsAtAnOrderlyEndStillGoes) {
  for (const char* address : {"", "tcp://127.0.0.1:0"}) {
    connect(kHour, address);
    std::optional<Held> held(receiver());
    const size_t sent = fill();
    ASSERT_GE(sent, kQueue);
    let_last_words_go();
    end_sender();
    held.reset();
    for (size_t i = 0; i < sent; ++i) ASSERT_EQ(received().next("message").what, "message") << i << " of " << sent;
    disconnect();
  }
}

TEST_P(ZmqQueuesTest, AnOrderlyEndDoesNotWaitForASideThatDoesNotRead) {
  connect();
  const Held held(receiver());
  ASSERT_GE(fill(), kQueue);
  let_last_words_go();
  end_sender();
  EXPECT_TRUE(lender_.has_all_back());
}

const auto kSenderName = [](const ::testing::TestParamInfo<bool>& sender) {
  return std::string(sender.param ? "Dialler" : "Acceptor");
};
INSTANTIATE_TEST_SUITE_P(Senders, ZmqQueuesTest, ::testing::Bool(), kSenderName);

}  // namespace
}  // namespace distag::testing
