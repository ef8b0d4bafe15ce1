#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "wire/message.h"

namespace distag {

// A hash of what a call is: its name, attributes, and the dtypes, shapes and specs of its tensors.
class Fingerprint {
 public:
  Fingerprint& add(uint64_t number);
  Fingerprint& add(std::string_view text);
  Fingerprint& add(std::span<const std::byte> elements);  // eight bytes at a time
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0x9E3779B97F4A7C15u;
};

// An order of calls on a mesh, as this member makes them: numbered and hashed, with the last ones remembered.
class Line {
 public:
  using Made = wire::Calls::Made;
  static constexpr size_t kRemembered = 64;

  // Returns the number of the call: 1 for the first, then one more each time.
  uint64_t begin_call(std::string text, uint64_t fingerprint);
  uint64_t last() const { return last_; }
  uint64_t hash() const { return hash_; }  // over all calls so far
  // nullptr: not made yet, or too long ago.
  const Made* find(uint64_t number) const;
  const std::deque<Made>& calls() const { return calls_; }

 private:
  uint64_t last_ = 0;
  uint64_t hash_ = 0;
  std::deque<Made> calls_;
};

// A member and its last calls, for the message of a divergence.
struct Program {
  std::string member;  // `worker "w1" (rank 1)`
  std::deque<wire::Calls::Made> calls;
};

// How the programs of two members differ: the first call with unequal hashes, and the last equal one. Both members make
// the same text when they pass the programs in the same order.
std::string describe_divergence(const Program& a, const Program& b);

}  // namespace distag
