#pragma once

#include <string>
#include <string_view>

#include "transport/security.h"

namespace distag {

// The keys that all who know the secret of a group make of it. Throws INVALID_ARGUMENT for fewer than 32 characters.
CurveKeyPair group_key_of(std::string_view secret);

// The secret that a file holds: without the end of line that editors and shells add. Throws as read_private_file().
std::string read_secret(const std::string& path);

// 64 random hexadecimal digits.
std::string new_secret();

}  // namespace distag
