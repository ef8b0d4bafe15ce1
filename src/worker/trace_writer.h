#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/trace.h"

namespace distag {

struct TraceOptions {
  std::string folder;
  uint64_t max_bytes = uint64_t{256} << 20;
};

// Writes the trace of one worker to NAME.trace.json in a folder, on a thread of its own: Trace Event Format, an array
// of whole events, so that the file of a killed process can be read as well. Events that cannot be written are counted
// in the file, and logged once. Thread-safe.
class TraceWriter {
 public:
  struct Environment {
    Trace& trace;
    Log& log;
    std::function<std::string()> name;  // of the worker; empty: not known yet
    std::function<int32_t()> rank;
    ThreadHooks hooks;
  };

  explicit TraceWriter(Environment environment);
  ~TraceWriter();  // must be stopped before

  // Begins a trace. With `at_once` the worker has its name, and a file that cannot be made throws INVALID_STATE naming
  // it; else the file is made once there is a name, and such a failure is logged. Throws INVALID_STATE without such a
  // folder and while another trace is written, OUT_OF_MEMORY.
  void start(TraceOptions options, bool at_once);
  // Writes the rest and ends the thread. False: not done within the timeout; call again. True also without a trace.
  bool stop(Nanos timeout);
  // The same, and no other trace can begin.
  bool stop_for_good(Nanos timeout);

  // A span of the host, which is written at its end. 0 if nothing is traced, or too many are open.
  uint64_t begin_span(std::string label);
  void end_span(uint64_t span) noexcept;

 private:
  struct Run;

  const Environment environment_;
  Mutex mutex_;
  std::shared_ptr<Run> run_ GUARDED_BY(mutex_);
  std::thread thread_ GUARDED_BY(mutex_);
  bool is_closed_ GUARDED_BY(mutex_) = false;

  struct Span {
    std::string label;
    Nanos begin;
    uint32_t thread;
  };
  Mutex span_mutex_;
  std::map<uint64_t, Span> spans_ GUARDED_BY(span_mutex_);  // open
};

}  // namespace distag
