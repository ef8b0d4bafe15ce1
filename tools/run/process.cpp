#include "run/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <system_error>

namespace distag_tool {
namespace {

struct Pipe {
  Descriptor reading;
  Descriptor writing;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs in the child, where only async-signal-safe calls are allowed. Returns if the program cannot be run.
void become(char** arguments, char** environment, const Inherited& inherited, int output, int errors, pid_t launcher) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);
  // A process in another process group cannot read the terminal.
  const int input = isatty(STDIN_FILENO) == 1 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
  if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
      dup2(errors, STDERR_FILENO) < 0) {
    return;
  }
  if (input > STDERR_FILENO) close(input);
  setrlimit(RLIMIT_NOFILE, &inherited.descriptors);
  signal(SIGPIPE, inherited.on_closed_pipe);
  sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  execvpe(arguments[0], arguments, environment);
}

}  // namespace

Process start_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                      const Inherited& inherited) {
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  Pipe failure = make_pipe();
  const pid_t launcher = getpid();
  const pid_t id = fork();
  if (id < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (id == 0) {
    become(const_cast<char**>(arguments.data()), const_cast<char**>(variables.data()), inherited, output.writing.get(),
           errors.writing.get(), launcher);
    const int number = errno;
    if (write(failure.writing.get(), &number, sizeof number) < 0) _exit(1);
    _exit(127);
  }
  setpgid(id, id);  // called in both processes, as either may be first
  failure.writing.reset();
  int number = 0;
  ssize_t size = 0;
  do size = read(failure.reading.get(), &number, sizeof number);
  while (size < 0 && errno == EINTR);
  if (size > 0) {
    waitpid(id, nullptr, 0);
    throw std::system_error(number, std::generic_category(), command.front());
  }
  return {id, std::move(output.reading), std::move(errors.reading)};
}

}  // namespace distag_tool
