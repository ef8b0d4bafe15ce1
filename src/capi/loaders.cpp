// Loaders: batches of a mesh that the host's source makes ahead of the program.

#include "capi/loader.h"

#include <thread>

#include "base/host_callback.h"
#include "base/host_code.h"
#include "base/lead.h"
#include "capi/future.h"
#include "capi/mesh.h"
#include "capi/struct_check.h"
#include "capi/value.h"

using namespace distag;
using namespace distag::capi;

namespace {

constexpr size_t kMostSpecs = 65'536;

class HostSource final : public spmd::BatchSource {
 public:
  HostSource(distag_worker& worker, distag_batch_source source, HostData data)
      : worker_(worker), source_(source), data_(std::move(data)) {}

  Value make(uint64_t number, const std::vector<int64_t>* rows) override {
    const CallbackScope scope(&worker_.hosted());
    distag_error err = DISTAG_ERROR_INIT;
    distag_value* written = nullptr;
    const int64_t* const numbers = rows == nullptr ? nullptr : rows->data();
    const size_t count = rows == nullptr ? 0 : rows->size();
    const distag_status status =
        call_host([&] { return source_(data_.get(), number, numbers, count, &written, &err); });
    const Ref<distag_value> given = take_written(written);
    if (status != DISTAG_OK) throw callback_error(status, err, "the source");
    if (written != nullptr && !given) fail(Status::kInvalidArgument, "the source wrote no value to out_batch");
    return given ? given->get() : Value();
  }

 private:
  distag_worker& worker_;  // outlives the loader
  const distag_batch_source source_;
  const HostData data_;
};

std::vector<spmd::EntrySpec> read_specs(const distag_loader_options& options) {
  if (options.spec_count > kMostSpecs) {
    refuse(Status::kInvalidArgument, "spec_count is {}: at most {}", options.spec_count, kMostSpecs);
  }
  if (options.specs == nullptr && (options.keys != nullptr || options.spec_count > 0)) refuse_null("specs");
  if (options.keys == nullptr && options.spec_count > 1) {
    refuse(Status::kInvalidArgument, "{} specs without keys: give each its key, or one for any tensor",
           options.spec_count);
  }
  std::vector<spmd::EntrySpec> specs;
  for (size_t i = 0; i < options.spec_count; ++i) {
    spmd::EntrySpec entry;
    const char* const key = options.keys == nullptr ? nullptr : options.keys[i];
    if (key != nullptr) entry.key = need_text_item(options.keys, i, "keys");
    entry.spec = need_text_item(options.specs, i, "specs");
    specs.push_back(std::move(entry));
  }
  return specs;
}

spmd::LoaderSettings read_settings(const distag_loader_options& options) {
  spmd::LoaderSettings settings;
  need_enumerator(options.mode, DISTAG_BATCH_ROWS, "mode", "DISTAG_BATCH_GLOBAL, _LOCAL, _ROOT, _ROWS");
  if (options.mode != 0) settings.mode = static_cast<spmd::BatchMode>(options.mode);
  if (options.prefetch != 0) settings.prefetch = options.prefetch;
  if (options.concurrency != 0) settings.concurrency = options.concurrency;
  settings.specs = read_specs(options);
  settings.row_count = options.row_count;
  settings.batch_rows = options.batch_rows;
  settings.epochs = options.epochs;
  if (settings.epochs == 0 && settings.mode == spmd::BatchMode::kRows) settings.epochs = 1;
  settings.seed = options.seed;
  settings.shuffle = need_flag(options.shuffle, "shuffle");
  settings.drop_last = need_flag(options.drop_last, "drop_last");
  return settings;
}

// A source that asked its own loader for a batch would wait for itself.
void check_is_no_source(const distag_loader& loader) {
  if (!runs_callback_of(&loader.get())) return;
  refuse(Status::kInvalidState, "the source of this loader waits for a batch of it, which it is to make");
}

std::shared_ptr<Future<Value>> begin_next(const distag_loader& loader, int64_t timeout_ns) {
  const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
  return loader.get().next(timeout);
}

}  // namespace

