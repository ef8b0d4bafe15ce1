#include "transport/zmtp/curve_boxes.h"

#include <sodium.h>

#include <cstring>

#include "base/error.h"
#include "transport/socket/frame_block.h"
#include "transport/socket/sodium.h"

namespace distag {
namespace {

// MESSAGE: name, a short nonce, and a box with flags and the frame.
constexpr std::string_view kMessage("\x07MESSAGE", 8);
constexpr size_t kNonceAt = 8;
constexpr size_t kBoxAt = kNonceAt + CurveBoxes::kShortNonce;
constexpr size_t kFlags = 1;
constexpr uint8_t kMore = 1;
constexpr uint8_t kCommand = 2;

static_assert(CurveBoxes::kOverhead == kBoxAt + CurveBoxes::kMac + kFlags);
static_assert(sizeof(CurveKey) == CurveBoxes::kKey && crypto_box_PUBLICKEYBYTES == CurveBoxes::kKey &&
              crypto_box_SECRETKEYBYTES == CurveBoxes::kKey && crypto_box_BEFORENMBYTES == CurveBoxes::kKey &&
              crypto_box_MACBYTES == CurveBoxes::kMac && crypto_box_NONCEBYTES == sizeof(CurveBoxes::Nonce));

// The prefix of the nonces of messages from that side.
std::string_view prefix_of(CurveBoxes::Side side) {
  return side == CurveBoxes::Side::kServer ? "CurveZMQMESSAGES" : "CurveZMQMESSAGEC";
}

uint64_t number_of(const uint8_t* short_nonce) {
  uint64_t number = 0;
  for (size_t i = 0; i < CurveBoxes::kShortNonce; ++i) number = number << 8 | short_nonce[i];
  return number;
}

}  // namespace

namespace curve {

void refuse(const char* what) { fail(Status::kProtocol, "it speaks no CURVE: {}", what); }

bool has_name(std::span<const std::byte> command, std::string_view name) {
  return command.size() >= name.size() && std::memcmp(command.data(), name.data(), name.size()) == 0;
}

}  // namespace curve

CurveBoxes::~CurveBoxes() { wipe(shared_); }

CurveBoxes::Nonce CurveBoxes::nonce_of(std::string_view prefix, const uint8_t* rest) {
  Nonce nonce{};
  std::memcpy(nonce.data(), prefix.data(), prefix.size());
  std::memcpy(nonce.data() + prefix.size(), rest, nonce.size() - prefix.size());
  return nonce;
}

void CurveBoxes::agree(const CurveKey& theirs, const CurveKey& own_secret) {
  if (sodium.crypto_box_beforenm(shared_.data(), theirs.data(), own_secret.data()) != 0)
    curve::refuse("an invalid key");
}

bool CurveBoxes::open(const Nonce& nonce, std::span<const uint8_t> box, uint8_t* plain) const {
  return sodium.crypto_box_open_easy_afternm(plain, box.data(), box.size(), nonce.data(), shared_.data()) == 0;
}

void CurveBoxes::seal(const Nonce& nonce, std::span<const uint8_t> plain, uint8_t* box) const {
  sodium.crypto_box_easy_afternm(box, plain.data(), plain.size(), nonce.data(), shared_.data());
}

void CurveBoxes::take_number(const uint8_t* short_nonce) {
  const uint64_t number = number_of(short_nonce);
  if (number <= last_taken_) curve::refuse("a number that was there before");
  last_taken_ = number;
}

std::array<uint8_t, CurveBoxes::kShortNonce> CurveBoxes::next_number() {
  std::array<uint8_t, kShortNonce> bytes{};
  uint64_t number = ++last_given_;
  for (size_t i = kShortNonce; i > 0; --i, number >>= 8) bytes[i - 1] = static_cast<uint8_t>(number);
  return bytes;
}

CurveBoxes::Opened CurveBoxes::open_message(std::span<const std::byte> boxed) {
  if (boxed.size() < kOverhead || !curve::has_name(boxed, kMessage)) curve::refuse("a frame in no box");
  const uint8_t* const bytes = curve::bytes_of(boxed);
  // Reject gaps: an attacker in between could leave out the box of a frame.
  if (number_of(bytes + kNonceAt) > last_taken_ + 1) curve::refuse("a number without the one before it");
  take_number(bytes + kNonceAt);
  const size_t plain_size = boxed.size() - kBoxAt - kMac;
  // The flags lie right before the boundary at which the bytes of the frame begin.
  const std::shared_ptr<std::byte> block = make_frame_block(kFrameAlignment + plain_size - kFlags);
  std::byte* const plain = block.get() + kFrameAlignment - kFlags;
  const Nonce nonce = nonce_of(prefix_of(side_ == Side::kServer ? Side::kClient : Side::kServer), bytes + kNonceAt);
  if (!open(nonce, {bytes + kBoxAt, plain_size + kMac}, reinterpret_cast<uint8_t*>(plain))) {
    curve::refuse("a box that does not open");
  }
  const auto flags = static_cast<uint8_t>(plain[0]);
  Opened opened;
  opened.more = (flags & kMore) != 0;
  opened.is_command = (flags & kCommand) != 0;
  if (plain_size > kFlags) opened.body = Frame(plain + kFlags, plain_size - kFlags, block);
  return opened;
}

std::byte* CurveBoxes::seal_message(std::span<const std::byte> body, bool more, bool is_command, std::byte* out) {
  const auto short_nonce = next_number();
  const Nonce nonce = nonce_of(prefix_of(side_), short_nonce.data());
  std::memcpy(out, kMessage.data(), kMessage.size());
  std::memcpy(out + kNonceAt, short_nonce.data(), short_nonce.size());
  auto* const mac = reinterpret_cast<uint8_t*>(out + kBoxAt);
  uint8_t* const plain = mac + kMac;
  plain[0] = static_cast<uint8_t>((more ? kMore : 0) | (is_command ? kCommand : 0));
  if (!body.empty()) std::memcpy(plain + kFlags, body.data(), body.size());
  // Encrypts in place.
  sodium.crypto_box_detached_afternm(plain, mac, plain, kFlags + body.size(), nonce.data(), shared_.data());
  return out + kOverhead + body.size();
}

}  // namespace distag
