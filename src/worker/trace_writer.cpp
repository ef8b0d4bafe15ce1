#include "worker/trace_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/data_file.h"
#include "base/future.h"
#include "base/process.h"

namespace distag {
namespace {

constexpr Nanos kInterval = 250 * kMillisecond;
constexpr Nanos kFirstInterval = 20 * kMillisecond;  // until the worker has its name
constexpr size_t kRoomForCounts = 1024;  // in the file, for the counts of dropped events and the closing bracket
constexpr size_t kBlock = size_t{64} << 10;
constexpr size_t kMostOpenSpans = 65536;
constexpr int kMostFiles = 1000;  // of one name in one folder

// A string of JSON; invalid UTF-8 is replaced.
std::string json_string(std::string_view text) {
  const bool is_plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; });
  if (is_plain) return '"' + std::string(text) + '"';
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds, as in the trace format.
std::string in_us(Nanos time) { return fmt::format("{}.{:03}", time / 1000, time % 1000); }

std::string id_text(const Id& id) { return fmt::format("{:x}:{:x}", id.maker, id.counter); }

std::string arguments_of(const TakenTraceEvent& taken) {
  std::string text;
  const auto add = [&text](const char* name, const std::string& value) {
    text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", name, value);
  };
  if (!taken.peer.empty()) add("peer", json_string(taken.peer));
  if (taken.event.bytes != 0) add("bytes", std::to_string(taken.event.bytes));
  if (taken.event.queued >= 0) add("queued_us", in_us(taken.event.queued));
  if (!taken.trace_id.empty()) add("trace_id", json_string(taken.trace_id));
  if (taken.event.status != Status::kOk) add("failed", "true");
  return '{' + text + '}';
}

// The lines of one event, each with a comma at its end.
std::string lines_of(const TakenTraceEvent& taken, int32_t process) {
  const TraceEvent& event = taken.event;
  const std::string name = json_string(taken.name);
  const char* const category = category_name(event.category);
  const auto where = [process, &event](Nanos when) {
    return fmt::format("\"pid\":{},\"tid\":{},\"ts\":{}", process, event.thread, in_us(when));
  };
  if (event.kind == TraceEvent::Kind::kInstant) {
    return fmt::format("{{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"{}\",\"name\":{},{}}},\n", category, name,
                       where(event.end));
  }
  if (event.kind == TraceEvent::Kind::kSpan) {
    // Numbers of this worker alone get its process, to differ from those of others.
    const Id id = event.id.maker != 0 ? event.id : Id{static_cast<Incarnation>(process), event.id.counter};
    const std::string head = fmt::format("\"cat\":\"{}\",\"name\":{},\"id\":\"{}\"", category, name, id_text(id));
    return fmt::format("{{\"ph\":\"b\",{},{},\"args\":{}}},\n{{\"ph\":\"e\",{},{}}},\n", head, where(event.begin),
                       arguments_of(taken), head, where(std::max(event.begin, event.end)));
  }
  std::string lines = fmt::format("{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},{},\"dur\":{},\"args\":{}}},\n", category,
                                  name, where(event.begin), in_us(event.end - event.begin), arguments_of(taken));
  if (event.flow != TraceEvent::Flow::kNone && event.id) {
    const char* const flow = category_name(event.flow_category);
    lines += fmt::format("{{\"ph\":\"{}\",\"cat\":\"{}\",\"name\":\"{}\",\"id\":\"{}-{}\",{}}},\n",
                         event.flow == TraceEvent::Flow::kOut ? "s" : "f\",\"bp\":\"e", flow, flow, flow,
                         id_text(event.id), where(event.begin));
  }
  return lines;
}

// The first free name: files of other runs are kept.
std::unique_ptr<DataFile> make_file(const std::string& folder, const std::string& worker) {
  for (int i = 1; i <= kMostFiles; ++i) {
    const std::string number = i == 1 ? "" : fmt::format(".{}", i);
    const std::string path = fmt::format("{}/{}{}.trace.json", folder, worker, number);
    if (kind_of_path(path) == PathKind::kNothing)
      return std::unique_ptr<DataFile>(new DataFile(DataFile::create(path)));
  }
  fail(Status::kInvalidState, "\"{}\" has {} traces of \"{}\": remove those that are not needed", folder, kMostFiles,
       worker);
}

}  // namespace

