#include "run/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "files.h"

namespace distag_tool {
namespace {

constexpr int kSignalled = 128;
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

int code_of(int status) { return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status); }

std::string signal_name(int number) {
  const char* const name = sigabbrev_np(number);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(number);
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// The number of processes that the kernel has killed for lack of memory, of the machine or of a control group; 0 if
// unknown.
uint64_t count_memory_kills() {
  constexpr std::string_view kName = "oom_kill ";
  FileLines lines("/proc/vmstat");
  for (std::string line; lines.next(line);) {
    if (line.starts_with(kName)) return std::strtoull(line.c_str() + kName.size(), nullptr, 10);
  }
  return 0;
}

std::string describe_memory_kills(uint64_t count) {
  if (count == 0) return "not by the kernel for want of memory: it has killed none for that since the start";
  return "by the kernel for want of memory, it seems: it has killed " + std::to_string(count) +
         " process(es) of this machine for that since the start";
}

std::string describe(int number, int status) {
  const std::string rank = "rank " + std::to_string(number);
  if (WIFSIGNALED(status)) return rank + " was ended by " + signal_name(WTERMSIG(status));
  return rank + " failed with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Launcher::Launcher(const RunOptions& options, const Inherited& inherited, int signals)
    : options_(options), inherited_(inherited), signals_(signals), memory_kills_(count_memory_kills()) {}

int Launcher::run() {
  start_all();
  wait_for_all();
  tell_failures();
  wait_for_all();
  return code_.value_or(0);
}

void Launcher::wait_for_all() {
  while (is_alive() || ((output_.is_waiting() || errors_.is_waiting()) && !is_abandoned_)) wait_once();
}

void Launcher::start_all() {
  if (Meeting::limits_blas(options_.rank_count)) {
    say("OPENBLAS_NUM_THREADS=1 for each rank, as all share this machine; set it yourself for more");
  }
  for (int number = 0; number < options_.rank_count; ++number) {
    try {
      ranks_.push_back(start(number, 0));
    } catch (const std::system_error& error) {
      end(tell_unstartable(number, error), SIGTERM);
      return;
    }
  }
}

Launcher::Rank Launcher::start(int number, int restart) {
  Process process =
      start_process(options_.command, meeting_.make_environment(number, options_.rank_count, restart), inherited_);
  return {number,
          options_.restart_count,
          process.id,
          process.id,
          {Lines(std::move(process.output), number, output_), Lines(std::move(process.errors), number, errors_)}};
}

void Launcher::restart(Rank& rank) {
  try {
    Rank next = start(rank.number, options_.restart_count - rank.restarts_left + 1);
    next.restarts_left = rank.restarts_left - 1;
    rank = std::move(next);
  } catch (const std::system_error& error) {
    end(tell_unstartable(rank.number, error), SIGTERM);
  }
}

int Launcher::tell_unstartable(int number, const std::system_error& error) {
  const int cause = error.code().value();
  say("rank " + std::to_string(number) + " cannot be started: " + error.what());
  if (cause == ENOENT) return kNotFound;
  return cause == EAGAIN || cause == ENOMEM || cause == EMFILE || cause == ENFILE ? 1 : kCannotRun;
}

bool Launcher::is_alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.id != 0; });
}

int Launcher::time_to_kill() const {
  std::optional<Clock::time_point> first;
  for (const Rank& rank : ranks_) {
    if (rank.kill_at && (!first || *rank.kill_at < *first)) first = rank.kill_at;
  }
  if (!first) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

void Launcher::wait_once() {
  std::vector<pollfd> watched = {{signals_, POLLIN, 0}};
  std::vector<Lines*> readers;
  std::vector<Sink*> writers;
  for (Sink* sink : {&output_, &errors_}) {
    if (!sink->is_waiting()) continue;
    writers.push_back(sink);
    watched.push_back({sink->descriptor(), POLLOUT, 0});
  }
  for (Rank& rank : ranks_) {
    for (Lines& lines : rank.lines) {
      if (!lines.can_be_read()) continue;
      readers.push_back(&lines);
      watched.push_back({lines.descriptor(), POLLIN, 0});
    }
  }
  if (poll(watched.data(), watched.size(), time_to_kill()) < 0 && errno != EINTR) {
    throw std::system_error(errno, std::generic_category(), "poll");
  }
  size_t place = 1;
  for (Sink* sink : writers) {
    if (watched[place++].revents != 0) sink->write_some();
  }
  for (Lines* lines : readers) {
    if (watched[place++].revents != 0) lines->read_some();
  }
  check_sinks();
  if (watched[0].revents != 0) take_signal();  // last, as it may change ranks and lines
  kill_late();
}

void Launcher::check_sinks() {
  for (const Sink* sink : {&output_, &errors_}) {
    if (sink->failure() == 0 || code_) continue;
    if (sink->failure() != EPIPE) say(std::string("the output cannot be written: ") + std::strerror(sink->failure()));
    end(sink->failure() == EPIPE ? kSignalled + SIGPIPE : 1, SIGTERM);
  }
}

void Launcher::take_signal() {
  signalfd_siginfo taken = {};
  if (read(signals_, &taken, sizeof taken) != static_cast<ssize_t>(sizeof taken)) return;
  const int number = static_cast<int>(taken.ssi_signo);
  switch (number) {
    case SIGCHLD:
      reap();
      return;
    case SIGTSTP:
      stop_with_ranks();
      return;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      if (!code_ && is_alive()) {
        end(kSignalled + number, number);
        return;
      }
      code_ = code_.value_or(kSignalled + number);
      is_abandoned_ = true;
      for (Rank& rank : ranks_) kill_rank(rank, "before a second signal came");
      return;
    default:
      signal_all(number);
  }
}

// The SIGCONT that resumes this process arrives as a signal, and is passed on.
void Launcher::stop_with_ranks() {
  signal_all(SIGTSTP);
  raise(SIGSTOP);
}

void Launcher::reap() {
  for (;;) {
    siginfo_t ended = {};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) break;
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [&](const Rank& each) { return each.id == ended.si_pid && !each.status; });
    // Until the process is reaped, no other group can have its number.
    if (rank != ranks_.end() && !code_) end_rank(*rank, SIGTERM);
    int status = 0;
    waitpid(ended.si_pid, &status, 0);
    if (rank != ranks_.end()) on_process_end(*rank, status);
  }
  release_gone();
}

