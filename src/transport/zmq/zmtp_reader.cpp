#include "transport/zmq/zmtp_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

constexpr size_t kBufferBytes = 16u << 10;
constexpr size_t kAlignment = 64;
// From this size a frame has a block of its own. With its header it always fits into the buffer below that.
constexpr size_t kLargeBytes = 8u << 10;
// All frames of a message together: its payload and its header.
constexpr size_t kMaxMessageTotal = 2 * kMaxMessageBytes;
constexpr size_t kMaxFrames = 1u << 16;

constexpr size_t kGreetingBytes = 64;
constexpr size_t kSignatureBytes = 10;
constexpr size_t kVersionAt = 10;
constexpr size_t kMechanismAt = 12;
constexpr std::string_view kMechanism("NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
constexpr std::string_view kReady("\x05READY", 6);

constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;

constexpr size_t align_up(size_t size) { return (size + kAlignment - 1) & ~(kAlignment - 1); }

[[noreturn]] void refuse(const char* what) { fail(Status::kProtocol, "a connection that speaks no ZMTP: {}", what); }

std::shared_ptr<std::byte> make_block(size_t size) {
  return {static_cast<std::byte*>(::operator new(size, std::align_val_t(kAlignment))),
          [](std::byte* bytes) { ::operator delete(bytes, std::align_val_t(kAlignment)); }};
}

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

// Properties of READY: a name after its length in one byte, a value after its length in four.
bool is_ready_of_dealer(std::string_view body) {
  if (!body.starts_with(kReady)) return false;
  body.remove_prefix(kReady.size());
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

constexpr size_t kReadyBytes = 43;
constexpr size_t kHelloBytes = kGreetingBytes + kReadyBytes;

constexpr std::array<std::byte, kHelloBytes> make_hello() {
  constexpr std::string_view kCommandOfRouter(
      "\x04\x29\x05READY"
      "\x0bSocket-Type\0\0\0\x06ROUTER"
      "\x08Identity\0\0\0\0",
      kReadyBytes);
  std::array<std::byte, kHelloBytes> hello{};
  hello[0] = std::byte{0xff};
  hello[kSignatureBytes - 1] = std::byte{0x7f};
  hello[kVersionAt] = std::byte{3};
  for (size_t i = 0; i < kMechanism.size(); ++i) hello[kMechanismAt + i] = static_cast<std::byte>(kMechanism[i]);
  for (size_t i = 0; i < kCommandOfRouter.size(); ++i) {
    hello[kGreetingBytes + i] = static_cast<std::byte>(kCommandOfRouter[i]);
  }
  return hello;
}

constexpr auto kHello = make_hello();

}  // namespace

std::span<const std::byte> zmtp_hello() { return kHello; }

std::vector<std::byte> zmtp_message(const Frames& frames) {
  size_t total = 0;
  for (const Frame& frame : frames) total += frame.size() + 9;
  std::vector<std::byte> out;
  out.reserve(total);
  for (size_t i = 0; i < frames.size(); ++i) {
    append_header(out, frames[i].size(), i + 1 < frames.size());
    append(out, text_of({frames[i].data(), frames[i].size()}));
  }
  return out;
}

ZmtpReader::ZmtpReader() : buffer_(kBufferBytes) {}

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
  if (stage_ == Stage::kHandshake && !take_ready()) return std::nullopt;
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
  if (text_of(bytes.subspan(kMechanismAt, kMechanism.size())) != kMechanism) refuse("another mechanism than NULL");
  begin_ += kGreetingBytes;
  stage_ = Stage::kHandshake;
  return true;
}

bool ZmtpReader::take_ready() {
  const std::optional<Header> header = peek_header();
  if (!header) return false;
  if (!header->is_command || header->size >= kLargeBytes) refuse("no READY");
  if (buffered().size() < header->bytes + header->size) return false;
  if (!is_ready_of_dealer(text_of(buffered().subspan(header->bytes, header->size)))) refuse("no READY of a DEALER");
  begin_ += header->bytes + header->size;
  stage_ = Stage::kMessages;
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
  if (size > kMaxMessageBytes) refuse("a frame that is too large");
  header.size = size;
  return header;
}

// True when a frame of a message was taken.
bool ZmtpReader::take_frame(bool& is_last) {
  if (in_large_) {
    if (large_filled_ < parts_.back().size) return false;
    in_large_ = false;
    is_last = !large_has_more_;
    return true;
  }
  for (;;) {
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
    is_last = !header->more;
    if (is_large) {
      large_has_more_ = header->more;
      begin_large(header->size);
      return take_frame(is_last);
    }
    parts_.push_back({small_.size(), header->size, nullptr});
    append(small_, text_of(buffered().first(header->size)));
    small_.resize(align_up(small_.size()));
    begin_ += header->size;
    return true;
  }
}

// Takes what of the frame is in the buffer already.
void ZmtpReader::begin_large(size_t size) {
  parts_.push_back({0, size, make_block(size)});
  large_filled_ = std::min(size, buffered().size());
  std::memcpy(parts_.back().own_block.get(), buffered().data(), large_filled_);
  begin_ += large_filled_;
  in_large_ = true;
}

Frames ZmtpReader::finish_message() {
  std::shared_ptr<std::byte> block;
  if (!small_.empty()) {
    block = make_block(small_.size());
    std::memcpy(block.get(), small_.data(), small_.size());
  }
  Frames frames;
  frames.reserve(parts_.size());
  for (Part& part : parts_) {
    if (part.own_block) {
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
