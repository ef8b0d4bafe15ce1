#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>

#include "base/error.h"

namespace distag {
namespace {

// Signals that a process is sent from outside: the host handles them on its own threads.
constexpr int kSignalsOfProcess[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGCHLD,  SIGALRM, SIGVTALRM,
                                     SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, SIGIO};

// Blocks them on this thread, beside what it blocks already; a new thread inherits the mask. All others stay as they
// are, so that a runtime that stops threads by signal reaches those of distag as well.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (int signal : kSignalsOfProcess) sigaddset(&blocked, signal);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
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
