// Workers: participants of a group.
#ifndef DISTAG_WORKER_HPP
#define DISTAG_WORKER_HPP

#include <functional>
#include <mutex>

#include "functions.hpp"

namespace distag {

struct member {
  std::string name;
  int rank = -1;
  member_state state = member_state::alive;
  std::uint64_t incarnation = 0;  // new at each start
};

// Memory for the tensors that a worker receives; called on any thread.
class memory {
 public:
  virtual ~memory() = default;
  virtual void* allocate(std::size_t size, std::size_t alignment) = 0;  // nullptr: no memory is left
  virtual void deallocate(void* block, std::size_t size, std::size_t alignment) = 0;
};

// The keys of a worker: see distag_security_options.
struct security {
  bool allow_insecure = false;
  std::string group_key{};
  std::string public_key{}, secret_key{};
  std::vector<std::pair<std::string, std::string>> peers{};  // name and public key
  std::string rendezvous_name{};
  std::vector<std::string> initiators{};
};

// See distag_worker_options; a field that is empty or 0 has its default. Without rank and size they come from "env://".
struct worker_options {
  std::string name{};
  int rank = 0;
  int world_size = 0;
  std::string rendezvous{};  // "env://", "tcp://host:port", "file:///folder", "inproc://name"
  std::string job{};
  std::string bind{};
  std::string advertise{};
  distag::executor executor = distag::executor::pool;
  unsigned thread_count = 0;
  nanoseconds call_timeout{0};
  nanoseconds lease{0};
  std::uint64_t max_in_flight_bytes = 0;
  std::uint64_t max_message_bytes = 0;
  bool no_lane = false;  // sockets only, no shared memory with members of this machine
  distag::socket_engine socket_engine = static_cast<distag::socket_engine>(0);
  distag::log_level log_level = static_cast<distag::log_level>(0);
  std::function<void(distag::log_level, const char*)> on_log{};
  std::function<void(const member&)> on_member{};
  std::function<void(const char*)> on_thread_start{};  // with the thread's name
  std::function<void(const char*)> on_thread_stop{};
  std::shared_ptr<distag::memory> memory{};
  std::optional<distag::security> security{};
};

// A span of a trace: see worker::trace. Ends before its worker, on any thread.
class trace_span {
 public:
  trace_span(distag_worker* worker, std::uint64_t span) noexcept : worker_(worker), span_(span) {}
  trace_span(trace_span&& other) noexcept : worker_(other.worker_), span_(std::exchange(other.span_, 0)) {}
  trace_span& operator=(trace_span&&) = delete;
  ~trace_span() { distag_trace_end(worker_, span_); }

 private:
  distag_worker* worker_;
  std::uint64_t span_;
};

// An event of a worker with the host executor, for the thread that takes it: a call of an offered function, or a posted
// future.
struct event {
  event_kind kind{};
  std::uint64_t tag = 0;
  invocation call{};  // finish() it
  future<value> done{};
};

namespace detail {

#define DISTAG_HPP_LOCAL \
  __attribute__((visibility("hidden")))  // else gcc keeps the library of the user mapped for ever

// Leaves a group, and waits only for functions that run, 5 s at most.
inline void leave(distag_worker* worker) noexcept {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (distag_worker_shutdown(worker, 0, nullptr, nullptr) == DISTAG_E_DEADLINE &&
         std::chrono::steady_clock::now() < end) {
  }
}

// The workers of this program, or library, that are up.
struct live_workers;
struct live_worker {
  distag_worker* raw;
  live_workers* home;
  live_worker *previous, *next;
};
struct live_workers {
  std::mutex mutex;
  live_worker* first;
};
DISTAG_HPP_LOCAL inline live_workers live{};  // never destroyed: it has nothing to destroy
static_assert(std::is_trivially_destructible<live_workers>::value, "it is used until the last worker has ended");

DISTAG_HPP_LOCAL inline void leave_all() noexcept {
  for (;;) {
    distag_worker* last = nullptr;
    {
      const std::lock_guard<std::mutex> lock(live.mutex);
      if (live.first == nullptr) return;
      last = std::exchange(live.first->raw, nullptr);
      live.first = live.first->next;
      if (live.first != nullptr) live.first->previous = nullptr;
    }
    leave(last);
    distag_worker_release(last);
  }
}

// Runs at exit, and when the library that holds it is unloaded.
struct leaver {
  ~leaver() { leave_all(); }
};
DISTAG_HPP_LOCAL inline void leave_at_exit() noexcept {
  static leaver last;
  (void)last;
}

// A worker that was made here: it leaves when its owner ends.
class owner {
 public:
  DISTAG_HPP_LOCAL explicit owner(distag_worker* made) : node_{made, &live, nullptr, nullptr} {
    leave_at_exit();
    distag_worker_retain(made);
    const std::lock_guard<std::mutex> lock(live.mutex);
    node_.next = live.first;
    if (live.first != nullptr) live.first->previous = &node_;
    live.first = &node_;
  }
  owner(const owner&) = delete;
  owner& operator=(const owner&) = delete;
  ~owner() {
    distag_worker* own = nullptr;
    {
      const std::lock_guard<std::mutex> lock(node_.home->mutex);
      own = std::exchange(node_.raw, nullptr);
      if (own == nullptr) return;  // it has left at exit
      (node_.previous != nullptr ? node_.previous->next : node_.home->first) = node_.next;
      if (node_.next != nullptr) node_.next->previous = node_.previous;
    }
    leave(own);
    distag_worker_release(own);
  }

