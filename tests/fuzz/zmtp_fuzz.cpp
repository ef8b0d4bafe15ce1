// Reads the stream that somebody sends to a worker over a socket. Input: whether a key is wanted, whether the handshake
// is made for it, how large the pieces are; then the stream. Its pieces change nothing, and a message that is read
// comes back from its packed form.
#include <cstring>
#include <optional>

#include "base/error.h"
#include "fuzz/input.h"
#include "transport/zmtp/zmtp_reader.h"

namespace {

using namespace distag;
using fuzz::check;

const std::string kHandshake = std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL", 16) + std::string(48, '\0') +
                               std::string("\4\x1c\5READY\x0bSocket-Type\0\0\0\6DEALER", 30);

struct Outcome {
  std::vector<Frames> messages;
  Status status = Status::kOk;
};

Outcome read(ZmtpReader& reader, const std::string& stream, size_t piece) {
  Outcome outcome;
  try {
    for (size_t at = 0; at < stream.size();) {
      const std::span<std::byte> room = reader.room();
      check(!room.empty());
      const size_t size = std::min({room.size(), piece, stream.size() - at});
      std::memcpy(room.data(), stream.data() + at, size);
      reader.add(size);
      at += size;
      while (auto frames = reader.next()) outcome.messages.push_back(std::move(*frames));
    }
  } catch (const Error& error) {
    outcome.status = error.status();
    check(outcome.status == Status::kProtocol || outcome.status == Status::kDenied);
  }
  return outcome;
}

void check_equal(const Frames& a, const Frames& b) {
  check(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    check(a[i].size() == b[i].size());
    check(a[i].size() == 0 || std::memcmp(a[i].data(), b[i].data(), a[i].size()) == 0);
  }
}

void check_packed(const Frames& frames) {
  ZmtpReader reader(ZmtpReader::Role::kAccepts);
  std::string stream = kHandshake;
  for (const Frame& piece : reader.pack(frames)) {
    stream.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  const Outcome outcome = read(reader, stream, stream.size());
  check(outcome.messages.size() == 1);
  check_equal(outcome.messages.front(), frames);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const uint8_t kinds = input.byte();
  const size_t piece = 1 + size_t{input.byte()} * (1 + input.byte());
  std::string stream = input.rest();
  const SocketKeys key{CurveKeyPair()};
  const bool has_key = (kinds & 1) != 0;
  if (!has_key && (kinds & 2) != 0) stream = kHandshake + stream;
  ZmtpReader in_pieces(ZmtpReader::Role::kAccepts, has_key ? &key : nullptr);
  const Outcome outcome = read(in_pieces, stream, piece);
  in_pieces.take_answer();
  if (has_key) return 0;  // whose handshake has random numbers
  ZmtpReader at_once(ZmtpReader::Role::kAccepts);
  const Outcome again = read(at_once, stream, stream.size());
  check(again.status == outcome.status && again.messages.size() == outcome.messages.size());
  check(at_once.is_ready() == in_pieces.is_ready());
  for (size_t i = 0; i < outcome.messages.size(); ++i) {
    check_equal(outcome.messages[i], again.messages[i]);
    check_packed(outcome.messages[i]);
  }
  return 0;
}
