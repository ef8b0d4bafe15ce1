#include "transport/zmtp/zmtp_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "transport/socket/findings.h"
#include "transport/socket/frame_block.h"
#include "transport/zmtp/curve_client.h"
#include "transport/zmtp/curve_server.h"

namespace distag {
namespace {

constexpr size_t kBufferBytes = 16u << 10;
// From this size on a frame has a block of its own. A smaller one, with its header, always fits into the buffer.
constexpr size_t kLargeBytes = 8u << 10;
// The limit for all frames of a message together: its payload and its header.
constexpr size_t kMaxMessageTotal = 2 * kMaxMessageBytes;
constexpr size_t kMaxFrames = 1u << 16;

constexpr size_t kGreetingBytes = 64;
constexpr size_t kSignatureBytes = 10;
constexpr size_t kVersionAt = 10;
constexpr size_t kMechanismAt = 12;
constexpr size_t kServerAt = 32;  // 1 for the serving side, if the mechanism has one
constexpr std::string_view kNull("NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
constexpr std::string_view kCurve("CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
constexpr std::string_view kError400(
    "\x05"
    "ERROR"
    "\x03"
    "400",
    10);
constexpr std::string_view kError(
    "\x05"
    "ERROR",
    6);
constexpr std::string_view kReady("\x05READY", 6);
constexpr std::string_view kPing("\x04PING", 5);
constexpr std::string_view kPong("\x04PONG", 5);
constexpr size_t kPingContextAt = kPing.size() + 2;  // behind the time to live
constexpr size_t kMostContext = 16;
constexpr size_t kMostAnswers = 1024;

constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;

constexpr size_t align_up(size_t size) { return (size + kFrameAlignment - 1) & ~(kFrameAlignment - 1); }

[[noreturn]] void refuse(const std::string& what) { fail(Status::kProtocol, "it speaks no ZMTP: {}", what); }

uint64_t read_big_endian(const std::byte* bytes, size_t count) {
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i) number = number << 8 | static_cast<uint8_t>(bytes[i]);
  return number;
}

void append(std::vector<std::byte>& out, std::string_view text) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), bytes, bytes + text.size());
}

constexpr size_t kMostHeader = 9;

constexpr size_t header_bytes(size_t size) { return size > 255 ? kMostHeader : 2; }

// Gives the end of the written bytes.
std::byte* write_header(std::byte* out, size_t size, uint8_t flags) {
  const size_t bytes = header_bytes(size);
  *out++ = static_cast<std::byte>(flags | (bytes == kMostHeader ? kLong : 0));
  for (size_t left = bytes - 1; left > 0; --left) {
    *out++ = static_cast<std::byte>(static_cast<uint64_t>(size) >> (8 * (left - 1)));
  }
  return out;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Properties: a name after its length in one byte, a value after its length in four.
bool is_of_type(std::string_view type, std::string_view body) {
  bool is_same = false;
  while (!body.empty()) {
    const size_t name_size = static_cast<uint8_t>(body[0]);
    if (body.size() < 1 + name_size + 4) return false;
    const std::string_view name = body.substr(1, name_size);
    body.remove_prefix(1 + name_size);
    const uint64_t value_size = read_big_endian(reinterpret_cast<const std::byte*>(body.data()), 4);
    body.remove_prefix(4);
    if (body.size() < value_size) return false;
    if (name == "Socket-Type") is_same = body.substr(0, value_size) == type;
    body.remove_prefix(value_size);
  }
  return is_same;
}

void append_command(std::vector<std::byte>& out, std::string_view body) {
  std::array<std::byte, kMostHeader> header{};
  std::byte* const end = write_header(header.data(), body.size(), kCommand);
  out.insert(out.end(), header.data(), end);
  append(out, body);
}

std::vector<std::byte> make_greeting(std::string_view mechanism, bool is_server) {
  std::vector<std::byte> greeting(kGreetingBytes);
  greeting[0] = std::byte{0xff};
  greeting[kSignatureBytes - 1] = std::byte{0x7f};
  greeting[kVersionAt] = std::byte{3};
  for (size_t i = 0; i < mechanism.size(); ++i) greeting[kMechanismAt + i] = static_cast<std::byte>(mechanism[i]);
  if (mechanism == kCurve && is_server) greeting[kServerAt] = std::byte{1};
  return greeting;
}

constexpr std::string_view kReadyOfRouter(
    "\x05READY"
    "\x0bSocket-Type\0\0\0\x06ROUTER"
    "\x08Identity\0\0\0\0",
    41);
constexpr std::string_view kReadyOfDealer(
    "\x05READY"
    "\x0bSocket-Type\0\0\0\x06"
    "DEALER"
    "\x08Identity\0\0\0\0",
    41);

// ERROR, with three digits by which the other side refuses the client; read as libzmq does.
bool is_denial(std::string_view command) {
  const std::string_view reason = command.substr(std::min(kError.size() + 1, command.size()));
  return reason == "300" || reason == "400" || reason == "500";
}

}  // namespace

