// Messages that take long to decode: the order of the stream holds, and the loop does not wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "session/inbox.h"
#include "session_harness.h"
#include "wire/packed.h"

namespace distag {
namespace {

constexpr size_t kLong = size_t{1} << 20;

class InboxTest : public PairOfSessions {
 protected:
  wire::Call text_call(Node& from, size_t bytes) {
    return {{from.id(), ++last_}, "text", {Value::text(std::string(bytes, 't'))}, kForever, {}, ""};
  }

 private:
  uint64_t last_ = 0;
};

TEST_F(InboxTest, ThoseBehindOneThatTakesLongWaitForIt) {
  b.decoder.freeze();
  for (uint64_t i = 1; i <= 3; ++i) {
    a.say(b, 2 * i);
    a.send(b.id(), text_call(a, kLong * i / 2));  // of one message, and in chunks
    a.say(b, 2 * i + 1);
  }
  ASSERT_TRUE(run_until([this] { return a.is_drained(); })) << "acknowledged when it came";
  ASSERT_FALSE(b.messages.empty());
  EXPECT_LT(b.messages.size(), 9u);
  b.decoder.thaw();
  ASSERT_TRUE(run_until([this] { return b.messages.size() == 9; }));
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(b.messages[i].number > (i == 0 ? 0 : b.messages[i - 1].number), true) << i;
}

TEST_F(InboxTest, MessagesToOneselfKeepTheirOrder) {
  a.send(a.id(), text_call(a, 3 * kLong));
  a.say(a, 1);
  a.send(a.id(), text_call(a, kLong));
  a.say(a, 2);
  ASSERT_TRUE(run_until([this] { return a.messages.size() == 4; }));
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(a.messages[i].number, i + 1);
}

TEST_F(InboxTest, ManyThatWaitAreHandedOutInTasksOfTheirOwn) {
  b.decoder.freeze();
  a.send(b.id(), text_call(a, kLong / 2));
  for (uint64_t i = 1; i <= 1000; ++i) a.say(b, i);
  ASSERT_TRUE(run_until([this] { return a.is_drained(); }));
  EXPECT_TRUE(b.messages.empty());
  b.decoder.thaw();
  ASSERT_TRUE(run_until([this] { return b.heard.size() == 1000; }));
  EXPECT_EQ(b.heard, count_to(1000));
}

TEST_F(InboxTest, NothingIsHeardOfAPeerThatWasGivenUpMeanwhile) {
  b.decoder.freeze();
  a.send(b.id(), text_call(a, kLong / 2));
  a.say(b, 1);
  ASSERT_TRUE(run_until([this] { return a.is_drained(); }));
  b.loop.run([this] { b.session->fence(a.id(), Error(Status::kDisconnected, "enough of it")); });
  b.decoder.thaw();
  scheduler.run_for(kSecond);
  EXPECT_TRUE(b.messages.empty());
  EXPECT_EQ(b.lost.size(), 1u);
}

TEST_F(InboxTest, LeavingComesAfterTheMessagesBeforeIt) {
  b.decoder.freeze();
  a.send(b.id(), text_call(a, kLong / 2));
  bool is_left = false;
  a.loop.run([&] { a.session->leave(a.loop.now() + 5 * kSecond, [&is_left] { is_left = true; }); });
  ASSERT_TRUE(run_until([&is_left] { return is_left; }));
  EXPECT_TRUE(b.left.empty());
  b.decoder.thaw();
  ASSERT_TRUE(run_until([this] { return b.left.size() == 1; }));
  EXPECT_EQ(b.messages.size(), 1u);
  EXPECT_TRUE(b.lost.empty());
}

// The message is acknowledged, so its sender may be gone before it is decoded.
TEST_F(InboxTest, AnAcknowledgedMessageIsHeardAlsoOfAPeerThatIsGoneByThen) {
  b.say(a, 1);
  a.say(b, 1);
  ASSERT_TRUE(run_until([this] { return a.heard.size() == 1 && b.heard.size() == 1; }));
  b.decoder.freeze();
  a.send(b.id(), text_call(a, kLong / 2));
  bool is_left = false;
  a.loop.run([&] { a.session->leave(a.loop.now() + 5 * kSecond, [&is_left] { is_left = true; }); });
  ASSERT_TRUE(run_until([&is_left] { return is_left; }));
  a.stop();
  network.kill("a");
  scheduler.run_for(10 * kSecond);
  EXPECT_TRUE(b.lost.empty()) << b.lost.front().second.message();
  b.decoder.thaw();
  ASSERT_TRUE(run_until([this] { return b.left.size() == 1; }));
  EXPECT_EQ(b.messages.size(), 2u);
  EXPECT_TRUE(b.lost.empty());
}

TEST_F(InboxTest, APeerThatIsLostIsLostOnceItsMessagesAreHeard) {
  b.say(a, 1);
  ASSERT_TRUE(run_until([this] { return a.heard.size() == 1; }));
  b.decoder.freeze();
  a.send(b.id(), text_call(a, kLong / 2));
  ASSERT_TRUE(run_until([this] { return a.is_drained(); }));
  network.kill("a");
  b.say(a, 2);
  scheduler.run_for(10 * kSecond);
  EXPECT_TRUE(b.lost.empty());
  b.decoder.thaw();
  ASSERT_TRUE(run_until([this] { return b.lost.size() == 1; }));
  EXPECT_EQ(b.messages.size(), 1u);
}

// A header has no room for the names of more than 4,096 frames that go ahead.
TEST_F(InboxTest, MorePiecesThanAHeaderCanName) {
  for (const bool is_packed : {false, true}) {
    Value::List pieces;
    for (int i = 0; i < 6'000; ++i) pieces.push_back(Value::bytes(Value::Bytes(5'000, static_cast<std::byte>(i))));
    wire::Call call = text_call(a, 1);
    call.args = {Value::list(pieces)};
    if (is_packed) call.packed = wire::Packed::make(call.args);
    for (Node* to : {&a, &b}) {
      to->messages.clear();
      a.send(to->id(), call);
      ASSERT_TRUE(run_until([to] { return to->messages.size() == 1; }));
      const Value heard = std::get<wire::Call>(to->messages.front().body).args.front();
      ASSERT_EQ(heard.as_list().size(), 6'000u);
      EXPECT_EQ(heard.as_list()[5'999].as_bytes().back(), static_cast<std::byte>(5'999 % 256));
    }
  }
}

// A payload without memory is refused by what its message asks for. A long header without memory comes again.
TEST_F(InboxTest, MessagesWhoseFramesFindNoMemoryAreRefusedOrComeAgain) {
  meet();
  network.faults.lose = 0.3;
  const size_t calls = 100;
  for (size_t i = 0; i < calls; ++i) {
    wire::Call call = text_call(a, i % 4 == 0 ? kLong / 2 : 10);  // the long ones have a header of that length
    if (i % 4 == 1) call.args = {Value::bytes(Value::Bytes(kLong / 4, std::byte{7}))};
    if (i % 4 == 2) call.args = {Value::bytes(Value::Bytes(3 * kLong, std::byte{7}))};
    a.send(b.id(), call);
  }
  ASSERT_TRUE(
      run_until([this] { return b.messages.size() + b.unstored.size() == 1 + calls && a.is_drained(); }, 600 * kSecond))
      << b.messages.size() << " and " << b.unstored.size();
  EXPECT_GT(b.unstored.size(), 10u);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < b.messages.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(b.messages[i].number, b.messages[i - 1].number);
    }
    const auto* const call = std::get_if<wire::Call>(&b.messages[i].body);
    if (call != nullptr) numbers.push_back(call->call.counter);
  }
  for (const auto& [outline, why] : b.unstored) {
    ASSERT_TRUE(std::holds_alternative<wire::Call>(outline.body));
    EXPECT_EQ(why.status(), Status::kOutOfMemory);
    numbers.push_back(std::get<wire::Call>(outline.body).call.counter);
  }
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, count_to(calls)) << "each once";
}