 private:
  live_worker node_;
};

// The callbacks of a worker: its user_data.
struct worker_callbacks {
  std::function<void(log_level, const char*)> on_log;
  std::function<void(const member&)> on_member;
  std::function<void(const char*)> on_thread_start, on_thread_stop;

  static member member_of(const distag_member& raw) {
    return {raw.name, raw.rank, static_cast<member_state>(raw.state), raw.incarnation};
  }
  static void log(void* self, std::int32_t level, const char* message) {
    guarded_alone([=] { static_cast<worker_callbacks*>(self)->on_log(static_cast<log_level>(level), message); });
  }
  static void see_member(void* self, distag_worker*, const distag_member* seen) {
    guarded_alone([=] { static_cast<worker_callbacks*>(self)->on_member(member_of(*seen)); });
  }
  static void start_thread(void* self, const char* name) {
    guarded_alone([=] { static_cast<worker_callbacks*>(self)->on_thread_start(name); });
  }
  static void stop_thread(void* self, const char* name) {
    guarded_alone([=] { static_cast<worker_callbacks*>(self)->on_thread_stop(name); });
  }
};

// An allocator of C over a `memory`.
struct allocator_of : distag_allocator {
  explicit allocator_of(const std::shared_ptr<memory>& source) : distag_allocator(DISTAG_ALLOCATOR_INIT) {
    using shared = std::shared_ptr<memory>;
    allocate = [](void* user, std::size_t size, std::size_t alignment) -> void* {
      void* block = nullptr;
      guarded_alone([&] { block = (*static_cast<shared*>(user))->allocate(size, alignment); });
      return block;
    };
    deallocate = [](void* user, void* block, std::size_t size, std::size_t alignment) {
      guarded_alone([&] { (*static_cast<shared*>(user))->deallocate(block, size, alignment); });
    };
    user_data = new shared(source);
    destroy = delete_as<shared>;
  }
};

inline const char* text_or_null(const std::string& given) noexcept { return given.empty() ? nullptr : given.c_str(); }

inline distag_worker* create_worker(worker_options& given, outcome& err) {
  distag_worker_options raw = DISTAG_WORKER_OPTIONS_INIT;
  raw.executor = static_cast<distag_executor_type>(given.executor);
  raw.rank = given.rank;
  raw.world_size = given.world_size;
  raw.thread_count = given.thread_count;
  raw.log_level = static_cast<distag_log_level_type>(given.log_level);
  raw.call_timeout_ns = given.call_timeout.count();
  raw.lease_ns = given.lease.count();
  raw.max_in_flight_bytes = given.max_in_flight_bytes;
  raw.max_message_bytes = given.max_message_bytes;
  raw.no_lane = given.no_lane ? 1 : 0;
  raw.socket_engine = static_cast<distag_socket_engine_type>(given.socket_engine);
  raw.name = text_or_null(given.name);
  raw.rendezvous = text_or_null(given.rendezvous);
  raw.job = text_or_null(given.job);
  raw.bind = text_or_null(given.bind);
  raw.advertise = text_or_null(given.advertise);

  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  std::vector<const char*> peers, keys, initiators;
  if (given.security) {
    for (const auto& [name, key] : given.security->peers) {
      peers.push_back(name.c_str());
      keys.push_back(key.c_str());
    }
    security.allow_insecure = given.security->allow_insecure ? 1 : 0;
    security.group_key = text_or_null(given.security->group_key);
    security.public_key = text_or_null(given.security->public_key);
    security.secret_key = text_or_null(given.security->secret_key);
    security.peer_names = peers.data();
    security.peer_keys = keys.data();
    security.peer_count = peers.size();
    security.rendezvous_name = text_or_null(given.security->rendezvous_name);
    for (const std::string& name : given.security->initiators) initiators.push_back(name.c_str());
    security.initiators = initiators.empty() ? nullptr : initiators.data();
    security.initiator_count = initiators.size();
    raw.security = &security;
  }
  std::optional<allocator_of> allocator;
  if (given.memory) raw.allocator = &allocator.emplace(given.memory);

  auto* callbacks = new worker_callbacks{std::move(given.on_log), std::move(given.on_member),
                                         std::move(given.on_thread_start), std::move(given.on_thread_stop)};
  raw.user_data = callbacks;
  raw.destroy = delete_as<worker_callbacks>;
  if (callbacks->on_log) raw.on_log = worker_callbacks::log;
  if (callbacks->on_member) raw.on_member = worker_callbacks::see_member;
  if (callbacks->on_thread_start) raw.on_thread_start = worker_callbacks::start_thread;
  if (callbacks->on_thread_stop) raw.on_thread_stop = worker_callbacks::stop_thread;
  distag_worker* made = nullptr;
  err.check(distag_worker_create(&raw, &made, err.raw()));
  return made;
}

}  // namespace detail

// The place of this process in its group, by its launcher; -1 and 0 as in the header.
struct environment {
  int rank = -1;
  int world_size = 0;
  int local_rank = -1;
  int local_size = 0;
  int node = -1;
  int node_count = 0;
  int restart = 0;
  std::string launcher;
};
inline environment get_environment(outcome err = {}) {
  distag_environment raw = DISTAG_ENVIRONMENT_INIT;
  err.check(distag_get_environment(&raw, err.raw()));
  return {raw.rank, raw.world_size, raw.local_rank, raw.local_size,
          raw.node, raw.node_count, raw.restart,    raw.launcher};
}

// A participant. Thread-safe. The object that made the worker ends it: ~worker leaves the group and waits only for
// functions that run. Workers that serve others until all are done call shutdown() before. A worker from
// invocation::worker() only refers to the participant.
class worker : public detail::calls<worker> {
 public:
  worker() noexcept = default;
  explicit worker(worker_options options, outcome err = {}) {
    const distag_api* library = distag_get_api(DISTAG_ABI_MAJOR);
    if (library == nullptr || library->struct_size < sizeof(distag_api)) {
      err.fail(errc::unsupported, std::string("the library is distag ") + distag_get_version() +
                                      ", older than the header (" + std::to_string(DISTAG_VERSION_MAJOR) + "." +
                                      std::to_string(DISTAG_VERSION_MINOR) + ")");
      return;
    }
    distag_worker* made = detail::create_worker(options, err);
    if (made == nullptr) return;
    owner_ = std::make_unique<detail::owner>(made);
    handle_ = detail::worker_handle(made);
  }
  worker(worker&&) noexcept = default;
  worker& operator=(worker&& other) noexcept {
    close();
    handle_ = std::move(other.handle_);
    owner_ = std::move(other.owner_);
    return *this;
  }
  ~worker() { close(); }

  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  distag_worker* get() const noexcept { return handle_.get(); }
  void close() noexcept {  // as ~worker; twice is allowed
    owner_.reset();
    handle_.close();
  }

