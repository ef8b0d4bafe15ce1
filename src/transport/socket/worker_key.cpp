#include "transport/socket/worker_key.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "transport/socket/sodium.h"

namespace distag {

namespace {

constexpr size_t kKeyText = 40;
// Four bytes, most significant first, make five digits of base 85.
constexpr size_t kGroupBytes = 4;
constexpr size_t kGroupText = 5;
constexpr std::string_view kDigits =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
static_assert(kDigits.size() == 85 && kKeyText / kGroupText * kGroupBytes == sizeof(CurveKey));
constexpr std::string_view kBlanks = " \t\r";

// Takes the next word from a line.
std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

CurveKey parse_key(std::string_view text, const char* what) {
  CurveKey key{};
  bool is_key = text.size() == kKeyText;
  for (size_t group = 0; is_key && group < kKeyText / kGroupText; ++group) {
    uint64_t number = 0;
    for (const char digit : text.substr(group * kGroupText, kGroupText)) {
      const size_t value = kDigits.find(digit);
      is_key = is_key && value != std::string_view::npos;
      number = number * kDigits.size() + value;
    }
    is_key = is_key && number <= UINT32_MAX;
    for (size_t i = kGroupBytes; i > 0; --i, number >>= 8) {
      key[group * kGroupBytes + i - 1] = static_cast<uint8_t>(number);
    }
  }
  if (is_key && key == CurveKey{}) {
    fail(Status::kInvalidArgument, "{} is a key of zeros, which anybody has: make one by distag keygen --worker", what);
  }
  if (is_key) return key;
  fail(Status::kInvalidArgument, "{} is no key of 40 characters of Z85: make one by distag keygen --worker", what);
}

std::string print_key(const CurveKey& key) {
  std::string text(kKeyText, ' ');
  for (size_t group = 0; group < key.size() / kGroupBytes; ++group) {
    uint64_t number = 0;
    for (size_t i = 0; i < kGroupBytes; ++i) number = number << 8 | key[group * kGroupBytes + i];
    for (size_t i = kGroupText; i > 0; --i, number /= kDigits.size()) {
      text[group * kGroupText + i - 1] = kDigits[number % kDigits.size()];
    }
  }
  return text;
}

CurveKeyPair new_key_pair() {
  start_sodium();
  CurveKeyPair pair;
  fill_with_key_pair(pair);
  return pair;
}

CurveKeyPair pair_of(const CurveKey& secret_key) {
  start_sodium();
  CurveKeyPair pair;
  pair.secret_key = secret_key;
  if (sodium.crypto_scalarmult_base(pair.public_key.data(), secret_key.data()) != 0) {
    fail(Status::kInvalidArgument, "a secret key has no public key");
  }
  return pair;
}

KeyRing::Keys parse_key_list(std::string_view text) {
  KeyRing::Keys keys;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view name = next_word(line);
    if (name.empty() || name.front() == '#') continue;
    const std::string_view key = next_word(line);
    const std::string what = fmt::format("the key in line {}", number);
    if (!next_word(line).empty()) {
      fail(Status::kInvalidArgument, "line {} is not a name and a key", number);
    }
    if (!keys.emplace(name, parse_key(key, what.c_str())).second) {
      fail(Status::kInvalidArgument, "line {}: worker \"{}\" has a key already", number, name);
    }
  }
  return keys;
}

}  // namespace distag
