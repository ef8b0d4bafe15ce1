#include "worker/threaded_worker.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "base/host_code.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/random.h"
#include "base/reserve.h"
#include "group/curl_client.h"
#include "group/pmix_board.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/socket/address.h"
#include "transport/socket/local_server.h"
#include "transport/socket/socket_transport.h"
#include "worker/fault_points.h"
#include "worker/long_tasks.h"
#include "worker/looking.h"

namespace distag {

namespace {

size_t core_count() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : cores;
}

// The least time limit for threads and last callbacks that are about to end.
constexpr Nanos kPatience = 500 * kMillisecond;
// Idle threads have at least this time, even if a jump of the clock has used up the other limit.
constexpr Nanos kLeastPatience = 50 * kMillisecond;

// Why there are no lanes; empty: there may be.
std::string why_no_lane(bool by_option) {
  if (by_option) return "the worker's option no_lane";
  const char* const value = std::getenv("DISTAG_LANE");
  return value != nullptr && std::string(value) == "0" ? "DISTAG_LANE=0" : "";
}

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

}  // namespace

ThreadedWorker::ThreadedWorker(ThreadedOptions options)
    : options_(std::move(options)),
      reserve_(std::make_shared<Reserve>()),
      random_(std::make_unique<SystemRandom>()),
      peer_keys_(options_.security.secret_key) {
  if (options_.host_executor) host_ = std::make_unique<HostExecutor>();
  pool_ = std::make_unique<Pool>("distag-pool", thread_count(), hooks_for(!options_.host_executor), reserve_);
  decoder_ = std::make_unique<Pool>("distag-decoder", 1, hooks_for(false), reserve_);
  loop_ = std::make_unique<FdLoop>("distag-loop", hooks_for(false), reserve_);
  loop_->set_host_code_executor(&functions());
  loop_->set_watchdog(options_.loop_watchdog ? options_.loop_watchdog : note_long_tasks());
  if (options_.on_log) {
    log_ = std::make_unique<Log>(options_.log_level, [this](LogLevel level, std::string text) {
      functions().post_or_drop([this, level, record = std::move(text)] { options_.on_log(level, record); });
    });
  } else {
    log_ = std::make_unique<Log>();
  }
  WorkerEnvironment environment{
      *loop_,
      functions(),
      *pool_,
      *decoder_,
      *random_,
      *log_,
      [this](const std::string& rendezvous) -> std::unique_ptr<Transport> {
        if (starts_with(rendezvous, "inproc://")) return std::make_unique<InprocTransport>(*loop_);
        return with_fault_points(make_transport(), *loop_);
      },
      [this](const std::string& uri, Transport& transport) { return make_meeting_point(uri, transport); },
      {[](const char* name) -> const char* { return std::getenv(name); }, resolve_address, own_address_towards,
       [] { return ask_pmix(); }},
      options_.memory,
      options_.on_member,
      host_id(),
      host_.get(),
      [this](Incarnation incarnation) { return open_server(incarnation); },
      static_cast<uint64_t>(process_id())};
  worker_ = std::make_unique<Worker>(std::move(environment), options_.worker);
  loop_->set_on_failure([this](const Error& error) { worker_->on_loop_failure(error); });
}

Executor& ThreadedWorker::functions() const {
  if (host_) return *host_;
  return *pool_;
}

size_t ThreadedWorker::thread_count() const {
  return options_.thread_count == 0 ? core_count() : options_.thread_count;
}

std::unique_ptr<Rendezvous> ThreadedWorker::make_meeting_point(const std::string& uri, Transport& transport) {
  RendezvousTools tools{*loop_, transport, *log_};
  tools.get_environment = [](const char* name) -> const char* { return std::getenv(name); };
  tools.http = [this]() -> HttpClient& {
    if (http_ == nullptr) http_ = std::make_unique<CurlClient>(*loop_, hooks_for(false), reserve_);
    return *http_;
  };
  tools.board = [this]() -> JobBoard& {
    if (board_ == nullptr) board_ = std::make_unique<PmixBoard>(*loop_, hooks_for(false));
    return *board_;
  };
  return make_rendezvous(uri, tools);
}

// Works without a server if that cannot be opened.
std::shared_ptr<void> ThreadedWorker::open_server(Incarnation incarnation) {
  const char* const wish = std::getenv("DISTAG_PS");
  if (wish != nullptr && std::string(wish) == "0") return nullptr;
  try {
    return std::make_shared<LocalServer>(
        *loop_, incarnation, [this](const std::string& line, const LocalServer::Reply& reply) {
          const auto answer = answer_question(*worker_, line);
          if (answer == nullptr) return reply("");
          answer->on_done(
              [reply, outcome = answer.get()] { reply(outcome->error() == nullptr ? outcome->value() : ""); });
        });
  } catch (...) {
    log_->write(LogLevel::kInfo, "`distag ps` and `distag why` cannot ask this worker: " + current_error().message());
    return nullptr;
  }
}

// A lane asks for no key, so it would not prove the peer's name.
std::unique_ptr<Transport> ThreadedWorker::make_transport() {
  Security security = load_keys();
  const bool has_keys = security.worker_keys.has_value();
  const SocketEngineKind engine = choose_socket_engine(options_.socket_engine, std::getenv("DISTAG_SOCKET_ENGINE"));
  auto sockets = std::make_unique<SocketTransport>(
      make_socket_engine(engine, *loop_, pool_.get(), options_.worker.lease), std::move(security));
  if (has_keys) return sockets;
  return std::make_unique<ShmTransport>(*loop_, std::move(sockets), why_no_lane(options_.no_lane), pool_.get(),
                                        random_->next());
}

