#pragma once

#include <string>
#include <string_view>

#include "transport/key_ring.h"
#include "transport/security.h"

namespace distag {

// A key in the 40 characters of Z85 (rfc.zeromq.org/spec/32). Throws INVALID_ARGUMENT for any other text; messages do
// not contain the text, as it may be a secret.
CurveKey parse_key(std::string_view text, const char* what);
std::string print_key(const CurveKey& key);

CurveKeyPair new_key_pair();
// The pair of a secret key and its public key.
CurveKeyPair pair_of(const CurveKey& secret_key);

// The keys of the workers, one a line: a name, blanks, its public key. Empty lines, and lines that begin with #, are
// ignored. Throws INVALID_ARGUMENT naming the line.
KeyRing::Keys parse_key_list(std::string_view text);

}  // namespace distag