// The state of one trace, for its thread.
struct TraceWriter::Run {
  explicit Run(TraceOptions given) : options(std::move(given)) {}

  const TraceOptions options;
  Parker parker;
  std::atomic<bool> is_ending{false};
  const std::shared_ptr<Future<Unit>> ended = Future<Unit>::make();

  // Used by the thread only.
  std::unique_ptr<DataFile> file;
  uint64_t size = 0;  // of the whole events in the file
  int32_t process = 0;
  uint64_t dropped = 0;
  uint64_t dropped_in_file = 0;
  bool has_told = false;
  bool is_full = false;
  std::set<uint32_t> threads;  // threads whose name is in the file

  void run(const Environment& environment);
  void begin_file(const Environment& environment);
  void write_taken(const Environment& environment, std::string& events);
  void append(const Environment& environment, const std::string& lines, uint64_t count) noexcept;
  void count_dropped(const Environment& environment, uint64_t count, const std::string& why) noexcept;
  void write_dropped(const Environment& environment) noexcept;
  void end_file() noexcept;
};

// The head names the clock: processes of one host have the same clock.
void TraceWriter::Run::begin_file(const Environment& environment) {
  const std::string name = environment.name();
  const int32_t rank = environment.rank();
  if (name.empty() || rank < 0) return;
  if (file == nullptr) file = make_file(options.folder, name);
  process = rank + 1;  // trace viewers take 0 for the system itself
  const std::string head = fmt::format(
      "[\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":{1}}}}},\n"
      "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"args\":{{\"sort_index\":{2}}}}},\n"
      "{{\"ph\":\"M\",\"name\":\"distag_worker\",\"pid\":{0},\"args\":{{\"name\":{3},\"rank\":{2},\"host\":{4},"
      "\"clock\":\"monotonic\"}}}},\n",
      process, json_string(fmt::format("{} (rank {})", name, rank)), rank, json_string(name), json_string(host_id()));
  append(environment, head, 0);
}

void TraceWriter::Run::append(const Environment& environment, const std::string& lines, uint64_t count) noexcept {
  try {
    if (is_full || size + lines.size() + kRoomForCounts > options.max_bytes) {
      is_full = true;
      count_dropped(environment, count, fmt::format("\"{}\" has {} bytes: raise max_bytes", file->path(), size));
      return;
    }
    file->append(lines.data(), lines.size());
    size += lines.size();
  } catch (...) {
    const Error error = current_error();
    try {
      file->cut(size);  // cuts to whole events
    } catch (...) {
      is_full = true;  // the file ends within an event, so nothing may follow
    }
    count_dropped(environment, count, error.message());
  }
}

void TraceWriter::Run::count_dropped(const Environment& environment, uint64_t count, const std::string& why) noexcept {
  dropped += count;
  if (std::exchange(has_told, true)) return;
  try {
    environment.log.write(LogLevel::kWarning, "the trace loses events, and the worker goes on: " + why);
  } catch (...) {
    // No memory to log it: the count is in the file.
  }
}

// Uses the room that was kept: twice at most once the file is full.
void TraceWriter::Run::write_dropped(const Environment&) noexcept {
  if (dropped == dropped_in_file || file == nullptr) return;
  if (is_full && dropped_in_file != 0 && !is_ending) return;
  try {
    const std::string line =
        fmt::format("{{\"ph\":\"C\",\"name\":\"dropped events\",\"pid\":{},\"ts\":{},\"args\":{{\"dropped\":{}}}}},\n",
                    process, in_us(SteadyClock().now()), dropped);
    if (size + line.size() + 2 > options.max_bytes) return;
    file->append(line.data(), line.size());
    size += line.size();
    dropped_in_file = dropped;
  } catch (...) {
    try {
      file->cut(size);
    } catch (...) {
      is_full = true;
    }
  }
}

