#include "run/run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "run/launcher.h"

namespace distag_tool {
namespace {

constexpr rlim_t kPerRank = 2;  // a pipe for its output, one for its errors
constexpr rlim_t kBeside = 16;  // the standard ones, the signals, the port, and the pipes of one start
constexpr int kSignals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

// Otherwise a pipe would get the number of a standard descriptor that is closed.
void open_standard_descriptors() {
  for (int descriptor = open("/dev/null", O_RDWR); descriptor >= 0; descriptor = dup(descriptor)) {
    if (descriptor > STDERR_FILENO) {
      close(descriptor);
      return;
    }
  }
}

// False when this user may not have as many descriptors as the ranks need.
bool raise_descriptor_limit(const rlimit& had, int rank_count) {
  const rlim_t needed = kBeside + kPerRank * static_cast<rlim_t>(rank_count);
  if (had.rlim_cur >= needed) return true;
  if (had.rlim_max < needed) {
    std::fprintf(stderr, "distag run: %d ranks need %llu descriptors, the limit is %llu: raise it (ulimit -Hn)\n",
                 rank_count, static_cast<unsigned long long>(needed), static_cast<unsigned long long>(had.rlim_max));
    return false;
  }
  const rlimit wanted = {needed, had.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &wanted) == 0;
}

// Makes the path absolute, as ranks may work in other folders. If the folder cannot be made, the group runs without
// traces, and its workers warn of that.
void trace_into(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    std::fprintf(stderr, "distag run: \"%s\" cannot be made, so nothing is traced: %s\n", folder.c_str(),
                 error.message().c_str());
  }
  const std::filesystem::path whole = std::filesystem::absolute(folder, error);
  setenv("DISTAG_TRACE", error ? folder.c_str() : whole.c_str(), 1);
}

}  // namespace

int run(const RunOptions& options) {
  open_standard_descriptors();
  if (!options.trace.empty()) trace_into(options.trace);
  Inherited inherited = {};
  getrlimit(RLIMIT_NOFILE, &inherited.descriptors);
  if (!raise_descriptor_limit(inherited.descriptors, options.rank_count)) return 1;

  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : kSignals) sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, &inherited.mask);
  inherited.on_closed_pipe = signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGCHLD, SIG_DFL);  // to ignore it would reap the ranks
  const Descriptor signals(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals.get() < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  return Launcher(options, inherited, signals.get()).run();
}

}  // namespace distag_tool
