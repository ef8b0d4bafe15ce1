#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "processes/participant.h"

namespace distag::testing {

// An empty directory of its own, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A tcp port of the loopback that the system gives to no other socket as long as this lives. Others that ask for it by
// its number can listen there all the same.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  std::string number() const { return std::to_string(number_); }

 private:
  int descriptor_ = -1;
  int number_ = 0;
};

// Another process with a participant. Killed when it is dropped before it has ended.
class Process {
 public:
  Process(const ParticipantOptions& options, const std::map<std::string, std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The exit status once the process has ended; -1 when it runs longer than the timeout, -2 when a signal ended it.
  int wait(int timeout_ms);
  void kill();

 private:
  pid_t pid_ = -1;
  int descriptor_ = -1;
};

// A group over a directory: this process is rank 0, "A", and the others are processes of their own.
struct GroupOptions {
  int size = 2;
  unsigned thread_count = 0;
  int64_t lease_ns = 0;
};

class Group {
 public:
  explicit Group(const GroupOptions& options);
  ~Group();  // whatever is left is shut down with little patience and killed

  distag_worker* worker() { return self_->worker(); }
  Participant& self() { return *self_; }
  Process& process(int rank) { return *others_.at(static_cast<size_t>(rank - 1)); }
  // Shuts down all; expects a clean report and that every process has ended with 0.
  void expect_clean_shutdown();

 private:
  TemporaryDirectory directory_;
  std::vector<std::unique_ptr<Process>> others_;
  std::unique_ptr<Participant> self_;
  bool is_down_ = false;
};

// When the program was started as one of the other processes: its exit status. Else -1.
int run_if_participant(int argc, char** argv);

// The answer of a call, and its error; for values that are lists of int64.
std::vector<int64_t> call_for_numbers(distag_worker* worker, const char* to, const char* function,
                                      distag_context* context = nullptr);
std::string text_of(const distag_error& err);

}  // namespace distag::testing
