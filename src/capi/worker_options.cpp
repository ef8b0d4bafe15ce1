// Converts the options of a worker in C to those of the core.

#include <algorithm>
#include <functional>

#include "base/host_code.h"
#include "base/pool.h"
#include "capi/struct_check.h"
#include "capi/worker.h"

namespace distag::capi {
namespace {

constexpr uint64_t kMostMessageBytes = uint64_t{1} << 60;
constexpr int32_t kLargestWorld = 65536;  // a rank has 16 bits in the id of a context

void check_place(const distag_worker_options& options) {
  if (options.world_size < -1 || options.world_size > kLargestWorld) {
    refuse(Status::kInvalidArgument, "world_size is {}, not -1 to {}", options.world_size, kLargestWorld);
  }
  if (options.world_size == 0 && options.rank != 0 && options.rank != -1) {
    refuse(Status::kInvalidArgument, "rank is {} but world_size 0: give both, or leave both to the environment",
           options.rank);
  }
  if (options.world_size > 0 && (options.rank < 0 || options.rank >= options.world_size)) {
    refuse(Status::kInvalidArgument, "rank is {}, not 0 to {}", options.rank, options.world_size - 1);
  }
  if (options.world_size == -1 && (options.rank < -1 || options.rank >= kLargestWorld)) {
    refuse(Status::kInvalidArgument, "rank is {}, not -1 to {}", options.rank, kLargestWorld - 1);
  }
}

void check_enums(const distag_worker_options& options) {
  need_enumerator(options.executor, DISTAG_EXECUTOR_HOST, "executor", "DISTAG_EXECUTOR_...");
  if (options.socket_engine > DISTAG_SOCKET_ENGINE_ZMTP) {
    refuse(Status::kInvalidArgument, "socket_engine is {}, not one of DISTAG_SOCKET_ENGINE_...", options.socket_engine);
  }
  need_enumerator(options.log_level, DISTAG_LOG_DEBUG, "log_level", "DISTAG_LOG_...");
  if (options.thread_count > Pool::kMaxThreads) {
    refuse(Status::kUnsupported, "thread_count is {}, more than {}", options.thread_count, Pool::kMaxThreads);
  }
}

WorkerOptions make_worker_options(const distag_worker_options& options) {
  WorkerOptions made;
  made.world_size = options.world_size;
  made.rank = options.world_size == 0 ? -1 : options.rank;
  if (options.name != nullptr) {
    made.name = need_worker_name(options.name, "name");
  }
  made.rendezvous = text_or(options.rendezvous, "env://", "rendezvous");
  made.job = text_or(options.job, "default", "job");
  made.bind = text_or(options.bind, "", "bind");
  made.advertise = text_or(options.advertise, "", "advertise");
  if (const Nanos timeout = need_timeout(options.call_timeout_ns, "call_timeout_ns"); timeout != 0) {
    made.call_timeout = timeout;
  }
  if (options.lease_ns < 0) refuse(Status::kInvalidArgument, "lease_ns is {}, less than 0", options.lease_ns);
  if (options.lease_ns != 0) made.lease = options.lease_ns;
  if (options.max_in_flight_bytes != 0) made.max_in_flight = options.max_in_flight_bytes;
  if (options.max_message_bytes != 0) made.max_message_bytes = std::min(options.max_message_bytes, kMostMessageBytes);
  return made;
}

std::function<void(const char*)> make_hook(distag_thread_hook hook, void* user_data) {
  if (hook == nullptr) return {};
  // Not by call_host: the thread may end there, see base/thread.h.
  return [hook, user_data](const char* thread_name) { hook(user_data, thread_name); };
}

}  // namespace

ThreadedOptions make_threaded_options(const distag_worker_options& options, std::shared_ptr<FrameMemory> memory) {
  check_enums(options);
  check_place(options);
  void* const user_data = options.user_data;
  ThreadedOptions made;
  made.worker = make_worker_options(options);
  make_security(options.security, made);
  made.host_executor = options.executor == DISTAG_EXECUTOR_HOST;
  made.thread_count = options.thread_count;
  need_zero(options.reserved_2, "distag_worker_options.reserved_2");
  made.no_lane = need_flag(options.no_lane, "no_lane");
  made.socket_engine = static_cast<SocketEngineKind>(options.socket_engine);
  if (options.log_level != 0) made.log_level = static_cast<LogLevel>(options.log_level);
  if (options.on_log != nullptr) {
    made.on_log = [sink = options.on_log, user_data](LogLevel level, const std::string& text) {
      call_host([&] { sink(user_data, static_cast<int32_t>(level), text.c_str()); });
    };
  }
  made.hooks.on_start = make_hook(options.on_thread_start, user_data);
  made.hooks.on_stop = make_hook(options.on_thread_stop, user_data);
  made.memory = std::move(memory);
  return made;
}

}  // namespace distag::capi
