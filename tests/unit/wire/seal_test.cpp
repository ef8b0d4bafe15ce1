#include <gtest/gtest.h>

#include <cstring>

#include "message_generated.h"
#include "sample_messages.h"
#include "wire/checksum.h"

namespace distag::wire {
namespace {

// Says of itself that it may damage bytes, or that it does not; carries nothing.
class NamedTransport final : public Transport {
 public:
  explicit NamedTransport(bool exact) : exact_(exact) {}
  std::unique_ptr<Acceptor> listen(const std::string&, AcceptorEvents) override { return nullptr; }
  std::unique_ptr<Connection> dial(const std::string&, ConnectionEvents) override { return nullptr; }
  std::unique_ptr<Connection> dial_worker(const std::string&, const std::string&, ConnectionEvents) override {
    return nullptr;
  }
  std::string explain_denial() const override { return {}; }
  void check_endpoint(const std::string&) const override {}
  std::string private_address() override { return {}; }
  void let_last_words_go() override {}
  bool is_exact() const override { return exact_; }
  bool reports_every_loss() const override { return exact_; }
  LaneReport lane_report() const override { return {}; }
  SocketReport socket_report() const override { return {}; }
  void check_descriptors(size_t) const override {}

 private:
  const bool exact_;
};

const NamedTransport kNetwork(false);
const NamedTransport kMemory(true);

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Frame with_byte_changed(const Frame& frame, size_t at, unsigned change) {
  std::vector<std::byte> bytes(frame.data(), frame.data() + frame.size());
  bytes[at] ^= static_cast<std::byte>(change);
  return Frame::of(std::move(bytes));
}

// RFC 3720, B.4, and the check value of the catalogue of CRCs.
TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(Checksum().value(), 0u);
  EXPECT_EQ(Checksum().add(bytes_of("123456789")).value(), 0xE3069283u);
  EXPECT_EQ(Checksum().add(bytes_of("1234")).add(bytes_of("56789")).value(), 0xE3069283u);
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xFF});
  EXPECT_EQ(Checksum().add(zeros).value(), 0x8A9136AAu);
  EXPECT_EQ(Checksum().add(ones).value(), 0x62A8AB43u);
}

TEST(Checksum, TellsWhereFramesEnd) {
  auto sum_of = [](const char* first, const char* second) {
    return Checksum().add(Frame::copy_of(first, std::strlen(first))).add(Frame::copy_of(second, std::strlen(second)));
  };
  EXPECT_NE(sum_of("ab", "c").value(), sum_of("a", "bc").value());
  EXPECT_NE(sum_of("", "abc").value(), sum_of("abc", "").value());
}

TEST(Seal, EveryBodyComesBackThroughIt) {
  for (const Body& body : all_bodies()) {
    const Frames frames = pack({4, 3, {}, body}, Limits(), kNetwork);
    EXPECT_EQ(unpack(frames, Limits(), kNetwork).body.index(), body.index()) << body_name(body);
    EXPECT_EQ(unpack(pack({4, 3, {}, body}, Limits(), kMemory), Limits(), kMemory).body.index(), body.index());
  }
}

TEST(Seal, EveryFlippedByteIsNoticed) {
  for (const Body& body : all_bodies()) {
    const Frames frames = pack({4, 3, {}, body}, Limits(), kNetwork);
    for (size_t frame = 0; frame < frames.size(); ++frame) {
      const size_t step = 1 + frames[frame].size() / 2000;
      for (size_t at = 0; at < frames[frame].size(); at += step) {
        Frames damaged = frames;
        damaged[frame] = with_byte_changed(frames[frame], at, 1u << at % 8);
        EXPECT_THROW(unpack(damaged, Limits(), kNetwork), Damaged)
            << body_name(body) << ", frame " << frame << ", byte " << at;
      }
    }
  }
}

TEST(Seal, AFrameThatIsMissingOrTooManyIsNoticed) {
  const Chunk chunk{1, 10, 15, false, Frame::copy_of("12345", 5)};
  Frames frames = pack({4, 3, {}, chunk}, Limits(), kNetwork);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_THROW(unpack({frames[0]}, Limits(), kNetwork), Damaged);
  EXPECT_THROW(unpack({frames[0], frames[1], Frame()}, Limits(), kNetwork), Damaged);
  EXPECT_THROW(unpack({frames[1], frames[0]}, Limits(), kNetwork), Damaged);
}

TEST(Seal, AMessageWithOtherNumbersIsSealedAnew) {
  const Encoded encoded = encode({4, 3, {}, Ping{}}, Limits());
  const Frame renumbered = with_numbers(seal(encoded.header, {}), 4, 5);
  EXPECT_THROW(unpack({renumbered}, Limits(), kNetwork), Damaged);
  EXPECT_EQ(unpack({seal(renumbered, {})}, Limits(), kNetwork).ack, 5u);
}

// As 0.2 says it.
Frame without_checksum(uint32_t protocol) {
  flatbuffers::FlatBufferBuilder builder;
  const protocol::Place place(0, 0);
  auto hello = protocol::CreateHelloDirect(builder, "job", protocol, 0, "a", 0, 31, 0, "ipc:///x");
  builder.FinishSizePrefixed(protocol::CreateMessage(builder, &place, 0, protocol::Body::Hello, hello.Union()),
                             protocol::MessageIdentifier());
  return Frame::copy_of(builder.GetBufferPointer(), builder.GetSize());
}

// Else versions could not refuse each other by name.
TEST(Seal, OnlyWhatRefusesAnotherVersionIsHeardWithoutIt) {
  EXPECT_EQ(std::get<Hello>(unpack({without_checksum(1)}, Limits(), kNetwork).body).protocol, 1u);
  EXPECT_THROW(unpack({without_checksum(kProtocolVersion)}, Limits(), kNetwork), Damaged);
}

}  // namespace
}  // namespace distag::wire
