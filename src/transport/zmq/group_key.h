#pragma once

#include <string_view>

#include "transport/security.h"

namespace distag {

// The keys that all who know the secret of a group make of it. Throws INVALID_ARGUMENT for fewer than 32 characters.
CurveKeyPair group_key_of(std::string_view secret);

}  // namespace distag
