#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace distag {

// RFC 4648, section 4, with padding.
std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);  // nullopt for any other text

}  // namespace distag