// Nothing says which call its message belongs to, and it cannot come again.
TEST_F(InboxTest, AHeaderInPiecesThatFindsNoMemoryLosesThePeer) {
  meet();
  network.faults.lose = 1;
  wire::Call call = text_call(a, 1);
  call.args = {Value::list(Value::List(400'000, Value(0.5)))};
  a.send(b.id(), call);
  a.say(b, 2);
  ASSERT_TRUE(run_until([this] { return !b.lost.empty() && !a.lost.empty(); }));
  EXPECT_EQ(b.lost.front().second.status(), Status::kDisconnected);
  EXPECT_NE(b.lost.front().second.message().find("no memory for the header"), std::string::npos)
      << b.lost.front().second.message();
  EXPECT_NE(a.lost.front().second.message().find("no memory for the header"), std::string::npos)
      << a.lost.front().second.message();
  EXPECT_TRUE(b.unstored.empty());
  EXPECT_EQ(b.heard, count_to(1));
}

TEST_F(InboxTest, AViolationThatTheDecoderFindsEndsThePeer) {
  // The text arrives with a byte that is not UTF-8: bytes change behind the sender's checks.
  auto bytes = std::make_shared<std::string>(kLong / 2, 't');
  wire::Call call = text_call(a, kLong / 2);
  const char* sent = call.args.front().as_text().data();
  a.send(b.id(), call);
  const_cast<char*>(sent)[7] = '\xFF';  // before the message is on its way: the frame shares the memory of the value
  ASSERT_TRUE(run_until([this] { return !b.lost.empty(); }));
  EXPECT_EQ(b.lost.front().second.status(), Status::kProtocol);
  EXPECT_TRUE(b.messages.empty());
}

TEST_F(InboxTest, ADecoderThatIsStoppedCostsNoMessage) {
  b.decoder.stop();
  a.send(b.id(), text_call(a, kLong));
  a.say(b, 1);
  ASSERT_TRUE(run_until([this] { return b.messages.size() == 2; }));
}

// Lists are encoded once, where the call is made.
TEST_F(InboxTest, WhatIsPackedArrivesAsItWas) {
  Value::List names;
  for (int64_t i = 0; i < 20'000; ++i) {
    names.push_back(
        Value::list({Value(i), Value::text("name " + std::to_string(i)), Value(0.5 * static_cast<double>(i))}));
  }
  Tensor tensor = Tensor::empty(Dtype::kInt64, {int64_t{100'000}});
  std::fill_n(tensor.mutable_data_as<int64_t>(), tensor.count(), 7);
  const Values args = {Value(true), Value::list(names), Value(tensor),
                       Value::map({{"key", Value::text(std::string(kLong, 'k'))}, {"more", Value::list(names)}})};
  wire::Call call = text_call(a, 1);
  call.args.clear();
  call.packed = wire::Packed::make(args);
  ASSERT_NE(call.packed, nullptr);
  wire::Reply reply;
  reply.call = {b.id(), 1};
  reply.packed = wire::Packed::make(args.back());
  ASSERT_NE(reply.packed, nullptr);
  for (Node* to : {&a, &b}) {
    a.send(to->id(), call);
    a.send(to->id(), reply);
    ASSERT_TRUE(run_until([to] { return to->messages.size() == 2; }));
    const auto& heard = std::get<wire::Call>(to->messages.front().body);
    ASSERT_EQ(heard.args.size(), args.size());
    EXPECT_TRUE(heard.args[0].as_bool());
    EXPECT_EQ(heard.args[1].as_list().back().as_list()[1].as_text(), "name 19999");
    EXPECT_EQ(heard.args[2].as_tensor().data_as<int64_t>()[99'999], 7);
    const Value result = std::get<wire::Reply>(to->messages.back().body).result;
    EXPECT_EQ(result.find("key")->as_text().size(), kLong);
    EXPECT_EQ(result.find("more")->as_list()[12'345].as_list()[2].as_float64(), 0.5 * 12'345);
  }
}

TEST_F(InboxTest, FewPlainValuesAreNotPacked) {
  EXPECT_EQ(wire::Packed::make(Value(int64_t{1})), nullptr);
  EXPECT_EQ(wire::Packed::make(Value::text(std::string(kLong, 't'))), nullptr);
  EXPECT_EQ(wire::Packed::make(Value::list({Value(true), Value(false)})), nullptr);
  EXPECT_EQ(wire::Packed::make(Values{}), nullptr);
}

class Taken final : public Inbox::Owner {
 public:
  bool on_decoded(Inbox::Decoded& decoded) override {
    messages.push_back(std::move(decoded.message));
    return true;
  }
  std::vector<wire::Message> messages;
};

// The lender of a large frame was lost before all of it was copied.
TEST_F(InboxTest, TheRestOfAFrameIsCopiedBesideTheLoopAndBeforeItIsRead) {
  Tensor ones = Tensor::empty(Dtype::kFloat64, {10'000});
  std::fill_n(ones.mutable_data_as<double>(), 10'000, 1.0);
  const wire::Limits limits;
  wire::Reply reply;
  reply.call = {7, 1};
  reply.result = Value(ones);
  const wire::Encoded encoded = wire::encode({1, 0, {}, reply}, limits);
  const Frame& sent = encoded.payload.at(0);
  std::vector<std::byte> memory(sent.size());
  std::vector<Task> rest;
  rest.push_back([&memory, sent] { std::copy_n(sent.data(), sent.size(), memory.data()); });
  Taken taken;
  std::unique_ptr<Inbox> inbox;
  b.decoder.freeze();
  b.loop.run([&] {
    inbox = std::make_unique<Inbox>(b.loop, &b.decoder, limits, taken);
    const Frame frame(memory.data(), memory.size(), nullptr);
    inbox->add(Inbox::make_place(), {encoded.header, {frame}, std::nullopt, true, std::move(rest)});
    inbox->drain();
  });
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size())) << "the loop has copied";
  b.decoder.thaw();
  ASSERT_TRUE(run_until([&taken] { return taken.messages.size() == 1; }));
  const Tensor result = std::get<wire::Reply>(taken.messages[0].body).result.as_tensor().hold();
  EXPECT_EQ(std::count(result.data_as<double>(), result.data_as<double>() + 10'000, 1.0), 10'000);
  b.loop.run([&inbox] { inbox.reset(); });
}

}  // namespace
}  // namespace distag