// Called when the worker starts.
Security ThreadedWorker::load_keys() {
  const auto get_environment = [](const char* variable) -> const char* { return std::getenv(variable); };
  Security security = load_security(options_.security, get_environment);
  if (security.worker_keys) {
    std::string name = own_name();
    if (name.empty()) {
      const WorkerOptions& wanted = options_.worker;
      const int32_t rank = resolve_rendezvous(wanted.rendezvous, wanted.rank, wanted.world_size, get_environment).rank;
      if (rank >= 0) name = default_name(rank);
    }
    peer_keys_.begin(*security.worker_keys, name);
    return security;
  }
  if (security.allow_insecure && !security.group_key) {
    log_->write(LogLevel::kWarning,
                "allow_insecure: whoever reaches this worker's port can take part in its group; give all workers a "
                "group key instead");
  }
  return security;
}

// Empty: not known yet. A rank gives a name to a worker without one.
std::string ThreadedWorker::own_name() const {
  std::string name = worker_->name();
  if (name.empty() && options_.worker.rank >= 0) name = default_name(options_.worker.rank);
  return name;
}

bool ThreadedWorker::has_worker_keys() const {
  return distag::has_worker_keys(options_.security, [](const char* name) -> const char* { return std::getenv(name); });
}

void ThreadedWorker::set_peers(KeyRing::Keys keys) {
  if (!has_worker_keys()) {
    fail(Status::kUnsupported, "this worker has no key of its own: who has the group's key may connect");
  }
  std::vector<std::string> changed = peer_keys_.replace(std::move(keys), own_name());
  if (changed.empty()) return;
  worker_->lose_members(std::move(changed), Error(Status::kDenied, "its key was taken away"));
}

// The host's hooks, and the executor for host code that comes up on the thread.
ThreadHooks ThreadedWorker::hooks_for(bool runs_host_code) const {
  return ThreadHooks{[this, runs_host_code](const char* thread_name) {
                       if (options_.hooks.on_start) options_.hooks.on_start(thread_name);
                       if (!runs_host_code) exchange_host_code_executor(&functions());
                     },
                     [this](const char* thread_name) {
                       exchange_host_code_executor(nullptr);
                       if (options_.hooks.on_stop) options_.hooks.on_stop(thread_name);
                     }};
}

ThreadedWorker::~ThreadedWorker() {
  const ReserveScope scope(reserve_.get());  // also for a worker whose creation failed for lack of memory
  if (!is_finished()) {
    auto report = begin_shutdown(0);
    wait(*report, kForever);
    finish(kForever);
  }
}

std::shared_ptr<Future<Value>> ThreadedWorker::start(Nanos timeout) {
  {
    MutexLock lock(mutex_);
    if (is_ending_) fail(Status::kInvalidState, "start: the worker is shut down");
    pool_->start();
    if (!loop_runs_) loop_->start();
    loop_runs_ = true;
  }
  return worker_->start(timeout);
}

std::shared_ptr<Future<ShutdownReport>> ThreadedWorker::begin_shutdown(Nanos timeout) {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
    if (loop_runs_) return worker_->shutdown(timeout);
  }
  auto report = Future<ShutdownReport>::make();
  report->complete(ShutdownReport{});
  return report;
}

bool ThreadedWorker::finish(Nanos timeout) {
  const Nanos deadline = deadline_after(loop_->now(), timeout);
  const Nanos latest = deadline_after(loop_->now(), timeout < 0 ? timeout : std::max(timeout, kPatience));
  return end_.run(latest, [this, deadline, latest] { return take_down(deadline, latest); });
}

bool ThreadedWorker::take_down(Nanos deadline, Nanos latest) {
  if (!wait(*worker_->rpc().when_no_function_runs(), time_left(deadline))) return false;
  // The loop is first: its last tasks may still run code on the executors.
  loop_->stop();
  board_.reset();
  latest = end_http(latest);
  decoder_->stop();
  run_what_waits(deadline);
  if (!pool_->stop(latest == kNever ? kForever : std::max(time_left(latest), kLeastPatience))) return false;
  if (host_) {
    host_->poll(0, kForever);
    return host_->stop(time_left(latest));
  }
  return true;
}

// Gives the later moment by which threads have to end: the time for last HTTP requests is not counted.
Nanos ThreadedWorker::end_http(Nanos latest) {
  if (http_ == nullptr) return latest;
  const Nanos begin = loop_->now();
  http_->stop(latest == kNever ? kPatience : std::min(kPatience, time_left(latest)));
  return latest == kNever ? kNever : latest + (loop_->now() - begin);
}

// Runs waiting callbacks of futures that the shutdown completed, and deleters. Those that are not begun by the deadline
// never start.
void ThreadedWorker::run_what_waits(Nanos deadline) {
  while (pool_->waiting() > 0) {
    auto reached = Future<Unit>::make();
    if (!pool_->post([owed = Owed(reached)] { owed->complete(Unit{}); })) return;
    if (!wait(*reached, time_left(deadline))) return;
  }
}

}  // namespace distag
