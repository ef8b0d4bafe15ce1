#pragma once

#include <sys/socket.h>

#include <optional>

namespace distag {

// Of the process at the other end of a unix socket, as the system knows it: of who dialled at that moment, and of who
// listens since it began to. nullopt: it says nothing.
std::optional<ucred> credentials_at(int socket);
// Whether that process acts for the same user as this one.
bool is_of_same_user(int socket);

}  // namespace distag
