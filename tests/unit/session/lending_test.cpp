#include "session/lending.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/process_memory.h"
#include "session_harness.h"

namespace distag {
namespace {

constexpr Incarnation kOwner = 11;
constexpr Incarnation kReader = 12;

// Both ends in this process.
class LendingTest : public testing::Test {
 protected:
  LendingTest() {
    hello_.incarnation = kOwner;
    hello_.wanted = kReader;
    seal_.offer(hello_);
  }

  wire::Chunk lend(const std::string& bytes) {
    wire::Chunk chunk;
    chunk.address = reinterpret_cast<uintptr_t>(bytes.data());
    chunk.size = bytes.size();
    return chunk;
  }
  std::string read(const LentMemory& memory, const std::string& bytes) {
    std::string out(bytes.size(), ' ');
    return memory.read(lend(bytes), reinterpret_cast<std::byte*>(out.data())) ? out : "nothing";
  }

  SeededRandom random_{1};
  LendingSeal seal_;
  wire::Hello hello_;
  LentMemory memory_;
  const std::string bytes_ = "bytes that are lent";
};

TEST_F(LendingTest, WhatIsLentCanBeRead) {
  const uint64_t challenge = memory_.attach(hello_, kReader, random_);
  ASSERT_NE(challenge, 0u);
  EXPECT_FALSE(seal_.can_lend());
  seal_.accept(challenge);
  EXPECT_TRUE(seal_.can_lend());
  EXPECT_EQ(read(memory_, bytes_), bytes_);
}

TEST_F(LendingTest, TheChallengeStaysOverConnections) {
  const uint64_t challenge = memory_.attach(hello_, kReader, random_);
  EXPECT_EQ(memory_.attach(hello_, kReader, random_), challenge);
}

TEST_F(LendingTest, WithoutTheChallengeNothingIsRead) {
  const uint64_t challenge = memory_.attach(hello_, kReader, random_);
  EXPECT_EQ(read(memory_, bytes_), "nothing");
  seal_.accept(challenge + 2);
  EXPECT_EQ(read(memory_, bytes_), "nothing");
}

TEST_F(LendingTest, AfterItIsRevokedNothingIsRead) {
  seal_.accept(memory_.attach(hello_, kReader, random_));
  seal_.revoke();
  EXPECT_FALSE(seal_.can_lend());
  EXPECT_EQ(read(memory_, bytes_), "nothing");
}

// Somebody hands on what a worker said to it, or the number means another process here.
TEST_F(LendingTest, TheSealOfAnotherWorkerOrForAnotherReaderIsNone) {
  EXPECT_EQ(memory_.attach(hello_, kReader + 1, random_), 0u);
  hello_.incarnation = kOwner + 1;
  EXPECT_EQ(memory_.attach(hello_, kReader, random_), 0u);
  hello_.incarnation = kOwner;
  hello_.process = 0;
  EXPECT_EQ(memory_.attach(hello_, kReader, random_), 0u);
  hello_.process = this_process();
  hello_.seal = 8;
  EXPECT_EQ(memory_.attach(hello_, kReader, random_), 0u);
  EXPECT_THROW(read(memory_, bytes_), Error);
}

TEST_F(LendingTest, MemoryThatIsNotThereIsNotRead) {
  seal_.accept(memory_.attach(hello_, kReader, random_));
  wire::Chunk chunk;
  chunk.address = 8;
  chunk.size = 8;
  std::byte out[8];
  EXPECT_FALSE(memory_.read(chunk, out));
  EXPECT_FALSE(LendingSeal::is_readable(Frame(reinterpret_cast<const void*>(8), 8, nullptr)));
  EXPECT_TRUE(LendingSeal::is_readable(Frame(out, sizeof out, nullptr)));
}

// ---- in sessions ----

class LendingSessions : public PairOfSessions {
 protected:
  LendingSessions() {
    for (Node* node : {&a, &b}) node->transport->is_copying = true;
    network.set_tap([this](const std::string&, const std::string&, const Frames& frames) {
      for (const Frame& frame : frames) largest_frame = std::max(largest_frame, frame.size());
    });
    a.say(b, 1);
    EXPECT_TRUE(run_until([&] { return b.heard.size() == 1 && a.session->is_drained(); }));
  }

  void expect_arrived(const Tensor& sent) {
    Tensor received = std::get<wire::Call>(b.messages.back().body).args[0].as_tensor();
    ASSERT_EQ(received.shape(), sent.shape());
    EXPECT_EQ(std::memcmp(received.data(), sent.data(), sent.byte_size()), 0);
    EXPECT_NE(received.data(), sent.data());
  }

  size_t largest_frame = 0;
};

TEST_F(LendingSessions, LargePayloadGoesAroundTheNetwork) {
  for (size_t bytes : {size_t{256} << 10, size_t{1} << 20, size_t{20} << 20}) {
    wire::Call call = a.big_call(bytes);
    const size_t before = b.messages.size();
    a.send(b.id(), call);
    ASSERT_TRUE(run_until([&] { return b.messages.size() == before + 1; }));
    expect_arrived(call.args[0].as_tensor());
  }
  EXPECT_LT(largest_frame, 1000u);
  ASSERT_TRUE(run_until([&] { return a.session->is_drained(); }));
  EXPECT_GE(a.session->stats().bytes_sent, 21u << 20);
  EXPECT_GE(b.session->stats().bytes_received, 21u << 20);
}

TEST_F(LendingSessions, AtMostEightMebibytesAreUnacknowledged) {
  a.send(b.id(), a.big_call(64 << 20));
  size_t most = 0;
  ASSERT_TRUE(run_until([&] {
    most = std::max<size_t>(most, a.session->stats().bytes_in_flight);
    return b.messages.size() == 2;
  }));
  EXPECT_GE(most, 8u << 20);
  EXPECT_LT(most, 9u << 20);
}

TEST_F(LendingSessions, WhatIsLentIsHeldUntilItWasRead) {
  wire::Call call = a.big_call(3 << 20);
  const Tensor copy = call.args[0].as_tensor().clone();
  a.send(b.id(), std::move(call));
  call = {};
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 2; }));
  expect_arrived(copy);
}

TEST_F(LendingSessions, WhatIsLentArrivesOverDroppedConnections) {
  wire::Call call = a.big_call(20 << 20);
  const Tensor sent = call.args[0].as_tensor();
  a.send(b.id(), std::move(call));
  for (int i = 0; i < 5; ++i) {
    const uint64_t received = b.session->stats().bytes_received;
    ASSERT_TRUE(
        run_until([&] { return b.messages.size() == 2 || b.session->stats().bytes_received > received + (3u << 20); }));
    network.cut_all();
  }
  ASSERT_TRUE(run_until([&] { return b.messages.size() == 2; }));
  expect_arrived(sent);
  EXPECT_TRUE(b.lost.empty());
}

// a gives b up and lets go of what it lent, while b has not seen all of it.
TEST_F(LendingSessions, WhoHasGivenUpItsPeerIsNotReadAnyMore) {
  a.send(b.id(), a.big_call(20 << 20));
  a.loop.run([&] { a.session->fence(b.id(), Error(Status::kDisconnected, "given up")); });
  ASSERT_TRUE(run_until([&] { return b.lost.size() == 1; }));
  EXPECT_EQ(b.messages.size(), 1u);
}

}  // namespace
}  // namespace distag
