#include "faults/etcd_requests.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "faults/fault_points.h"

namespace distag::faults {
namespace {

constexpr int kPauseOfSlow = 5;  // milliseconds

// The last request on each descriptor; null: none of etcd.
std::array<std::atomic<const char*>, 4096> asked;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// By its path, and what a transaction does.
const char* step_of(std::string_view request) {
  if (!request.starts_with("POST /v3/")) return nullptr;
  const std::string_view path = request.substr(0, request.find("HTTP/1.1"));
  if (has(path, "/lease/grant")) return "Etcd.grant";
  if (has(path, "/lease/keepalive")) return "Etcd.keepalive";
  if (has(path, "/lease/revoke")) return "Etcd.revoke";
  if (has(path, "/watch")) return "Etcd.watch";
  if (has(request, "request_put")) return "Etcd.enter";
  if (has(request, "\"failure\"")) return "Etcd.leave";
  return has(request, "request_delete_range") ? "Etcd.gone" : "Etcd.look";
}

// Not the rest of one, nor what another connection gets that has the descriptor now.
bool begins_answer(std::string_view bytes) { return bytes.starts_with("HTTP/1.1") || has(bytes, "{\"result\""); }

bool is_known(int fd) { return fd >= 0 && fd < static_cast<int>(asked.size()); }

}  // namespace

ssize_t send_request(int fd, const void* data, size_t size, int flags) {
  const char* const step = step_of({static_cast<const char*>(data), size});
  if (is_known(fd)) asked[static_cast<size_t>(fd)] = step;
  if (step == nullptr) return syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
  if (fault_points().loses(step, Way::kSent)) return static_cast<ssize_t>(size);
  const ssize_t sent = syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
  if (sent > 0) fault_points().reach(step, Way::kSent);
  return sent;
}

ssize_t receive_answer(int fd, void* room, size_t size, int flags) {
  const char* const step = is_known(fd) ? asked[static_cast<size_t>(fd)].load() : nullptr;
  const ssize_t got = syscall(SYS_recvfrom, fd, room, size, flags, nullptr, nullptr);
  if (step == nullptr || got <= 0) return got;
  if (!begins_answer({static_cast<const char*>(room), static_cast<size_t>(got)})) return got;
  if (fault_points().is_slow()) poll(nullptr, 0, kPauseOfSlow);
  fault_points().reach(step, Way::kArrived);
  if (!fault_points().loses(step, Way::kArrived)) return got;
  errno = EAGAIN;
  return -1;
}

}  // namespace distag::faults
