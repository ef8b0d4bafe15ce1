#include "transport/zmq/zmtp_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "transport/zmq/frame_block.h"

namespace distag {
namespace {

constexpr size_t kBufferBytes = 16u << 10;
// From this size a frame has a block of its own. With its header it always fits into the buffer below that.
constexpr size_t kLargeBytes = 8u << 10;
// All frames of a message together: its payload and its header.
constexpr size_t kMaxMessageTotal = 2 * kMaxMessageBytes;
constexpr size_t kMaxFrames = 1u << 16;

constexpr size_t kGreetingBytes = 64;
constexpr size_t kSignatureBytes = 10;
constexpr size_t kVersionAt = 10;
constexpr size_t kMechanismAt = 12;
constexpr size_t kServerAt = 32;  // whether the mechanism has a side that serves, and this is it
constexpr std::string_view kNull("NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
constexpr std::string_view kCurve("CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
constexpr std::string_view kError400(
    "\x05"
    "ERROR"
    "\x03"
    "400",
    10);
constexpr std::string_view kReady("\x05READY", 6);

constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;

constexpr size_t align_up(size_t size) { return (size + kFrameAlignment - 1) & ~(kFrameAlignment - 1); }

[[noreturn]] void refuse(const char* what) { fail(Status::kProtocol, "a connection that speaks no ZMTP: {}", what); }

uint64_t read_big_endian(const std::byte* bytes, size_t count) {
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i) number = number << 8 | static_cast<uint8_t>(bytes[i]);
  return number;
}

void append(std::vector<std::byte>& out, std::string_view text) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), bytes, bytes + text.size());
}

void append_header(std::vector<std::byte>& out, size_t size, bool more) {
  const bool is_long = size > 255;
  out.push_back(static_cast<std::byte>((more ? kMore : 0) | (is_long ? kLong : 0)));
  for (size_t left = is_long ? 8 : 1; left > 0; --left) {
    out.push_back(static_cast<std::byte>(static_cast<uint64_t>(size) >> (8 * (left - 1))));
  }
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Properties: a name after its length in one byte, a value after its length in four.
bool is_of_dealer(std::string_view body) {
  bool is_dealer = false;
  while (!body.empty()) {
    const size_t name_size = static_cast<uint8_t>(body[0]);
    if (body.size() < 1 + name_size + 4) return false;
    const std::string_view name = body.substr(1, name_size);
    body.remove_prefix(1 + name_size);
    const uint64_t value_size = read_big_endian(reinterpret_cast<const std::byte*>(body.data()), 4);
    body.remove_prefix(4);
    if (body.size() < value_size) return false;
    if (name == "Socket-Type") is_dealer = body.substr(0, value_size) == "DEALER";
    body.remove_prefix(value_size);
  }
  return is_dealer;
}

void append_command(std::vector<std::byte>& out, std::string_view body) {
  append_header(out, body.size(), false);
  out[out.size() - (body.size() > 255 ? 9 : 2)] |= std::byte{kCommand};
  append(out, body);
}

std::vector<std::byte> make_greeting(std::string_view mechanism) {
  std::vector<std::byte> greeting(kGreetingBytes);
  greeting[0] = std::byte{0xff};
  greeting[kSignatureBytes - 1] = std::byte{0x7f};
  greeting[kVersionAt] = std::byte{3};
  for (size_t i = 0; i < mechanism.size(); ++i) greeting[kMechanismAt + i] = static_cast<std::byte>(mechanism[i]);
  if (mechanism == kCurve) greeting[kServerAt] = std::byte{1};
  return greeting;
}

constexpr std::string_view kReadyOfRouter(
    "\x05READY"
    "\x0bSocket-Type\0\0\0\x06ROUTER"
    "\x08Identity\0\0\0\0",
    41);

}  // namespace

std::vector<std::byte> zmtp_denial() {
  std::vector<std::byte> denial;
  append_command(denial, kError400);
  return denial;
}

