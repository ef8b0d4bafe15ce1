#pragma once

#include <sys/signalfd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "run/lines.h"
#include "run/meeting.h"
#include "run/options.h"
#include "run/process.h"
#include "run/sink.h"

namespace distag_tool {

// The ranks of one group, on one thread, which waits in poll for signals, output and room for output.
//
//   running   until a rank fails for good, a signal asks to end, or the output has no reader
//   ending    the others were sent a signal; those left after the grace, or at a second signal, are killed
//   ended     all ranks are gone: their output is written, and the code is known
//
// A rank is its process and all processes that this has started: a process group. When the process ends, the rest is
// told to end as well, and the rank is gone with the last of them. The launcher, as subreaper, learns of each end.
class Launcher {
 public:
  Launcher(const RunOptions& options, const Inherited& inherited, int signals);

  int run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    int number;
    int restarts_left;
    pid_t id;  // of the process and the group; 0 when the group is gone
    pid_t process;
    std::array<Lines, 2> lines;
    std::optional<int> status = std::nullopt;                 // of the process, which has ended
    std::optional<Clock::time_point> kill_at = std::nullopt;  // then the rest of the group is killed
    bool is_killed = false;

    const std::string& words() const { return lines[1].last(); }  // the last line on standard error
  };

  Rank start(int number, int restart);
  void start_all();
  int tell_unstartable(int number, const std::system_error& error);  // gives the code
  void restart(Rank& rank);

  bool is_alive() const;
  void wait_for_all();
  void wait_once();
  int time_to_kill() const;  // in ms, for poll

  void take_signal();
  void stop_with_ranks();
  void reap();
  void on_process_end(Rank& rank, int status);
  void release_gone();
  void on_gone(Rank& rank);

  void end(int code, int signal_number);  // the first cause counts
  void end_rank(Rank& rank, int signal_number);
  void signal_all(int signal_number);
  void kill_late();
  void kill_rank(Rank& rank, const std::string& when);
  void check_sinks();
  void tell_failures();  // called once all have ended
  static std::string describe_whole(const Rank& rank);
  void say(const std::string& text);

  const RunOptions& options_;
  const Inherited& inherited_;
  const int signals_;  // a signalfd
  Meeting meeting_;
  Sink output_{STDOUT_FILENO};
  Sink errors_{STDERR_FILENO};
  std::vector<Rank> ranks_;
  std::optional<int> code_;          // set from "ending" on
  std::optional<int> first_failed_;  // rank
  const uint64_t memory_kills_;      // of the machine, before the start
  bool is_abandoned_ = false;        // a second signal: output without a reader is dropped
};

}  // namespace distag_tool
