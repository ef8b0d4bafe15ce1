#include "base/thread.h"

#include <cxxabi.h>
#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/floating_mode.h"
#include "base/no_cancel.h"
#include "base/system_error.h"

namespace distag {
namespace {

// Signals that a process is sent from outside: the host handles them on its own threads.
constexpr int kSignalsOfProcess[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGCHLD,  SIGALRM, SIGVTALRM,
                                     SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, SIGIO};

// Blocks these on this thread, beside what it blocks already; a new thread inherits the mask. Other signals stay as
// they are, so that a runtime that stops threads by signal reaches those of distag as well.
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

// If the hook ends the thread (pthread_exit), the unwinding goes on through this function and its caller.
__attribute__((no_sanitize("undefined"))) void call_hook(const std::function<void(const char*)>& hook,
                                                         const char* name) {
  try {
    if (hook) hook(name);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    // Nothing depends on a hook: the thread goes on without it.
  }
}

// The body of a thread runs exactly once: also when the hook before it ends the thread, on the way out.
class OwedBody {
 public:
  explicit OwedBody(Task body) : body_(std::move(body)) {}
  ~OwedBody() { run(); }
  OwedBody(const OwedBody&) = delete;
  OwedBody& operator=(const OwedBody&) = delete;

  void run() {
    const DefaultFloatingMode mode;  // the mode of the hook, or of the thread's creator, is for callbacks
    if (Task body = std::exchange(body_, Task())) run_guarded(std::move(body));
  }

 private:
  Task body_;
};

}  // namespace

std::thread start_thread(const std::string& name, const ThreadHooks& hooks, Task body) {
  SignalsBlocked blocked;
  try {
    return std::thread([name = name.substr(0, 15), hooks, body = std::move(body)]() mutable {
      const NoCancel no_cancel;
      pthread_setname_np(pthread_self(), name.c_str());
      OwedBody owed(std::move(body));
      call_hook(hooks.on_start, name.c_str());
      owed.run();
      call_hook(hooks.on_stop, name.c_str());
    });
  } catch (const std::system_error& error) {
    const int reason = error.code().value();
    const std::string what = fmt::format("thread \"{}\" cannot be started", name);
    if (is_denied_call(reason)) throw system_error(what, "clone3", reason);
    fail(Status::kOutOfMemory, "{}: {}; raise the limit of threads (ulimit -u)", what, error.what());
  }
}

void run_guarded(Task task) noexcept {
  try {
    task();
  } catch (...) {
    // A defect, and no way to report it.
  }
}

}  // namespace distag