void TraceWriter::Run::write_taken(const Environment& environment, std::string& events) {
  uint64_t lost = 0;
  environment.trace.take(events, lost);
  if (lost != 0) count_dropped(environment, lost, "they come faster than they are written");
  std::string_view rest = events;
  std::string lines;
  uint64_t count = 0;
  const auto flush = [&] {
    if (!lines.empty()) append(environment, lines, count);
    lines.clear();
    count = 0;
  };
  while (!rest.empty()) {
    const TakenTraceEvent taken = take_first(rest);
    if (threads.size() < 4096 && threads.insert(taken.event.thread).second) {
      lines +=
          fmt::format("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}},\n",
                      process, taken.event.thread, json_string(name_of_thread(taken.event.thread)));
    }
    lines += lines_of(taken, process);
    ++count;
    if (lines.size() >= kBlock) flush();
  }
  flush();
  write_dropped(environment);
}

// A file of a stopped trace is a complete JSON array. This does not make it longer, as there may be no room.
void TraceWriter::Run::end_file() noexcept {
  if (file == nullptr || size == 0) return;
  try {
    file->cut(size - 2);
    file->append("\n]", 2);
  } catch (...) {
    // The file lacks the bracket, like that of a killed process.
  }
  file.reset();
}

void TraceWriter::Run::run(const Environment& environment) {
  std::string events;
  for (bool is_last = false; !is_last;) {
    is_last = is_ending;
    if (!is_last) {
      parker.park(SteadyClock().now() + (size == 0 ? kFirstInterval : kInterval));
      is_last = is_ending;
    }
    try {
      events.reserve(Trace::kBufferSize);
      if (size == 0) begin_file(environment);
      if (size != 0) write_taken(environment, events);
    } catch (...) {
      const Error error = current_error();
      count_dropped(environment, 1, error.message());
      if (size == 0 && error.status() != Status::kOutOfMemory) environment.trace.close();  // there is no file
    }
  }
  end_file();
}

TraceWriter::TraceWriter(Environment environment) : environment_(std::move(environment)) {}

TraceWriter::~TraceWriter() { stop(kForever); }

void TraceWriter::start(TraceOptions options, bool at_once) {
  if (kind_of_path(options.folder) != PathKind::kFolder) {
    fail(Status::kInvalidState, "\"{}\" is no folder: make it before the trace begins", options.folder);
  }
  auto run = std::make_shared<Run>(std::move(options));
  MutexLock lock(mutex_);
  if (is_closed_) fail(Status::kInvalidState, "the worker is shut down");
  if (run_ != nullptr) fail(Status::kInvalidState, "a trace is written already: stop it first");
  if (at_once) run->file = make_file(run->options.folder, environment_.name());
  environment_.trace.open(run->parker);
  try {
    thread_ = start_thread("distag-trace", environment_.hooks, [run, &environment = environment_] {
      run->run(environment);
      run->ended->complete(Unit{});
    });
  } catch (...) {
    environment_.trace.close();
    if (run->file != nullptr) remove_file(run->file->path());
    throw;
  }
  run_ = std::move(run);
}

bool TraceWriter::stop(Nanos timeout) {
  std::shared_ptr<Run> run;
  {
    MutexLock lock(mutex_);
    if (run_ == nullptr) return true;
    run = run_;
    environment_.trace.close();
  }
  run->is_ending = true;
  run->parker.unpark();
  if (!park_until_done(*run->ended, timeout)) return false;
  std::thread thread;
  {
    MutexLock lock(mutex_);
    if (run_ != run) return true;  // another caller has joined it
    run_.reset();
    thread.swap(thread_);
  }
  thread.join();
  MutexLock lock(span_mutex_);
  spans_.clear();
  return true;
}

bool TraceWriter::stop_for_good(Nanos timeout) {
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
  }
  return stop(timeout);
}

uint64_t TraceWriter::begin_span(std::string label) {
  if (!environment_.trace.is_on()) return 0;
  const uint64_t span = environment_.trace.next_span().counter;
  MutexLock lock(span_mutex_);
  if (spans_.size() == kMostOpenSpans) return 0;
  spans_.emplace(span, Span{std::move(label), SteadyClock().now(), current_thread_number()});
  return span;
}

void TraceWriter::end_span(uint64_t span) noexcept {
  TraceEvent event;
  event.end = SteadyClock().now();
  MutexLock lock(span_mutex_);
  const auto found = spans_.find(span);
  if (found == spans_.end()) return;
  event.kind = TraceEvent::Kind::kSpan;
  event.begin = found->second.begin;
  event.thread = found->second.thread;
  event.id = {0, span};
  environment_.trace.add(event, found->second.label);
  spans_.erase(found);
}

}  // namespace distag