std::vector<std::byte> zmtp_denial() {
  std::vector<std::byte> denial;
  append_command(denial, kError400);
  return denial;
}

ZmtpReader::ZmtpReader(Role role, const SocketKeys* keys)
    : role_(role),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)),
      answer_(make_greeting(keys != nullptr ? kCurve : kNull, role == Role::kAccepts)) {
  // The first command goes with the greeting, without waiting: the other side's own greeting would show a refusal.
  if (keys == nullptr) {
    append_command(answer_, role == Role::kAccepts ? kReadyOfRouter : kReadyOfDealer);
  } else if (role == Role::kAccepts) {
    curve_ = std::make_unique<CurveServer>(*keys);
  } else {
    auto client = std::make_unique<CurveClient>(*keys);
    append_command(answer_, text_of(client->hello()));
    curve_ = std::move(client);
  }
}

// The size of the bytes that are copied.
size_t ZmtpReader::packed_size(const Frames& frames) const {
  size_t total = 0;
  for (const Frame& frame : frames) {
    const size_t size = frame.size() + (curve_ ? CurveBoxes::kOverhead : 0);
    const bool is_copied = curve_ || frame.size() < kZeroCopyBytes;
    total += header_bytes(size) + (is_copied ? size : 0);
  }
  return total;
}

Frames ZmtpReader::pack(const Frames& frames) {
  const auto block = std::make_shared_for_overwrite<std::byte[]>(packed_size(frames));
  Frames pieces;
  pieces.reserve(1);
  std::byte* begin = block.get();
  std::byte* at = begin;
  for (size_t i = 0; i < frames.size(); ++i) {
    const Frame& frame = frames[i];
    const bool more = i + 1 < frames.size();
    if (curve_) {
      at = write_header(at, frame.size() + CurveBoxes::kOverhead, 0);
      at = curve_->boxes().seal_message({frame.data(), frame.size()}, more, false, at);
      continue;
    }
    at = write_header(at, frame.size(), more ? kMore : 0);
    if (frame.size() < kZeroCopyBytes) {
      if (frame.size() > 0) std::memcpy(at, frame.data(), frame.size());
      at += frame.size();
      continue;
    }
    pieces.emplace_back(begin, static_cast<size_t>(at - begin), block);
    pieces.push_back(frame);
    begin = at;
  }
  if (at != begin) pieces.emplace_back(begin, static_cast<size_t>(at - begin), block);
  return pieces;
}

std::span<std::byte> ZmtpReader::room() {
  if (in_large_ && parts_.back().opened.is_lost()) {
    return std::span(buffer_.get(), std::min(kBufferBytes, parts_.back().size - large_filled_));
  }
  if (in_large_) return std::span(parts_.back().own_block.get(), parts_.back().size).subspan(large_filled_);
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  return std::span(buffer_.get(), kBufferBytes).subspan(end_);
}

void ZmtpReader::add(size_t count) {
  heard_bytes_ += count;
  if (in_large_) {
    large_filled_ += count;
  } else {
    end_ += count;
  }
}

std::optional<Frames> ZmtpReader::next() {
  if (stage_ == Stage::kGreeting && !take_greeting()) return std::nullopt;
  if (stage_ == Stage::kHandshake && !take_handshake()) return std::nullopt;
  for (bool is_last = false; take_frame(is_last);) {
    if (is_last) return finish_message();
  }
  return std::nullopt;
}

