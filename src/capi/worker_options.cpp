// From the options of a worker in C to those of the worker.

#include <algorithm>
#include <functional>

#include "base/host_code.h"
#include "base/pool.h"
#include "capi/struct_check.h"
#include "capi/worker.h"
#include "transport/zmq/group_key.h"

namespace distag::capi {
namespace {

constexpr size_t kLongestName = 127;
constexpr uint64_t kMostMessageBytes = uint64_t{1} << 60;
constexpr int32_t kLargestWorld = 65536;  // a rank has 16 bits in the id of a context

std::string text_or(const char* text, const char* fallback, const char* name) {
  return text == nullptr ? fallback : need_text(text, name);
}

void check_name(const std::string& name) {
  const bool has_good_size = !name.empty() && name.size() <= kLongestName;
  const bool has_good_letters =
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:") == std::string::npos;
  if (has_good_size && has_good_letters) return;
  refuse(Status::kInvalidArgument, "name \"{}\" is not 1 to {} of A-Z a-z 0-9 _ - . :", name, kLongestName);
}

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

SecurityOptions make_security(const distag_security_options* given) {
  const distag_security_options security = read_struct(given, "distag_security_options", kFirstSecurityOptions);
  need_zero(security.public_key, "distag_security_options.public_key");
  need_zero(security.secret_key, "distag_security_options.secret_key");
  need_zero(security.peer_names, "distag_security_options.peer_names");
  need_zero(security.peer_keys, "distag_security_options.peer_keys");
  need_zero(security.peer_count, "distag_security_options.peer_count");
  if (security.allow_insecure > 1) {
    refuse(Status::kInvalidArgument, "distag_security_options.allow_insecure is {}, not 0 or 1",
           security.allow_insecure);
  }
  SecurityOptions made;
  made.allow_insecure = security.allow_insecure == 1;
  made.group_key = text_or(security.group_key, "", "distag_security_options.group_key");
  if (security.group_key != nullptr) static_cast<void>(group_key_of(made.group_key));
  return made;
}

void check_enums(const distag_worker_options& options) {
  need_enumerator(options.executor, DISTAG_EXECUTOR_HOST, "executor", "DISTAG_EXECUTOR_...");
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
    made.name = need_text(options.name, "name");
    check_name(made.name);
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
  made.security = make_security(options.security);
  made.host_executor = options.executor == DISTAG_EXECUTOR_HOST;
  made.thread_count = options.thread_count;
  need_zero(options.reserved, "distag_worker_options.reserved");
  need_zero(options.reserved_2, "distag_worker_options.reserved_2");
  made.no_lane = need_flag(options.no_lane, "no_lane");
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