void distag_loader_retain(distag_loader* loader) { retain_handle(loader); }
void distag_loader_release(distag_loader* loader) { release_handle(loader); }

distag_status distag_loader_create(distag_mesh* mesh, distag_batch_source source, void* user_data,
                                   distag_deleter destroy, const distag_loader_options* options,
                                   distag_loader** out_loader, distag_error* err) {
  GivenData data(user_data, destroy);
  clear(out_loader);
  return guard(__func__, err, [&] {
    const distag_mesh& live = need(mesh, "mesh");
    if (source == nullptr) refuse_null("source");
    need_pointer(out_loader, "out_loader");
    distag_worker* const worker = live.shared()->worker();
    if (worker == nullptr) refuse(Status::kInvalidArgument, "the mesh was made without a worker, which loaders need");
    const spmd::Line line = live.shared()->line(live.line_name());
    const distag_loader_options given = read_struct(options, "distag_loader_options");
    const spmd::LoaderSettings settings = read_settings(given);
    const Value state = given.state == nullptr ? Value() : need(given.state, "state").get();
    if (given.state != nullptr && state.is_null()) refuse(Status::kInvalidArgument, "state is null, not of a loader");
    const size_t threads = worker->hosted().threaded().thread_count();
    const spmd::Loader::Environment environment{worker->functions(), threads > 1 ? threads - 1 : 1};
    auto loader = spmd::Loader::create(line, environment, settings, state,
                                       std::make_unique<HostSource>(*worker, source, std::move(data)));
    try {
      *out_loader = new distag_loader(loader, *worker);
    } catch (...) {
      loader->close();
      throw;
    }
  });
}

distag_status distag_loader_next(distag_loader* loader, int64_t timeout_ns, distag_value** out_batch,
                                 distag_error* err) {
  clear(out_batch);
  return guard(__func__, err, [=] {
    const auto held = Ref<distag_loader>::share(&need(loader, "loader"));
    need_pointer(out_batch, "out_batch");
    check_is_no_source(*held);
    check_can_wait();
    const Lead lead(held->worker().core().loop());
    const auto future = begin_next(*held, timeout_ns);
    try {
      wait(*future, kForever);
    } catch (...) {
      future->cancel();
      while (!future->is_done()) std::this_thread::yield();  // a batch that was claimed for it comes at once
      if (future->error() != nullptr) throw;
    }
    const ReserveScope scope(held->worker().reserve());  // a batch that was taken is handed out
    const Value& batch = future->value();
    if (!batch.is_null()) *out_batch = make_value(batch);
  });
}

distag_status distag_loader_next_async(distag_loader* loader, int64_t timeout_ns, distag_future** out_future,
                                       distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    const distag_loader& live = need(loader, "loader");
    need_pointer(out_future, "out_future");
    check_is_no_source(live);
    const ReserveScope scope(live.worker().reserve());  // a batch that was taken has its future
    *out_future = new distag_future(begin_next(live, timeout_ns), live.worker());
  });
}

distag_status distag_loader_save(distag_loader* loader, distag_value** out_state, distag_error* err) {
  clear(out_state);
  return guard(__func__, err, [=] {
    const distag_loader& live = need(loader, "loader");
    need_pointer(out_state, "out_state");
    *out_state = make_value(live.get().save());
  });
}

distag_status distag_loader_get_info(distag_loader* loader, distag_loader_info* out_info, distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_info, sizeof(distag_loader_info))) fill_struct(out_info, distag_loader_info{});
    const distag_loader& live = need(loader, "loader");
    check_filled_struct(out_info, sizeof(distag_loader_info), "distag_loader_info");
    const spmd::LoaderInfo info = live.get().info();
    distag_loader_info filled{};
    filled.ready = info.ready;
    filled.next = info.next;
    filled.count = info.count;
    filled.dropped = info.dropped;
    filled.waited_ns = info.waited;
    filled.source_ns = info.in_source;
    fill_struct(out_info, filled);
  });
}