// Throws for an invalid greeting as soon as its bytes show that.
bool ZmtpReader::take_greeting() {
  const std::span<const std::byte> bytes = buffered();
  const bool has_signature = (bytes.empty() || bytes[0] == std::byte{0xff}) &&
                             (bytes.size() < kSignatureBytes || bytes[kSignatureBytes - 1] == std::byte{0x7f});
  if (!has_signature) refuse(findings::begins_with(bytes));
  if (bytes.size() > kVersionAt && bytes[kVersionAt] < std::byte{3}) refuse("an old version");
  if (bytes.size() < kGreetingBytes) return false;
  const std::string_view mechanism = text_of(bytes.subspan(kMechanismAt, kNull.size()));
  if (mechanism != (curve_ ? kCurve : kNull)) {
    if (curve_) fail(Status::kDenied, "it has no key");
    fail(Status::kDenied, "it has a key, and this worker has none");
  }
  minor_version_ = std::to_integer<uint8_t>(bytes[kVersionAt + 1]);
  begin_ += kGreetingBytes;
  stage_ = Stage::kHandshake;
  return true;
}

// Takes READY of the mechanism NULL, or the commands of CURVE.
bool ZmtpReader::take_handshake() {
  while (stage_ == Stage::kHandshake) {
    const std::optional<Header> header = peek_header();
    if (!header) return false;
    if (!header->is_command || header->size >= kLargeBytes) refuse("no handshake");
    if (buffered().size() < header->bytes + header->size) return false;
    const std::string_view properties = take_handshake_command(buffered().subspan(header->bytes, header->size));
    if (!curve_ || curve_->is_ready()) {
      if (!is_of_type(role_ == Role::kAccepts ? "DEALER" : "ROUTER", properties)) {
        refuse("no READY of the type that belongs there");
      }
      stage_ = Stage::kMessages;
    }
    begin_ += header->bytes + header->size;
  }
  return true;
}

// Gives the properties, once they have come.
std::string_view ZmtpReader::take_handshake_command(std::span<const std::byte> body) {
  const std::string_view text = text_of(body);
  if (role_ == Role::kDials && text.starts_with(kError)) {
    if (is_denial(text)) fail(Status::kDenied, "it does not let this side in");
    refuse("an error that means nothing here");
  }
  if (!curve_) {
    if (!text.starts_with(kReady)) refuse("no READY");
    return text.substr(kReady.size());
  }
  const std::vector<std::byte> answer = curve_->answer(body);
  if (!answer.empty()) append_command(answer_, text_of(answer));
  return curve_->properties();
}

// A PING is answered with its context, unless too many answers wait; other commands are ignored after the handshake.
void ZmtpReader::take_command(std::span<const std::byte> body) {
  const std::string_view text = text_of(body);
  if (!text.starts_with(kPing) || text.size() < kPingContextAt || text.size() > kPingContextAt + kMostContext) return;
  if (answer_.size() > kMostAnswers) return;
  const std::string pong = std::string(kPong) + std::string(text.substr(kPingContextAt));
  if (!curve_) return append_command(answer_, pong);
  std::array<std::byte, kMostHeader + CurveBoxes::kOverhead + kPong.size() + kMostContext> boxed{};
  std::byte* const at = write_header(boxed.data(), CurveBoxes::kOverhead + pong.size(), 0);
  const std::span<const std::byte> plain(reinterpret_cast<const std::byte*>(pong.data()), pong.size());
  std::byte* const end = curve_->boxes().seal_message(plain, false, true, at);
  answer_.insert(answer_.end(), boxed.data(), end);
}

