// Workers: making, starting, polling and ending them.

#include "base/lead.h"
#include "base/wait_or_cancel.h"
#include "capi/future.h"
#include "capi/struct_check.h"
#include "capi/worker.h"

using namespace distag;
using namespace distag::capi;

void distag_worker_retain(distag_worker* worker) { retain_handle(worker); }
void distag_worker_release(distag_worker* worker) { release_handle(worker); }

distag_status distag_worker_create(const distag_worker_options* options, distag_worker** out_worker,
                                   distag_error* err) {
  clear(out_worker);
  // Nothing of a struct of unknown size is used, not even destroy.
  const bool is_given = is_readable(options, sizeof(distag_worker_options), kFirstWorkerOptions);
  GivenData data(is_given ? options->user_data : nullptr, is_given ? options->destroy : nullptr);
  return guard(__func__, err, [&] {
    std::shared_ptr<FrameMemory> memory = make_frame_memory(is_given ? options->allocator : nullptr);
    const distag_worker_options given = read_struct(options, "distag_worker_options", kFirstWorkerOptions);
    need_pointer(out_worker, "out_worker");
    ThreadedOptions made = make_threaded_options(given, std::move(memory));
    *out_worker = new distag_worker(std::move(made), std::move(data), given.on_member);
  });
}

distag_status distag_worker_start(distag_worker* worker, int64_t timeout_ns, distag_error* err) {
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    check_can_wait();
    const ReserveScope scope(live.reserve());  // a start that has begun is waited for
    const auto started = live.start(timeout);
    wait(*started, kForever);
    started->value();
  });
}

distag_status distag_worker_start_async(distag_worker* worker, int64_t timeout_ns, distag_future** out_future,
                                        distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    need_pointer(out_future, "out_future");
    const auto started = live.start(need_timeout(timeout_ns, "timeout_ns"));
    const ReserveScope scope(live.reserve());  // a start that has begun gets its future
    *out_future = new distag_future(started, live);
  });
}

distag_status distag_worker_shutdown(distag_worker* worker, int64_t timeout_ns, distag_value** out_report,
                                     distag_error* err) {
  clear(out_report);
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    Value report = live.shutdown(need_timeout(timeout_ns, "timeout_ns"));
    if (out_report != nullptr) *out_report = make_value(std::move(report));
  });
}

distag_status distag_worker_shutdown_async(distag_worker* worker, int64_t timeout_ns, distag_future** out_future,
                                           distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    need_pointer(out_future, "out_future");
    const auto report = live.hosted().shutdown_async(need_timeout(timeout_ns, "timeout_ns"));
    const ReserveScope scope(live.reserve());
    *out_future = new distag_future(report, live, distag_future::Of::kShutdown);
  });
}

distag_status distag_worker_poll(distag_worker* worker, size_t max_items, int64_t max_ns, size_t* out_done,
                                 distag_error* err) {
  clear(out_done);
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    HostExecutor& host = live.need_host();
    live.check_up();
    const CallbackScope scope(&live.hosted());
    const size_t done = host.poll(max_items, need_timeout(max_ns, "max_ns"));
    if (out_done != nullptr) *out_done = done;
  });
}

int64_t distag_worker_get_fd(distag_worker* worker) {
  return guard_or<int64_t>(-1, [worker]() -> int64_t {
    distag_worker* live = peek(worker);
    return live == nullptr || live->host() == nullptr ? -1 : live->host()->fd();
  });
}

const char* distag_worker_get_name(distag_worker* worker) {
  return guard_or<const char*>(nullptr, [worker]() -> const char* {
    distag_worker* live = peek(worker);
    return live == nullptr ? nullptr : live->hosted().name();
  });
}

int32_t distag_worker_get_rank(distag_worker* worker) {
  return guard_or<int32_t>(-1, [worker] {
    distag_worker* live = peek(worker);
    return live == nullptr ? -1 : live->core().rank();
  });
}

int32_t distag_worker_get_world_size(distag_worker* worker) {
  return guard_or<int32_t>(0, [worker] {
    distag_worker* live = peek(worker);
    return live == nullptr ? 0 : live->core().world_size();
  });
}

namespace {

struct GatherArguments {
  const int32_t* ranks;
  size_t rank_count;
  int64_t timeout_ns;
};

std::shared_ptr<Future<Value>> begin_all_gather(distag_worker& worker, const Value& value,
                                                const GatherArguments& given) {
  check_copied_array(given.ranks, given.rank_count, "ranks");
  const Nanos timeout = need_timeout(given.timeout_ns, "timeout_ns");
  worker.check_up();
  std::optional<std::vector<int32_t>> named;
  if (given.ranks != nullptr) named.emplace(given.ranks, given.ranks + given.rank_count);
  return worker.core().group().all_gather(value, std::move(named), timeout);
}

}  // namespace

distag_status distag_worker_all_gather(distag_worker* worker, distag_value* value, const int32_t* ranks,
                                       size_t rank_count, int64_t timeout_ns, distag_value** out_values,
                                       distag_error* err) {
  clear(out_values);
  return guard(__func__, err, [=] {
    check_present({worker, value}, {"worker", "value"});
    // Held: other threads may release their references during the wait.
    const auto held = Ref<distag_worker>::share(&need_worker(worker));
    const Value given = need(value, "value").get();
    check_can_wait();
    const Lead lead(held->core().loop());
    const auto gathered = begin_all_gather(*held, given, {ranks, rank_count, timeout_ns});
    wait_or_cancel(*gathered);
    const Value& values = gathered->value();
    if (out_values != nullptr) *out_values = make_value(values);
  });
}

distag_status distag_worker_all_gather_async(distag_worker* worker, distag_value* value, const int32_t* ranks,
                                             size_t rank_count, int64_t timeout_ns, distag_future** out_future,
                                             distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    check_present({worker, value}, {"worker", "value"});
    distag_worker& live = need_worker(worker);
    const Value given = need(value, "value").get();
    need_pointer(out_future, "out_future");
    *out_future = new distag_future(begin_all_gather(live, given, {ranks, rank_count, timeout_ns}), live);
  });
}