  // Meets the group. A static group waits for all its members: a thread starts several with start_async. Blocks.
  void start(nanoseconds timeout = std::chrono::seconds(60), outcome err = {}) const {
    err.check(distag_worker_start(get(), timeout.count(), err.raw()));
  }
  void start(status& err) const { start(std::chrono::seconds(60), outcome(err)); }
  future<void> start_async(nanoseconds timeout = std::chrono::seconds(60), outcome err = {}) const {
    distag_future* made = nullptr;
    err.check(distag_worker_start_async(get(), timeout.count(), &made, err.raw()));
    return future<void>(made);
  }
  future<void> start_async(status& err) const { return start_async(std::chrono::seconds(60), outcome(err)); }
  // Serves until all members do the same, then leaves; returns the report. Blocks.
  value shutdown(nanoseconds timeout = forever, outcome err = {}) const {
    value report;
    err.check(distag_worker_shutdown(get(), timeout.count(), report.put(), err.raw()));
    return report;
  }
  value shutdown(status& err) const { return shutdown(forever, outcome(err)); }
  future<value> shutdown_async(nanoseconds timeout = forever, outcome err = {}) const {
    distag_future* made = nullptr;
    err.check(distag_worker_shutdown_async(get(), timeout.count(), &made, err.raw()));
    return future<value>(made);
  }
  future<value> shutdown_async(status& err) const { return shutdown_async(forever, outcome(err)); }

