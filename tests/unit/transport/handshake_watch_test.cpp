// Sequences of events as libzmq 4.3.4 gives them, and what is made of them.
#include "transport/zmq/handshake_watch.h"

#include <gtest/gtest.h>
#include <zmq.h>

#include <array>
#include <cstring>

#include "transport/zmq/zap.h"

namespace distag {
namespace {

constexpr uint16_t kAccepted = ZMQ_EVENT_ACCEPTED, kEnd = ZMQ_EVENT_DISCONNECTED;
constexpr uint16_t kSuccess = ZMQ_EVENT_HANDSHAKE_SUCCEEDED, kHungUp = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
constexpr uint16_t kBroken = ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;

class HandshakeWatchTest : public ::testing::Test {
 protected:
  void add(std::initializer_list<ZmqEvent> events) {
    for (const ZmqEvent& event : events) watch_.add(event);
  }
  void look() {
    if (watch_.look_at_addresses()) watch_.confirm_addresses();
  }
  using Texts = std::vector<std::string>;
  static std::string refused(const std::string& from, const std::string& why) {
    return "a connection from " + from + " was refused: " + why;
  }

  HandshakeWatch watch_{[](int fd) {
                          return HandshakeWatch::Seen{fmt::format("tcp://10.0.0.1:{}", fd), 0, NotedSocket()};
                        },
                        true, false};
};

TEST_F(HandshakeWatchTest, EachFailureIsCountedOnceWithItsReason) {
  add({{kAccepted, 7}, {kAccepted, 8}, {kAccepted, 9}});
  look();
  add({{kHungUp, 32}, {kEnd, 7}, {kBroken, ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC}, {kEnd, 8}, {kEnd, 9}});
  EXPECT_EQ(
      watch_.settle().refusals,
      (Texts{refused("tcp://10.0.0.1:7", "it hung up in the midst of its handshake, or that has not ended in time"),
             refused("tcp://10.0.0.1:8", "it does not know the key of the group"),
             refused("tcp://10.0.0.1:9", "it speaks no ZMTP")}));
  EXPECT_TRUE(watch_.settle().refusals.empty());
}

TEST_F(HandshakeWatchTest, AnAddressCountsOnlyIfTheDescriptorIsNotClosedMeanwhile) {
  add({{kAccepted, 7}, {kAccepted, 8}});
  ASSERT_TRUE(watch_.look_at_addresses());
  add({{kHungUp, 0}, {kEnd, 7}, {kAccepted, 7}});  // the number is another connection's by now
  watch_.confirm_addresses();
  add({{kHungUp, 0}, {kEnd, 8}});
  const Texts refusals = watch_.settle().refusals;
  ASSERT_EQ(refusals.size(), 2u);
  EXPECT_EQ(refusals[0].find("a connection from an address that is not known was refused"), 0u) << refusals[0];
  EXPECT_EQ(refusals[1].find("a connection from tcp://10.0.0.1:8 was refused"), 0u) << refusals[1];
}

TEST_F(HandshakeWatchTest, AMemberThatSpeaksAndEndsIsNoRefusal) {
  add({{kAccepted, 7}, {kSuccess, 0}});
  watch_.add_message(3, 7);
  EXPECT_TRUE(watch_.settle().refusals.empty());
  add({{kEnd, 7}});
  const HandshakeWatch::Outcome outcome = watch_.settle();
  EXPECT_TRUE(outcome.refusals.empty());
  EXPECT_EQ(outcome.ended, std::vector<uint64_t>{3});
}

// The message waits in the ROUTER while the end is in the monitor already, and the number is in use again.
TEST_F(HandshakeWatchTest, TheEndIsThatOfTheConnectionThatSpokeFirst) {
  add({{kAccepted, 7}, {kSuccess, 0}, {kEnd, 7}, {kAccepted, 7}, {kSuccess, 0}});
  watch_.add_message(3, 7);
  watch_.add_message(4, 7);
  EXPECT_EQ(watch_.settle().ended, std::vector<uint64_t>{3});
  add({{kEnd, 7}});
  const HandshakeWatch::Outcome outcome = watch_.settle();
  EXPECT_EQ(outcome.ended, std::vector<uint64_t>{4});
  EXPECT_TRUE(outcome.refusals.empty());
}

TEST_F(HandshakeWatchTest, AMemberThatSaysNothingIsNoRefusal) {
  add({{kAccepted, 7}, {kSuccess, 0}, {kEnd, 7}});
  EXPECT_TRUE(watch_.settle().refusals.empty());
}

// An end that a silent member seemed to explain is counted once that member speaks.
TEST_F(HandshakeWatchTest, AStrangerIsCountedAlsoBesideASilentMember) {
  add({{kAccepted, 7}, {kSuccess, 0}, {kAccepted, 8}, {kEnd, 8}});
  EXPECT_TRUE(watch_.settle().refusals.empty());
  watch_.add_message(1, 7);
  EXPECT_EQ(watch_.settle().refusals.size(), 1u);
  add({{kEnd, 7}});
  EXPECT_TRUE(watch_.settle().refusals.empty());
}

TEST_F(HandshakeWatchTest, WhatZapRefusedIsNotCountedAgain) {
  for (const bool hangs_up : {false, true}) {
    add({{kAccepted, 7}});
    watch_.add_denial();
    if (hangs_up) add({{kHungUp, 0}});
    add({{kEnd, 7}});
    EXPECT_TRUE(watch_.settle().refusals.empty());
  }
}

// libzmq tells both in the same way; only the end of a handshake is told with it.
TEST_F(HandshakeWatchTest, ABoxThatDoesNotOpenIsNoHandshake) {
  const ZmqEvent broken{kBroken, ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC};
  add({{kAccepted, 7}, {kSuccess, 0}, {kAccepted, 8}, broken});
  HandshakeWatch::Outcome outcome = watch_.settle();
  EXPECT_TRUE(outcome.is_unclear);
  EXPECT_FALSE(outcome.has_broken_box);
  add({{kEnd, 8}});
  outcome = watch_.settle();
  EXPECT_FALSE(outcome.is_unclear || outcome.has_broken_box) << "it was that of a handshake";
  EXPECT_EQ(outcome.refusals.size(), 1u);

  add({broken, {kAccepted, 8}});
  outcome = watch_.settle();
  EXPECT_TRUE(outcome.has_broken_box) << "no end comes next";
  EXPECT_FALSE(outcome.is_unclear);
  add({broken});
  EXPECT_TRUE(watch_.settle().is_unclear);
  watch_.be_clear();
  outcome = watch_.settle();
  EXPECT_TRUE(outcome.has_broken_box) << "no end has come";
  EXPECT_FALSE(outcome.is_unclear);
  EXPECT_TRUE(outcome.refusals.empty());
}

TEST_F(HandshakeWatchTest, KnowsWhichConnectionsAreOpen) {
  add({{kAccepted, 7}, {kAccepted, 8}, {kAccepted, 9}, {kSuccess, 0}, {kSuccess, 0}, {kHungUp, 0}, {kEnd, 9}});
  watch_.add_message(3, 8);
  watch_.settle();
  const std::vector<HandshakeWatch::Open> open = watch_.open();
  ASSERT_EQ(open.size(), 2u);
  EXPECT_EQ(open[0].fd, 7);
  EXPECT_EQ(open[0].serial, 0u);
  EXPECT_EQ(open[1].fd, 8);
  EXPECT_EQ(open[1].serial, 3u);
}

std::optional<ZapRequest> parse(std::vector<std::string> parts) {
  const std::vector<std::string_view> views(parts.begin(), parts.end());
  return parse_zap_request(views);
}

TEST(Zap, RequestsAreParsedOrRefused) {
  const std::string key(32, 'k');
  const std::vector<std::string> good = {"", "1.0", "1", "distag-3", "127.0.0.1", "", "CURVE", key};
  ASSERT_TRUE(parse(good));
  EXPECT_EQ(parse(good)->domain, "distag-3");
  EXPECT_EQ(parse(good)->key->at(31), 'k');
  EXPECT_TRUE(parse({"", "1.0", "1", "d", "host:1000:100:7", "", "NULL"}));
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(parse(std::vector<std::string>(good.begin(), good.begin() + static_cast<ptrdiff_t>(cut)))) << cut;
  }
  for (const auto& [at, text] : std::vector<std::pair<size_t, std::string>>{
           {0, "x"}, {1, "2.0"}, {3, std::string(256, 'd')}, {6, "PLAIN"}, {6, "NULL"}, {7, "short"}, {7, key + "k"}}) {
    std::vector<std::string> bad = good;
    bad[at] = text;
    EXPECT_FALSE(parse(bad)) << at << " " << text;
  }
}

TEST(Zap, AddressesOfIpcEndInTheUser) {
  EXPECT_EQ(user_of_zap_address("host:1000:100:7"), 1000u);
  EXPECT_EQ(user_of_zap_address(":0:0:1"), 0u);
  for (const char* bad : {"", "host", "host:1:2", "host:-1:2:3", "host:1:2:x", "host:99999999999:1:1"}) {
    EXPECT_FALSE(user_of_zap_address(bad)) << bad;
  }
  EXPECT_EQ(describe_zap_address("host:1000:100:7", true), "process 7 of user 1000");
  EXPECT_EQ(describe_zap_address("", true), "an address that is not known");
  EXPECT_EQ(describe_zap_address("127.0.0.1", false), "tcp://127.0.0.1");
}

TEST(Zap, TicketsOfOthersAreNone) {
  const std::string key(64, 'a');
  const auto ticket = parse_ticket("secret/12/" + key + "/worker/7", "secret");
  ASSERT_TRUE(ticket);
  EXPECT_EQ(ticket->serial, 12u);
  EXPECT_EQ(ticket->key->at(0), 0xaa);
  EXPECT_EQ(ticket->name, "worker/7");
  EXPECT_TRUE(parse_ticket("secret/12//", "secret"));
  for (const std::string& bad :
       {std::string(), std::string("secret"), std::string("secret/12/"), "other/12/" + key + "/",
        std::string("secret/x//"), "secret/12/" + key.substr(1) + "/", "secret/12/" + std::string(64, 'g') + "/"}) {
    EXPECT_FALSE(parse_ticket(bad, "secret")) << bad;
  }
}

TEST(ZmqMonitor, EventsAreOfOneSize) {
  std::array<std::byte, 6> bytes{};
  const uint16_t number = kAccepted;
  std::memcpy(bytes.data(), &number, sizeof number);
  bytes[2] = std::byte{9};
  const auto event = parse_event(bytes);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->number, kAccepted);
  EXPECT_EQ(event->value, 9u);
  EXPECT_FALSE(parse_event(std::span(bytes).first(5)));
  EXPECT_FALSE(parse_event({}));
}

}  // namespace
}  // namespace distag
