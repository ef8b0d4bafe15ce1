#pragma once

#include <string>
#include <string_view>

#include "transport/security.h"

namespace distag {

// The key pair that all holders of a group's secret derive from it. Throws INVALID_ARGUMENT below 32 characters.
CurveKeyPair group_key_of(std::string_view secret);

// The secret in a file, without the end of line that editors and shells add. Throws as read_private_file().
std::string read_secret(const std::string& path);

// 64 random hexadecimal digits.
std::string new_secret();

}  // namespace distag
