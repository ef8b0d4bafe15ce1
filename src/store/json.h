#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace distag::store {

// A hostile text: throws PROTOCOL naming the file for one that is no JSON, nested deeper than 40, or has a key twice.
nlohmann::json parse_json(std::string_view text, const std::string& file);

[[noreturn]] inline void refuse(const std::string& file, const std::string& reason) {
  fail(Status::kProtocol, "\"{}\" is damaged, or no checkpoint: {}", file, reason);
}

}  // namespace distag::store