std::optional<ZmtpReader::Header> ZmtpReader::peek_header() const {
  const std::span<const std::byte> bytes = buffered();
  if (bytes.empty()) return std::nullopt;
  const auto flags = static_cast<uint8_t>(bytes[0]);
  const bool is_long = (flags & kLong) != 0;
  Header header;
  header.more = (flags & kMore) != 0;
  header.is_command = (flags & kCommand) != 0;
  header.bytes = is_long ? 9 : 2;
  if (flags > (kMore | kLong | kCommand) || (header.is_command && header.more)) refuse("a frame of an unknown kind");
  if (bytes.size() < header.bytes) return std::nullopt;
  const uint64_t size = read_big_endian(bytes.data() + 1, header.bytes - 1);
  if (size > kMaxMessageBytes + (curve_ ? CurveBoxes::kOverhead : 0)) refuse("a frame that is too large");
  header.size = size;
  return header;
}

// True when a frame of a message was taken.
bool ZmtpReader::take_frame(bool& is_last) {
  for (;;) {
    if (in_large_) {
      if (large_filled_ < parts_.back().size) return false;
      in_large_ = false;
      if (!curve_) {
        is_last = !large_has_more_;
        return true;
      }
      const Part boxed = std::move(parts_.back());
      parts_.pop_back();
      if (take_box({boxed.own_block.get(), boxed.size}, is_last)) return true;
      continue;
    }
    const std::optional<Header> header = peek_header();
    if (!header) return false;
    if (header->is_command && header->size >= kLargeBytes) refuse("a command that is too large");
    const bool is_large = header->size >= kLargeBytes;
    if (!is_large && buffered().size() < header->bytes + header->size) return false;
    begin_ += header->bytes;
    if (header->is_command) {
      if (curve_) refuse("a command in no box");
      take_command(buffered().first(header->size));
      begin_ += header->size;
      continue;
    }
    message_bytes_ += header->size;
    if (message_bytes_ > kMaxMessageTotal || parts_.size() >= kMaxFrames) refuse("a message that is too large");
    if (is_large) {
      large_has_more_ = header->more;
      begin_large(header->size);
      continue;
    }
    const std::span<const std::byte> body = buffered().first(header->size);
    begin_ += header->size;
    if (curve_) {
      if (take_box(body, is_last)) return true;
      continue;
    }
    parts_.push_back({small_.size(), body.size(), nullptr, {}});
    append(small_, text_of(body));
    small_.resize(align_up(small_.size()));
    is_last = !header->more;
    return true;
  }
}

// False for a command.
bool ZmtpReader::take_box(std::span<const std::byte> boxed, bool& is_last) {
  CurveBoxes::Opened opened = curve_->boxes().open_message(boxed);
  if (opened.is_command) {
    message_bytes_ -= boxed.size();  // a command is no part of a message
    take_command({opened.body.data(), opened.body.size()});
    return false;
  }
  parts_.push_back({0, 0, nullptr, std::move(opened.body)});
  is_last = !opened.more;
  return true;
}

// Takes the bytes of the frame that are in the buffer already. Without memory the frame is lost. The first frame has to
// be there, as it says what the message is, and a box, as it has to be opened.
void ZmtpReader::begin_large(size_t size) {
  parts_.push_back({0, size, nullptr, {}});
  try {
    parts_.back().own_block = make_frame_block(size);
  } catch (const std::bad_alloc&) {
    if (curve_ || parts_.size() == 1) throw;
    parts_.back().opened = Frame::lost(size);
  }
  large_filled_ = std::min(size, buffered().size());
  if (parts_.back().own_block) std::memcpy(parts_.back().own_block.get(), buffered().data(), large_filled_);
  begin_ += large_filled_;
  in_large_ = true;
}

Frames ZmtpReader::finish_message() {
  std::shared_ptr<std::byte> block;
  if (!small_.empty()) {
    block = make_frame_block(small_.size());
    std::memcpy(block.get(), small_.data(), small_.size());
  }
  Frames frames;
  frames.reserve(parts_.size());
  for (Part& part : parts_) {
    if (curve_ || part.opened.is_lost()) {
      frames.push_back(std::move(part.opened));
    } else if (part.own_block) {
      const std::byte* const data = part.own_block.get();
      frames.emplace_back(data, part.size, std::move(part.own_block));
    } else if (part.size == 0) {
      frames.emplace_back();
    } else {
      frames.emplace_back(block.get() + part.offset, part.size, block);
    }
  }
  parts_.clear();
  small_.clear();
  message_bytes_ = 0;
  return frames;
}

}  // namespace distag
