#include "transport/zmq/worker_key.h"

#include <sodium.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace distag {

namespace {

constexpr size_t kKeyText = 40;
constexpr std::string_view kBlanks = " \t\r";

void start_sodium() {
  if (sodium_init() < 0) fail(Status::kUnsupported, "libsodium finds no source of random numbers on this system");
}

// The next word of a line, which it is taken from.
std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

CurveKey parse_key(std::string_view text, const char* what) {
  CurveKey key{};
  std::array<char, kKeyText + 1> given{};
  if (text.size() == kKeyText) {
    std::memcpy(given.data(), text.data(), kKeyText);
    // Not every text of that length is one: a group of five may stand for a number of more than 32 bits.
    if (zmq_z85_decode(key.data(), given.data()) != nullptr && print_key(key) == text) return key;
  }
  fail(Status::kInvalidArgument, "{} is no key of 40 characters of Z85: make one by distag keygen --worker", what);
}

std::string print_key(const CurveKey& key) {
  std::array<char, kKeyText + 1> text{};
  if (zmq_z85_encode(text.data(), key.data(), key.size()) == nullptr) {
    fail(Status::kInternal, "a key cannot be written: {}", zmq_strerror(zmq_errno()));
  }
  return {text.data(), kKeyText};
}

CurveKeyPair new_key_pair() {
  start_sodium();
  CurveKeyPair pair;
  crypto_box_keypair(pair.public_key.data(), pair.secret_key.data());
  return pair;
}

CurveKeyPair pair_of(const CurveKey& secret_key) {
  start_sodium();
  CurveKeyPair pair;
  pair.secret_key = secret_key;
  if (crypto_scalarmult_base(pair.public_key.data(), secret_key.data()) != 0) {
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
