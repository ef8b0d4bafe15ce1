#include "transport/socket/credentials.h"

#include <unistd.h>

namespace distag {

std::optional<ucred> credentials_at(int socket) {
  ucred other = {};
  socklen_t size = sizeof other;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0 || size != sizeof other) return std::nullopt;
  return other;
}

bool is_of_same_user(int socket) {
  const std::optional<ucred> other = credentials_at(socket);
  return other && other->uid == geteuid();
}

}  // namespace distag
