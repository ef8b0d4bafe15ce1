#include "transport/socket/descriptors.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>

#include <fmt/format.h>

#include "base/each_step.h"

namespace distag {

size_t descriptor_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_cur) : 0;
}

// Counts the free numbers, from the highest down, without taking any of them from the host meanwhile.
bool has_descriptors(int count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  int free = 0;
  std::array<pollfd, 64> numbers{};
  for (rlim_t top = std::min<rlim_t>(limit.rlim_cur, INT_MAX); top > 0 && free < count;) {
    const auto size = static_cast<size_t>(std::min<rlim_t>(top, numbers.size()));
    for (size_t i = 0; i < size; ++i) numbers[i] = {static_cast<int>(--top), 0, 0};
    if (poll(numbers.data(), size, 0) < 0 && errno != EINTR) return false;
    const auto is_free = [](const pollfd& number) { return (number.revents & POLLNVAL) != 0; };
    free += static_cast<int>(std::count_if(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(size), is_free));
  }
  if (free < count) return false;
  // The limit of the whole system may be reached too.
  const int one = eventfd(0, EFD_CLOEXEC);
  if (one >= 0) close(one);
  return one >= 0;
}

void require_descriptors(int count) {
  if (has_descriptors(count)) return;
  fail(Status::kOutOfMemory,
       "no descriptors are left for another connection, which wants {} to be free: raise the limit of open files "
       "(ulimit -n)",
       count);
}

namespace {

struct Words {
  const char* lack;
  const char* cure;
};

std::optional<Words> words_for(int error) {
  switch (error) {
    case EADDRNOTAVAIL:
      return Words{"no local port is free",
                   ": end some connections, or let net.ipv4.ip_local_port_range have more of them"};
    case EMFILE:
      return Words{"no descriptor is left", ": raise the limit of open files (ulimit -n)"};
    case ENFILE:
      return Words{"the system has no descriptor left", ": raise the limit of all its processes (fs.file-max)"};
    case ENOBUFS:
    case ENOMEM:
      return Words{"the system has no memory", ": end other programs, or raise the limits of this one's control group"};
    default:
      return std::nullopt;
  }
}

// EADDRNOTAVAIL means either that the ports of this machine are used up, or that it has no address of that family.
// Datagrams have other ports, and connect() sends nothing: there only an address can be missing.
bool has_source_for(const SocketAddress& address) noexcept {
  const int fd = socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno != EAFNOSUPPORT;
  const bool is_missing =
      connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0 && errno == EADDRNOTAVAIL;
  close(fd);
  return !is_missing;
}

std::optional<Error> lack_for(int error, const char* what, const std::string& endpoint) noexcept {
  const std::optional<Words> words = words_for(error);
  if (!words) return std::nullopt;
  std::string text = "no memory";  // needs no memory
  EachStep each;
  each([&] { text = fmt::format("{} {}{}{}", words->lack, what, endpoint, words->cure); });
  return Error(Status::kOutOfMemory, std::move(text));
}

}  // namespace

std::optional<Error> own_lack(int error, const SocketAddress& address) noexcept {
  if (error == EADDRNOTAVAIL && !has_source_for(address)) return std::nullopt;
  return lack_for(error, "for a connection to ", address.endpoint);
}

std::optional<Error> lack_to_accept(int error) noexcept { return lack_for(error, "to accept connections", ""); }

}  // namespace distag
