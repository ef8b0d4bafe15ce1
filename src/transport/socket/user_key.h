#pragma once

#include <functional>
#include "transport/security.h"

namespace distag {

// The key of this user on this machine, from the secret in the file distag/group.key in $XDG_STATE_HOME, else in
// ~/.local/state. The first process that needs the file makes it, for this user alone; of several at once one succeeds,
// and all get its secret. Throws DENIED, naming the file, if it cannot be read or made, holds no key, or is open to
// others; OUT_OF_MEMORY if memory or descriptors run out.
CurveKeyPair user_key(const std::function<const char*(const char*)>& get_environment);

}  // namespace distag