void Launcher::on_process_end(Rank& rank, int status) {
  rank.status = status;
  if (code_of(status) == 0 || code_ || rank.restarts_left > 0) return;
  const bool is_last = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.status; });
  say(describe(rank.number, status) + (is_last ? "" : ": the others are ended"));
  first_failed_ = rank.number;
  end(code_of(status), SIGTERM);
}

void Launcher::release_gone() {
  for (Rank& rank : ranks_) {
    const bool is_gone = rank.id != 0 && rank.status && (rank.is_killed || (kill(-rank.id, 0) != 0 && errno == ESRCH));
    if (is_gone) on_gone(rank);
  }
}

void Launcher::on_gone(Rank& rank) {
  rank.id = 0;
  rank.kill_at.reset();
  for (Lines& lines : rank.lines) lines.finish();
  if (code_of(*rank.status) == 0 || code_) return;
  const int times = options_.restart_count - rank.restarts_left + 1;
  say(describe(rank.number, *rank.status) + ": it is started again (" + std::to_string(times) + " of " +
      std::to_string(options_.restart_count) + ")");
  restart(rank);
}

void Launcher::end(int code, int signal_number) {
  code_ = code;
  for (Rank& rank : ranks_) end_rank(rank, signal_number);
}

void Launcher::end_rank(Rank& rank, int signal_number) {
  if (rank.id == 0 || rank.kill_at) return;
  kill(-rank.id, signal_number);
  rank.kill_at = Clock::now() + options_.grace;
}

void Launcher::signal_all(int signal_number) {
  for (const Rank& rank : ranks_) {
    if (rank.id != 0) kill(-rank.id, signal_number);
  }
}

void Launcher::kill_late() {
  const auto now = Clock::now();
  for (Rank& rank : ranks_) {
    if (rank.kill_at && now >= *rank.kill_at)
      kill_rank(rank, "within " + std::to_string(options_.grace.count()) + " s");
  }
  release_gone();
}

void Launcher::kill_rank(Rank& rank, const std::string& when) {
  if (rank.id == 0 || rank.is_killed) return;
  say((rank.status ? "what was started by rank " : "rank ") + std::to_string(rank.number) + " did not end " + when +
      ": it is killed");
  kill(-rank.id, SIGKILL);
  rank.is_killed = true;
  rank.kill_at.reset();
}

// Prints all failures together, the first one on top, if that says more than the line printed at the time.
void Launcher::tell_failures() {
  if (!first_failed_) return;
  const Rank& first = ranks_[static_cast<size_t>(*first_failed_)];
  const bool was_killed = WIFSIGNALED(*first.status) && WTERMSIG(*first.status) == SIGKILL;
  std::vector<const Rank*> others;
  for (const Rank& rank : ranks_) {
    const int status = rank.status.value_or(0);
    const bool was_ended = WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || rank.is_killed);
    if (&rank != &first && status != 0 && !was_ended) others.push_back(&rank);
  }
  const auto has_words = [](const Rank* rank) { return !rank->words().empty(); };
  if (!has_words(&first) && !was_killed && std::none_of(others.begin(), others.end(), has_words)) return;
  std::string text = "the group failed; first\n  " + describe_whole(first);
  if (was_killed) text += "\n    " + describe_memory_kills(count_memory_kills() - memory_kills_);
  if (!others.empty()) text += "\nand then, having been told to end,";
  for (const Rank* rank : others) text += "\n  " + describe_whole(*rank);
  say(text);
}

std::string Launcher::describe_whole(const Rank& rank) {
  std::string text =
      describe(rank.number, *rank.status) + " (host " + host_name() + ", process " + std::to_string(rank.process) + ")";
  if (WIFSIGNALED(*rank.status)) {
    const char* const meaning = sigdescr_np(WTERMSIG(*rank.status));
    if (meaning != nullptr) text += ": " + std::string(meaning);
  }
  if (!rank.words().empty()) text += "\n    its last words: " + rank.words();
  return text;
}

void Launcher::say(const std::string& text) { errors_.add("distag run: " + text + "\n"); }

}  // namespace distag_tool
