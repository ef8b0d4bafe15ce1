#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>

#include "base/error.h"

namespace distag {
namespace {

// Blocks on this thread what a new one shall not get; a thread inherits the mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) sigdelset(&blocked, signal);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

void call_hook(const std::function<void(const char*)>& hook, const char* name) noexcept {
  try {
    if (hook) hook(name);
  } catch (...) {
  }
}

}  // namespace

std::thread start_thread(const std::string& name, const ThreadHooks& hooks, Task body) {
  SignalsBlocked blocked;
  try {
    return std::thread([name = name.substr(0, 15), hooks, body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name.c_str());
      call_hook(hooks.on_start, name.c_str());
      run_guarded(std::move(body));
      call_hook(hooks.on_stop, name.c_str());
    });
  } catch (const std::system_error& error) {
    fail(Status::kOutOfMemory, "thread \"{}\" cannot be started: {}; raise the limit of threads", name, error.what());
  }
}

void run_guarded(Task task) noexcept {
  try {
    task();
  } catch (...) {
  }
}

}  // namespace distag