  // Offers a function: see functions.hpp for its parameters.
  template <class F>
  void register_function(text name, F function, outcome err = {}) const {
    err.check(distag_worker_register(get(), name.c_str(), detail::function_of<F>::call, new F(std::move(function)),
                                     detail::delete_as<F>, nullptr, err.raw()));
  }
  // Withdraws a function; ok: no invocation of it runs. Blocks.
  void unregister(text name, nanoseconds timeout = forever, outcome err = {}) const {
    err.check(distag_worker_unregister(get(), name.c_str(), timeout.count(), err.raw()));
  }
  void unregister(text name, status& err) const { unregister(name, forever, outcome(err)); }
  // Shares a value of this worker.
  rref share(const value& given, outcome err = {}) const {
    rref made;
    err.check(distag_rref_create(get(), given.get(), made.put(), err.raw()));
    return made;
  }

  // The host executor: callbacks run in poll(), or calls and futures are taken as events.
  std::size_t poll(std::size_t max_items = 0, nanoseconds max_time = forever, outcome err = {}) const {
    std::size_t done = 0;
    err.check(distag_worker_poll(get(), max_items, max_time.count(), &done, err.raw()));
    return done;
  }
  std::size_t poll(status& err) const { return poll(0, forever, outcome(err)); }
  void wait(nanoseconds timeout = forever, outcome err = {}) const {
    err.check(distag_worker_wait(get(), timeout.count(), err.raw()));
  }
  void wait(status& err) const { wait(forever, outcome(err)); }
  std::int64_t fd() const noexcept { return distag_worker_get_fd(get()); }
  void offer(text name, std::uint64_t tag, outcome err = {}) const {
    err.check(distag_worker_offer(get(), name.c_str(), tag, nullptr, err.raw()));
  }
  std::optional<event> take_event(nanoseconds timeout = forever, outcome err = {}) const {  // none: time is up
    distag_event raw = DISTAG_EVENT_INIT;
    status quiet;
    const distag_status code = distag_worker_take_event(get(), timeout.count(), &raw, quiet.raw());
    if (code == DISTAG_E_DEADLINE) return {};
    if (code != DISTAG_OK) return detail::copy_error(err.raw(), *quiet.raw()), err.check(code), std::nullopt;
    event found;
    found.kind = static_cast<event_kind>(raw.kind);
    found.tag = raw.tag;
    found.call = invocation(raw.invocation, true);
    found.done = future<value>(raw.future);
    return found;
  }
  std::optional<event> take_event(status& err) const { return take_event(forever, outcome(err)); }

