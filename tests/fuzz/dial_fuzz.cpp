// Reads the stream that a server sends to a worker that dialled it. Input: a kind, how large the pieces are; then the
// stream of a server without a key, with or without a sound handshake; or of one with a key: its own words, some bytes
// of which are changed, or any bytes behind its greeting. Pieces change nothing, a message that is packed is read by
// the other side as it was, and of a server with a key nothing is heard but what it said, in order.
#include <sodium.h>

#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "fuzz/input.h"
#include "transport/socket/worker_key.h"
#include "transport/zmtp/zmtp_reader.h"

namespace {

using namespace distag;
using fuzz::check;
using fuzz::Input;
using Role = ZmtpReader::Role;

// The same numbers in each run.
uint32_t next_random = 0;
const char* random_name() { return "counter"; }
uint32_t random_number() { return next_random += 0x9e3779b9; }
void fill(void* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<uint8_t*>(bytes)[i] = static_cast<uint8_t>(random_number() >> 24);
}
randombytes_implementation counter = {random_name, random_number, nullptr, nullptr, fill, nullptr};

void begin() {
  static const bool is_set = randombytes_set_implementation(&counter) == 0 && sodium_init() >= 0;
  check(is_set);
  next_random = 0;
}

std::string greeting(const char* mechanism) {
  std::string bytes = std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\1", 12) + mechanism;
  bytes.resize(64);
  return bytes;
}

const std::string kHandshake = greeting("NULL") + std::string("\4\x1c\5READY\x0bSocket-Type\0\0\0\6ROUTER", 30);

struct Outcome {
  std::vector<Frames> messages;
  Status status = Status::kOk;
};

void read(ZmtpReader& reader, std::string_view stream, size_t piece, Outcome& outcome) {
  if (outcome.status != Status::kOk) return;
  try {
    for (size_t at = 0; at < stream.size();) {
      const std::span<std::byte> room = reader.room();
      check(!room.empty());
      const size_t size = std::min({room.size(), piece, stream.size() - at});
      std::memcpy(room.data(), stream.data() + at, size);
      reader.add(size);
      at += size;
      while (auto frames = reader.next()) outcome.messages.push_back(std::move(*frames));
      check(outcome.messages.empty() || reader.is_ready());
    }
  } catch (const Error& error) {
    outcome.status = error.status();
    check(outcome.status == Status::kProtocol || outcome.status == Status::kDenied);
    check(outcome.status == Status::kProtocol || !reader.is_ready());
  }
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string text_of(const Frames& frames) {
  std::string text;
  for (const Frame& frame : frames) text += text_of(std::span(frame.data(), frame.size()));
  return text;
}

void check_equal(const Frames& a, const Frames& b) {
  check(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) check(a[i].size() == b[i].size());
  check(text_of(a) == text_of(b));
}

// ---- without a key ----

void check_plain(Input& input, bool is_shaken, size_t piece) {
  const std::string stream = (is_shaken ? kHandshake : std::string()) + input.rest();
  ZmtpReader in_pieces(Role::kDials);
  std::string said = text_of(in_pieces.take_answer());
  Outcome outcome;
  read(in_pieces, stream, piece, outcome);
  ZmtpReader at_once(Role::kDials);
  Outcome again;
  read(at_once, stream, stream.size(), again);
  check(again.status == outcome.status && again.messages.size() == outcome.messages.size());
  check(at_once.is_ready() == in_pieces.is_ready());
  ZmtpReader server(Role::kAccepts);
  for (size_t i = 0; i < outcome.messages.size(); ++i) {
    check_equal(outcome.messages[i], again.messages[i]);
    said += text_of(in_pieces.pack(outcome.messages[i]));
  }
  Outcome heard;
  read(server, said, said.size(), heard);
  check(heard.status == Status::kOk && heard.messages.size() == outcome.messages.size());
  for (size_t i = 0; i < heard.messages.size(); ++i) check_equal(heard.messages[i], outcome.messages[i]);
}

// ---- with a key ----

// Changes bytes of a server, at places that the input chooses.
class Spoiler {
 public:
  explicit Spoiler(Input& input) {
    for (size_t left = input.below(3); left > 0; --left) {
      const size_t place = input.byte() * 256u + input.byte();
      changes_.push_back({place, input.byte()});
    }
  }
  std::string pass(std::string bytes) {
    for (const auto& [place, byte] : changes_) {
      if (place >= passed_ && place < passed_ + bytes.size()) bytes[place - passed_] = static_cast<char>(byte);
    }
    passed_ += bytes.size();
    return bytes;
  }

 private:
  std::vector<std::pair<size_t, uint8_t>> changes_;
  size_t passed_ = 0;
};

Frames frames_of(Input& input) {
  Frames frames;
  for (size_t left = 1 + input.below(3); left > 0; --left) {
    const size_t size = input.byte() * (input.flag() ? 1u : 300u);
    frames.push_back(Frame::of(std::vector<std::byte>(size, static_cast<std::byte>(input.byte()))));
  }
  return frames;
}

void check_key(Input& input, size_t piece) {
  begin();
  const CurveKeyPair pair = new_key_pair();
  const SocketKeys keys(pair);
  ZmtpReader client(Role::kDials, &keys);
  ZmtpReader server(Role::kAccepts, &keys);
  Spoiler spoiler(input);
  Outcome heard;
  Outcome asked;
  for (int round = 0; round < 3; ++round) {
    read(client, spoiler.pass(text_of(server.take_answer())), piece, heard);
    const std::string said = text_of(client.take_answer());
    read(server, said, said.size(), asked);
  }
  read(client, spoiler.pass(text_of(server.take_answer())), piece, heard);
  if (!server.is_ready()) return check(!client.is_ready() && heard.messages.empty());
  std::vector<Frames> sent;
  for (size_t left = input.below(4); left > 0; --left) {
    sent.push_back(frames_of(input));
    read(client, spoiler.pass(text_of(server.pack(sent.back()))), piece, heard);
  }
  check(heard.messages.size() <= sent.size());
  for (size_t i = 0; i < heard.messages.size(); ++i) check_equal(heard.messages[i], sent[i]);
  if (!client.is_ready()) return;
  const Frames word = frames_of(input);
  const std::string said = text_of(client.pack(word));
  read(server, said, said.size(), asked);
  check(asked.messages.size() == 1);
  check_equal(asked.messages[0], word);
}

// Whoever has not the key is never heard.
void check_stranger(Input& input, size_t piece) {
  begin();
  const SocketKeys keys(new_key_pair());
  ZmtpReader client(Role::kDials, &keys);
  Outcome heard;
  read(client, greeting("CURVE") + input.rest(), piece, heard);
  check(heard.messages.empty() && !client.is_ready());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t kind = input.below(4);
  const size_t piece = 1 + size_t{input.byte()} * (1 + input.byte());
  switch (kind) {
    case 0:
    case 1:
      check_plain(input, kind == 1, piece);
      break;
    case 2:
      check_key(input, piece);
      break;
    default:
      check_stranger(input, piece);
  }
  return 0;
}
