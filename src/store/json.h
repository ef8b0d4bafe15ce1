#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/plain_numbers.h"

namespace distag::store {

inline constexpr size_t kMostDepth = 40;

// Parses a hostile text. Throws PROTOCOL naming the file if it is no JSON, nests deeper than 40, or has a key twice.
nlohmann::json parse_json(std::string_view text, const std::string& file);

[[noreturn]] inline void refuse(const std::string& file, const std::string& reason) {
  fail(Status::kProtocol, "\"{}\" is damaged, or no checkpoint: {}", file, reason);
}

// Throws PROTOCOL for bytes that nlohmann's parser would ignore: a byte order mark, and all bytes from a NUL on.
void check_bytes(std::string_view text, const std::string& file);

// The text without blanks at its end. Throws PROTOCOL for tokens that no writer makes, and that nlohmann's parser would
// copy several times: 64 KiB of blanks or of a number, a string without an end, or one with forbidden bytes.
std::string_view checked_tokens(std::string_view text, const std::string& file);

// Passes once over a hostile text, and ends when the handler throws. The handler is a nlohmann::json_sax, or like one.
template <typename Handler>
void walk_json(std::string_view text, const std::string& file, Handler& handler) {
  check_bytes(text, file);
  const PlainNumbers numbers;
  nlohmann::json::sax_parse(checked_tokens(text, file), &handler);
}

}  // namespace distag::store
