#include "base/sandbox.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/system_error.h"

namespace distag {
namespace {

constexpr int kNone = -1;  // no descriptor

struct SystemCall {
  const char* name;
  long (*try_it)();
};

// All arguments except the descriptor are valid, so tools that watch the process (valgrind) do not complain.
long try_to_set_alarm() {
  const itimerspec alarm = {};
  return timerfd_settime(kNone, 0, &alarm, nullptr);
}
long try_to_send() {
  const msghdr message = {};
  return sendmsg(kNone, &message, 0);
}
long try_to_get_name() {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  return getsockname(kNone, reinterpret_cast<sockaddr*>(&name), &size);
}
long try_to_get_option() {
  int option = 0;
  socklen_t size = sizeof option;
  return getsockopt(kNone, SOL_SOCKET, SO_ERROR, &option, &size);
}
template <int (*Call)(int, const sockaddr*, socklen_t)>
long try_with_address() {
  const sockaddr_storage address = {};
  return Call(kNone, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}
long try_to_get_limit() {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit);
}
long try_to_get_random() {
  char byte = 0;
  return getrandom(&byte, 0, 0);
}

constexpr SystemCall kLoopCalls[] = {
    {"epoll_ctl", [] { return long{epoll_ctl(kNone, EPOLL_CTL_DEL, kNone, nullptr)}; }},
    {"timerfd_settime", &try_to_set_alarm},
    {"getrandom", &try_to_get_random},
};

constexpr SystemCall kSocketCalls[] = {
    {"prlimit64", &try_to_get_limit},
    {"bind", &try_with_address<&bind>},
    {"listen", [] { return long{listen(kNone, 0)}; }},
    {"connect", &try_with_address<&connect>},
    {"accept4", [] { return long{accept4(kNone, nullptr, nullptr, SOCK_CLOEXEC)}; }},
    {"getsockname", &try_to_get_name},
    {"getsockopt", &try_to_get_option},
    {"sendmsg", &try_to_send},
};

void check(std::span<const SystemCall> calls, const char* what) {
  for (const SystemCall& call : calls) {
    if (call.try_it() == -1 && is_denied_call(errno)) throw system_error(what, call.name, errno);
  }
}

}  // namespace

void check_loop_calls() { check(kLoopCalls, "a loop cannot be made"); }
void check_socket_calls() { check(kSocketCalls, "sockets cannot be used"); }

}  // namespace distag
