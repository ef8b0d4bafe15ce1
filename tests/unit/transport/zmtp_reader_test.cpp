#include "transport/zmtp/zmtp_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace distag {
namespace {

using Role = ZmtpReader::Role;

std::string greeting() { return std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL", 16) + std::string(16 + 1 + 31, '\0'); }

std::string ready(const std::string& socket_type) {
  std::string body = std::string("\5READY") + "\x0bSocket-Type" + std::string(3, '\0');
  body += static_cast<char>(socket_type.size());
  body += socket_type;
  body += std::string("\10Identity\0\0\0\0", 13);
  return std::string("\4") + static_cast<char>(body.size()) + body;
}

std::string frame(char flags, const std::string& body) {
  std::string text(1, flags);
  const bool is_long = (flags & 2) != 0;
  for (size_t left = is_long ? 8 : 1; left > 0; --left) text += static_cast<char>(body.size() >> (8 * (left - 1)));
  return text + body;
}

std::string hello() { return greeting() + ready("DEALER"); }

Frame make_frame(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed + i * 7 + (i >> 8));
  return Frame::of(std::move(bytes));
}

std::string text_of(const Frame& frame) { return {reinterpret_cast<const char*>(frame.data()), frame.size()}; }

std::vector<std::string> texts_of(const Frames& frames) {
  std::vector<std::string> texts;
  for (const Frame& frame : frames) texts.push_back(text_of(frame));
  return texts;
}

// Feeds the stream in pieces of at most `piece` bytes, and gives the messages.
std::vector<std::vector<std::string>> read(ZmtpReader& reader, const std::string& stream, size_t piece) {
  std::vector<std::vector<std::string>> messages;
  for (size_t at = 0; at < stream.size();) {
    const std::span<std::byte> room = reader.room();
    EXPECT_FALSE(room.empty());
    const size_t size = std::min({room.size(), piece, stream.size() - at});
    std::memcpy(room.data(), stream.data() + at, size);
    reader.add(size);
    at += size;
    while (auto frames = reader.next()) messages.push_back(texts_of(*frames));
  }
  return messages;
}

std::string text_of_message(const Frames& frames) {
  std::string text;
  for (const Frame& piece : ZmtpReader(Role::kAccepts).pack(frames)) text += text_of(piece);
  return text;
}

TEST(ZmtpReader, ReadsMessagesInPiecesOfAnySize) {
  const std::vector<Frames> sent = {
      {make_frame(3, 1)},
      {make_frame(0, 0)},
      {make_frame(255, 2), make_frame(256, 3), make_frame(0, 0), make_frame(8191, 4), make_frame(8192, 5)},
      {make_frame(8190, 6), make_frame(8191, 7), make_frame(8191, 8)},
      {make_frame(100'000, 9), make_frame(5, 10)},
      {make_frame(kMaxMessageBytes, 11)}};
  std::string stream = hello();
  std::vector<std::vector<std::string>> expected;
  for (const Frames& frames : sent) {
    stream += text_of_message(frames);
    expected.push_back(texts_of(frames));
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{63}, size_t{4096}, size_t{16384}, stream.size()}) {
    ZmtpReader reader(Role::kAccepts);
    EXPECT_TRUE(read(reader, stream, piece) == expected) << piece;
    EXPECT_TRUE(reader.is_ready());
  }
}

TEST(ZmtpReader, SaysWhenTheHandshakeIsOver) {
  ZmtpReader reader(Role::kAccepts);
  read(reader, greeting(), 5);
  EXPECT_FALSE(reader.is_ready());
  read(reader, ready("DEALER"), 5);
  EXPECT_TRUE(reader.is_ready());
}

TEST(ZmtpReader, PassesOverCommands) {
  ZmtpReader reader(Role::kAccepts);
  const std::string stream = hello() + frame(4, "\4PING") + frame(1, "a") + frame(4, "\5OTHER") + frame(0, "b");
  EXPECT_EQ(read(reader, stream, 3), (std::vector<std::vector<std::string>>{{"a", "b"}}));
}

TEST(ZmtpReader, RefusesWhatIsNoneAsSoonAsItCanBeTold) {
  const std::string long_size = std::string("\0\0\0\0", 4);
  std::string crowd = hello();
  for (int i = 0; i <= 65536; ++i) crowd += frame(1, "");
  std::string heap = hello();
  for (int i = 0; i < 3; ++i) heap += frame(3, std::string(kMaxMessageBytes, 'x'));
  std::string old = greeting();
  old[10] = 2;
  std::string plain = greeting();
  plain.replace(12, 5, "PLAIN");
  for (const auto& [name, stream] : std::vector<std::pair<std::string, std::string>>{
           {"http", "G"},
           {"signature", std::string("\xff\0\0\0\0\0\0\0\1\1", 10)},
           {"version", old.substr(0, 11)},
           {"mechanism", plain},
           {"message before READY", greeting() + frame(0, "a")},
           {"a SUB", greeting() + ready("SUB")},
           {"no type", greeting() + frame(4, "\5READY")},
           {"cut property", greeting() + frame(4, "\5READY\x0bSocket")},
           {"ERROR", greeting() + frame(4, "\5ERROR")},
           {"flags", hello() + "\x08"},
           {"command with more", hello() + frame(5, "x")},
           {"frame", hello() + "\2" + long_size + std::string("\1\0\0\0", 4)},
           {"frame of 2^63", hello() + "\2\x80" + std::string(7, '\0')},
           {"command", hello() + "\6" + long_size + std::string("\0\0\x20\0", 4)},
           {"frames", crowd},
           {"message", heap}}) {
    ZmtpReader reader(Role::kAccepts);
    try {
      read(reader, stream, 1000);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), name == "mechanism" ? Status::kDenied : Status::kProtocol) << name;
    }
  }
}

// Never reads or writes beside its memory, whatever comes (the sanitizers tell).
TEST(ZmtpReader, TakesAnyBytes) {
  std::mt19937 random(7);
  const std::string sound =
      hello() + text_of_message({make_frame(300, 1), make_frame(9000, 2)}) + text_of_message({make_frame(12, 3)});
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string stream = sound;
    for (int i = 0; i < 3; ++i) stream[random() % stream.size()] = static_cast<char>(random());
    ZmtpReader reader(Role::kAccepts);
    try {
      read(reader, stream, 1 + random() % 500);
    } catch (const Error& error) {
      EXPECT_TRUE(error.status() == Status::kProtocol || error.status() == Status::kDenied) << error.message();
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 3000);
}

}  // namespace
}  // namespace distag
