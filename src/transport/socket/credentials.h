#pragma once

#include <sys/socket.h>

#include <optional>

namespace distag {

// The process at the other end of a unix socket, according to the system: a dialler as of its connect(), a listener as
// of its listen(). nullopt: unknown.
std::optional<ucred> credentials_at(int socket);
// Whether that process runs as the same user as this one.
bool is_of_same_user(int socket);

}  // namespace distag
