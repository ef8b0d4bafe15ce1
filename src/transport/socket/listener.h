#pragma once

#include <string>

#include "transport/socket/address.h"

namespace distag {

// A listening socket that does not block. The destructor removes the path of an ipc endpoint.
class Listener {
 public:
  // Throws INVALID_STATE when the address is in use, OUT_OF_MEMORY when descriptors run out, else INVALID_ARGUMENT.
  explicit Listener(const SocketAddress& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int fd() const { return fd_; }
  // Has the port that was chosen.
  const std::string& endpoint() const { return endpoint_; }

  // The next connection, which does not block either; -1 with errno when none waits.
  int accept();

 private:
  int fd_ = -1;
  std::string endpoint_;
  std::string path_;  // of ipc
};

}  // namespace distag
