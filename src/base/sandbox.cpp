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

constexpr int kNone = -1;  // a descriptor of nothing

struct SystemCall {
  const char* name;
  long (*try_it)();
};

constexpr SystemCall kLoopCalls[] = {
    {"epoll_ctl", [] { return long{epoll_ctl(kNone, EPOLL_CTL_DEL, kNone, nullptr)}; }},
    {"timerfd_settime", [] { return long{timerfd_settime(kNone, 0, nullptr, nullptr)}; }},
    {"getrandom", [] { return long{getrandom(nullptr, 0, 0)}; }},
};

constexpr SystemCall kSocketCalls[] = {
    {"prlimit64",
     [] {
       rlimit unused = {};
       return long{getrlimit(RLIMIT_NOFILE, &unused)};
     }},
    {"bind", [] { return long{bind(kNone, nullptr, 0)}; }},
    {"listen", [] { return long{listen(kNone, 0)}; }},
    {"connect", [] { return long{connect(kNone, nullptr, 0)}; }},
    {"accept4", [] { return long{accept4(kNone, nullptr, nullptr, 0)}; }},
    {"getsockname", [] { return long{getsockname(kNone, nullptr, nullptr)}; }},
    {"getsockopt", [] { return long{getsockopt(kNone, SOL_SOCKET, SO_ERROR, nullptr, nullptr)}; }},
    {"sendmsg", [] { return long{sendmsg(kNone, nullptr, 0)}; }},
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
