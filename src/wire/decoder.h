#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/violation.h"
#include "wire/message.h"
#include "wire/payload.h"

namespace flatbuffers {
struct String;
template <typename T>
class Vector;
template <typename T>
struct Offset;
}  // namespace flatbuffers

namespace distag::wire {

template <typename... Args>
[[noreturn]] void malformed(fmt::format_string<Args...> text, Args&&... args) {
  violation("malformed message: {}", fmt::format(text, std::forward<Args>(args)...));
}

// The verifier checks the alignment of a vector's length, not of its items.
inline void check_aligned(const void* items, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(items) % alignment != 0) malformed("a list that is not aligned");
}

// The state that the parts of one decoding share. The verifier lets tables and strings be shared within a header, which
// an honest sender never does; the budget bounds the bytes that are copied out of a header by its size.
class DecodeState {
 public:
  DecodeState(PayloadReader& payload_reader, size_t header_bytes, bool outline)
      : payload(payload_reader), is_outline(outline), budget_(header_bytes) {}

  void spend(size_t bytes) {
    if (bytes > budget_) malformed("its strings and lists overlap");
    budget_ -= bytes;
  }

  PayloadReader& payload;
  const bool is_outline;  // values with payload decode to null

 private:
  size_t budget_;
};

// Checks the text: at most `limit` bytes, UTF-8, no zero byte. An absent string (nullptr) is empty.
std::string decode_text(DecodeState& state, const flatbuffers::String* text, size_t limit, const char* what);
// `table` is the union's table, which the verifier has checked.
Value decode_value(DecodeState& state, uint8_t type, const void* table, size_t depth);
Body decode_body(DecodeState& state, uint8_t type, const void* table);
// The rough number of bytes that decoding would copy or check one by one.
enum class Loans { kNone, kAligned, kOdd };  // in a payload; kOdd: some are not aligned for any number
size_t decode_work(uint8_t type, const void* table, Loans loans);

}  // namespace distag::wire