  const char* name() const noexcept { return distag_worker_get_name(get()); }  // lent
  int rank() const noexcept { return distag_worker_get_rank(get()); }
  int world_size() const noexcept { return distag_worker_get_world_size(get()); }
  distag::member member(int rank, outcome err = {}) const {
    distag_member found = DISTAG_MEMBER_INIT;
    err.check(distag_worker_get_member(get(), rank, &found, err.raw()));
    return detail::worker_callbacks::member_of(found);
  }
  distag::member member(text name, outcome err = {}) const {
    distag_member found = DISTAG_MEMBER_INIT;
    err.check(distag_worker_get_member_by_name(get(), name.c_str(), &found, err.raw()));
    return detail::worker_callbacks::member_of(found);
  }
  // Ranks of the living members whose names begin with the prefix.
  std::vector<std::int32_t> ranks(text prefix = "", outcome err = {}) const {
    distag_worker* raw = get();
    return detail::copy_ranks(
        [=](std::int32_t* ranks, std::size_t capacity, std::size_t* count, distag_error* error) {
          return distag_worker_copy_ranks(raw, prefix.c_str(), ranks, capacity, count, error);
        },
        err);
  }
  std::vector<std::int32_t> ranks(status& err) const { return ranks("", outcome(err)); }
  // Each of the ranks ({}: all) gives a value and gets all of them. Blocks.
  value all_gather(const value& own, const std::vector<std::int32_t>& ranks = {}, nanoseconds timeout = forever,
                   outcome err = {}) const {
    value all;
    err.check(distag_worker_all_gather(get(), own.get(), ranks.empty() ? nullptr : ranks.data(), ranks.size(),
                                       timeout.count(), all.put(), err.raw()));
    return all;
  }
  value all_gather(const value& own, status& err) const { return all_gather(own, {}, forever, outcome(err)); }
  future<value> all_gather_async(const value& own, const std::vector<std::int32_t>& ranks = {},
                                 nanoseconds timeout = forever, outcome err = {}) const {
    distag_future* made = nullptr;
    err.check(distag_worker_all_gather_async(get(), own.get(), ranks.empty() ? nullptr : ranks.data(), ranks.size(),
                                             timeout.count(), &made, err.raw()));
    return future<value>(made);
  }
  future<value> all_gather_async(const value& own, status& err) const {
    return all_gather_async(own, {}, forever, outcome(err));
  }

  distag_stats stats(outcome err = {}) const {
    distag_stats found = DISTAG_STATS_INIT;
    err.check(distag_worker_get_stats(get(), &found, err.raw()));
    return found;
  }
  std::string report(outcome err = {}) const {  // JSON
    distag_worker* raw = get();
    return detail::copy_text(
        [raw](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
          return distag_worker_copy_report(raw, buffer, capacity, size, error);
        },
        err);
  }
  // JSON: all that members have open and wait for. A member that does not answer in time is reported as silent. Blocks.
  std::string group_report(nanoseconds timeout = std::chrono::seconds(1), outcome err = {}) const {
    distag_worker* raw = get();
    return detail::copy_text(
        [raw, timeout](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
          return distag_worker_copy_group_report(raw, timeout.count(), buffer, capacity, size, error);
        },
        err);
  }
  std::string metrics(outcome err = {}) const {  // the text format of Prometheus
    distag_worker* raw = get();
    return detail::copy_text(
        [raw](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
          return distag_worker_copy_metrics(raw, buffer, capacity, size, error);
        },
        err);
  }

  // A trace in FOLDER/NAME.trace.json; max_bytes 0: 256 MiB. An empty folder: that of DISTAG_TRACE.
  void start_trace(const std::string& folder = {}, std::uint64_t max_bytes = 0, outcome err = {}) const {
    distag_trace_options options = DISTAG_TRACE_OPTIONS_INIT;
    options.folder = folder.empty() ? nullptr : folder.c_str();
    options.max_bytes = max_bytes;
    err.check(distag_worker_start_trace(get(), &options, err.raw()));
  }
  void stop_trace(outcome err = {}) const { err.check(distag_worker_stop_trace(get(), err.raw())); }
  // A span in the trace, from here to the end of the returned object. Does nothing if nothing is traced.
  trace_span trace(const char* label, outcome err = {}) const {
    std::uint64_t span = 0;
    err.check(distag_trace_begin(get(), label, &span, err.raw()));
    return trace_span(get(), span);
  }

  detail::caller as_caller() const noexcept { return {get(), nullptr, nullptr}; }

 private:
  friend class invocation;
  explicit worker(detail::worker_handle lent) noexcept : handle_(std::move(lent)) {}

  detail::worker_handle handle_;
  std::unique_ptr<detail::owner> owner_;  // empty in a worker that only refers
};

inline worker invocation::worker() const noexcept { return distag::worker(worker_handle()); }

inline context::context(const worker& owner, outcome err) : worker_(detail::worker_handle::retained(owner.get())) {
  if (!owner && !err.fail(errc::invalid_argument, "context: the worker is empty; context::local() takes none")) return;
  err.check(distag_context_create(owner.get(), handle_.put(), err.raw()));
}

template <class T>
void future<T>::post(const worker& to, std::uint64_t tag, outcome err) const {
  err.check(distag_future_post(get_handle(), to.get(), tag, err.raw()));
}

}  // namespace distag

#undef DISTAG_HPP_LOCAL

#endif
