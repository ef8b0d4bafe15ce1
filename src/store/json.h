#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/plain_numbers.h"

namespace distag::store {

inline constexpr size_t kMostDepth = 40;

// A hostile text: throws PROTOCOL naming the file for one that is no JSON, nested deeper than 40, or has a key twice.
nlohmann::json parse_json(std::string_view text, const std::string& file);

[[noreturn]] inline void refuse(const std::string& file, const std::string& reason) {
  fail(Status::kProtocol, "\"{}\" is damaged, or no checkpoint: {}", file, reason);
}

// Throws PROTOCOL for bytes that the reader below would pass over: a mark of byte order, and all from a NUL on.
void check_bytes(std::string_view text, const std::string& file);

// The text without blanks at its end. Throws PROTOCOL for what the reader below would keep in memory several times, and
// no writer makes: 64 KiB of blanks or of a number, a text without an end or with bytes that have no place there.
std::string_view checked_tokens(std::string_view text, const std::string& file);

// One pass over a hostile text, which ends where the handler throws. It is a nlohmann::json_sax, or has its methods.
template <typename Handler>
void walk_json(std::string_view text, const std::string& file, Handler& handler) {
  check_bytes(text, file);
  const PlainNumbers numbers;
  nlohmann::json::sax_parse(checked_tokens(text, file), &handler);
}

}  // namespace distag::store
