#include "transport/socket/received_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace distag {

uint64_t received_bytes(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (socket < 0 || getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  constexpr size_t kEnd = offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
  return size >= kEnd ? info.tcpi_bytes_received : 0;
}

}  // namespace distag
