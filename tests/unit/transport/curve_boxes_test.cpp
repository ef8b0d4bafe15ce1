// Both sides of CURVE in memory, and the bytes between them.
#include "transport/zmtp/curve_boxes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/socket/worker_key.h"
#include "transport/zmtp/zmtp_reader.h"

namespace distag {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string text_of(const Frames& frames) {
  std::string text;
  for (const Frame& frame : frames) text.append(reinterpret_cast<const char*>(frame.data()), frame.size());
  return text;
}

Frames frames_of(const std::vector<std::string>& texts) {
  Frames frames;
  for (const std::string& text : texts) frames.push_back(Frame::copy_of(text.data(), text.size()));
  return frames;
}

std::vector<std::string> feed(ZmtpReader& reader, const std::string& bytes) {
  std::vector<std::string> messages;
  for (size_t at = 0; at < bytes.size();) {
    const std::span<std::byte> room = reader.room();
    const size_t size = std::min(room.size(), bytes.size() - at);
    std::memcpy(room.data(), bytes.data() + at, size);
    reader.add(size);
    at += size;
    while (auto frames = reader.next()) messages.push_back(text_of(*frames));
  }
  return messages;
}

Status status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return Status::kOk;
}

class CurveBoxesTest : public ::testing::Test {
 protected:
  void shake() {
    for (int round = 0; round < 3; ++round) {
      feed(server_, text_of(client_.take_answer()));
      feed(client_, text_of(server_.take_answer()));
    }
    ASSERT_TRUE(server_.is_ready() && client_.is_ready());
  }

  const SocketKeys keys_{new_key_pair()};
  ZmtpReader server_{ZmtpReader::Role::kAccepts, &keys_};
  ZmtpReader client_{ZmtpReader::Role::kDials, &keys_};
};

TEST_F(CurveBoxesTest, MessagesGoBothWays) {
  shake();
  for (const size_t size : std::initializer_list<size_t>{0, 1, 222, 223, 8000, 100'000}) {
    const Frames frames = frames_of({"head", std::string(size, 'x'), "tail"});
    EXPECT_EQ(feed(server_, text_of(client_.pack(frames))), std::vector<std::string>{text_of(frames)});
    EXPECT_EQ(feed(client_, text_of(server_.pack(frames))), std::vector<std::string>{text_of(frames)});
  }
}

// Somebody on the way who takes frames out would make another message of the rest.
TEST_F(CurveBoxesTest, NoFrameCanBeLeftOut) {
  for (const size_t frame : std::initializer_list<size_t>{0, 1, 2}) {
    ZmtpReader server(ZmtpReader::Role::kAccepts, &keys_);
    ZmtpReader client(ZmtpReader::Role::kDials, &keys_);
    for (int round = 0; round < 3; ++round) {
      feed(server, text_of(client.take_answer()));
      feed(client, text_of(server.take_answer()));
    }
    std::string bytes = text_of(client.pack(frames_of({"one", "two", "three", "four"})));
    const size_t begin[] = {0, 38, 76, 116};  // each with its header and its box
    bytes.erase(begin[frame], begin[frame + 1] - begin[frame]);
    EXPECT_EQ(status_of([&] { feed(server, bytes); }), Status::kProtocol) << frame;
  }
}

TEST_F(CurveBoxesTest, AFrameCannotBeMadeACommand) {
  shake();
  std::string bytes = text_of(client_.pack(frames_of({"one"})));
  bytes[0] |= 4;
  EXPECT_EQ(status_of([&] { feed(server_, bytes); }), Status::kProtocol);
  bytes = text_of(server_.pack(frames_of({"one"})));
  bytes[0] |= 4;
  EXPECT_EQ(status_of([&] { feed(client_, bytes); }), Status::kProtocol);
}

TEST_F(CurveBoxesTest, WhatIsSaidToOneSideIsNotHeardByTheOther) {
  shake();
  EXPECT_EQ(status_of([&] { feed(client_, text_of(client_.pack(frames_of({"one"})))); }), Status::kProtocol);
}

TEST_F(CurveBoxesTest, ABoxSaysWhatItHoldsAndIsOpenedOnce) {
  CurveBoxes client(CurveBoxes::Side::kClient);
  CurveBoxes server(CurveBoxes::Side::kServer);
  const CurveKeyPair a = new_key_pair();
  const CurveKeyPair b = new_key_pair();
  client.agree(b.public_key, a.secret_key);
  server.agree(a.public_key, b.secret_key);
  const std::string text = "a word";
  std::vector<std::byte> boxed(CurveBoxes::kOverhead + text.size());
  const std::span<const std::byte> plain(reinterpret_cast<const std::byte*>(text.data()), text.size());
  EXPECT_EQ(client.seal_message(plain, true, true, boxed.data()), boxed.data() + boxed.size());
  const CurveBoxes::Opened opened = server.open_message(boxed);
  EXPECT_TRUE(opened.more && opened.is_command);
  EXPECT_EQ(text_of(Frames{opened.body}), text);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(opened.body.data()) % 64, 0u);
  EXPECT_EQ(status_of([&] { server.open_message(boxed); }), Status::kProtocol) << "again";
}

TEST_F(CurveBoxesTest, AServerWithAnotherKeyIsDenied) {
  const SocketKeys others{new_key_pair()};
  ZmtpReader stranger(ZmtpReader::Role::kAccepts, &others);
  EXPECT_EQ(status_of([&] { feed(stranger, text_of(client_.take_answer())); }), Status::kDenied);
}

// Bits of the handshake that the client hears are changed: it is not ready, or nothing that counts was changed.
TEST_F(CurveBoxesTest, AChangedBitOfTheHandshakeNeverMakesAConnection) {
  size_t refused = 0;
  for (size_t at = 0; at < 400; at += 3) {
    ZmtpReader server(ZmtpReader::Role::kAccepts, &keys_);
    ZmtpReader client(ZmtpReader::Role::kDials, &keys_);
    size_t passed = 0;
    const Status status = status_of([&] {
      for (int round = 0; round < 3; ++round) {
        feed(server, text_of(client.take_answer()));
        std::string said = text_of(server.take_answer());
        if (at >= passed && at < passed + said.size()) said[at - passed] ^= 1;
        passed += said.size();
        feed(client, said);
      }
    });
    const bool is_filler = at < 64;
    EXPECT_TRUE(!client.is_ready() || is_filler || at >= passed) << at;
    refused += status != Status::kOk ? 1 : 0;
  }
  EXPECT_GT(refused, 60u);
}

}  // namespace
}  // namespace distag