ZmtpReader::ZmtpReader(const SocketKeys* keys)
    : buffer_(kBufferBytes), answer_(make_greeting(keys != nullptr ? kCurve : kNull)) {
  if (keys != nullptr) {
    curve_ = std::make_unique<CurveServer>(*keys);
  } else {
    append_command(answer_, kReadyOfRouter);
  }
}

std::vector<std::byte> ZmtpReader::pack(const Frames& frames) {
  size_t total = 0;
  for (const Frame& frame : frames) total += frame.size() + 9 + (curve_ ? CurveServer::kOverhead : 0);
  std::vector<std::byte> out;
  out.reserve(total);
  for (size_t i = 0; i < frames.size(); ++i) {
    const bool more = i + 1 < frames.size();
    if (curve_) {
      append_header(out, frames[i].size() + CurveServer::kOverhead, false);
      curve_->seal({frames[i].data(), frames[i].size()}, more, out);
    } else {
      append_header(out, frames[i].size(), more);
      append(out, text_of({frames[i].data(), frames[i].size()}));
    }
  }
  return out;
}

std::span<std::byte> ZmtpReader::room() {
  if (in_large_) return std::span(parts_.back().own_block.get(), parts_.back().size).subspan(large_filled_);
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  return std::span(buffer_).subspan(end_);
}

void ZmtpReader::add(size_t count) {
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

// Refuses what is none as soon as it can be told.
bool ZmtpReader::take_greeting() {
  const std::span<const std::byte> bytes = buffered();
  if (!bytes.empty() && bytes[0] != std::byte{0xff}) refuse("no signature");
  if (bytes.size() >= kSignatureBytes && bytes[kSignatureBytes - 1] != std::byte{0x7f}) refuse("no signature");
  if (bytes.size() > kVersionAt && bytes[kVersionAt] < std::byte{3}) refuse("an old version");
  if (bytes.size() < kGreetingBytes) return false;
  const std::string_view mechanism = text_of(bytes.subspan(kMechanismAt, kNull.size()));
  if (mechanism != (curve_ ? kCurve : kNull)) {
    if (curve_) fail(Status::kDenied, "it has no key");
    fail(Status::kDenied, "it has a key, and this worker has none");
  }
  begin_ += kGreetingBytes;
  stage_ = Stage::kHandshake;
  return true;
}

// READY of the mechanism NULL; of CURVE its two commands, each with an answer.
bool ZmtpReader::take_handshake() {
  while (stage_ == Stage::kHandshake) {
    const std::optional<Header> header = peek_header();
    if (!header) return false;
    if (!header->is_command || header->size >= kLargeBytes) refuse("no handshake");
    if (buffered().size() < header->bytes + header->size) return false;
    const std::span<const std::byte> body = buffered().subspan(header->bytes, header->size);
    std::string_view properties;
    if (curve_) {
      append_command(answer_, text_of(curve_->answer(body)));
      properties = curve_->properties();
    } else {
      if (!text_of(body).starts_with(kReady)) refuse("no READY");
      properties = text_of(body).substr(kReady.size());
    }
    if (!curve_ || curve_->is_ready()) {
      if (!is_of_dealer(properties)) refuse("no READY of a DEALER");
      stage_ = Stage::kMessages;
    }
    begin_ += header->bytes + header->size;
  }
  return true;
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
  if (size > kMaxMessageBytes + (curve_ ? CurveServer::kOverhead : 0)) refuse("a frame that is too large");
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
    if (header->is_command) {  // none that means anything here
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

// False for a command, which means nothing here.
bool ZmtpReader::take_box(std::span<const std::byte> boxed, bool& is_last) {
  CurveServer::Opened opened = curve_->open(boxed);
  if (opened.is_command) return false;
  parts_.push_back({0, 0, nullptr, std::move(opened.body)});
  is_last = !opened.more;
  return true;
}

// Takes what of the frame is in the buffer already.
void ZmtpReader::begin_large(size_t size) {
  parts_.push_back({0, size, make_frame_block(size), {}});
  large_filled_ = std::min(size, buffered().size());
  std::memcpy(parts_.back().own_block.get(), buffered().data(), large_filled_);
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
    if (curve_) {
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
