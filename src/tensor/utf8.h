#pragma once

#include <string_view>

namespace distag {

// Whether the text is well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms or surrogates, at most U+10FFFF.
bool is_valid_utf8(std::string_view text);

}  // namespace distag
