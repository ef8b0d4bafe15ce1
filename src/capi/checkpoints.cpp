// Checkpoints.

#include "base/random.h"
#include "capi/future.h"
#include "capi/mesh.h"
#include "capi/value.h"
#include "spmd/checkpoint.h"

using namespace distag;
using namespace distag::capi;

namespace {

spmd::Line line_of(const distag_mesh& mesh) { return mesh.shared()->line(mesh.line_name()); }

std::string need_folder(const char* directory) {
  std::string folder = need_text(directory, "directory");
  if (folder.empty()) refuse(Status::kInvalidArgument, "directory is empty: name one");
  return folder;
}

// Failures that no future can report any more go to the log.
spmd::OnLost to_log(distag_worker& worker) {
  return [&log = worker.core().log()](const Error& error) {
    log.write(LogLevel::kError, fmt::format("{}: {}", status_name(error.status()), error.message()));
  };
}

}  // namespace

distag_status distag_checkpoint_save(distag_mesh* mesh, const char* directory, distag_value* value, int64_t timeout_ns,
                                     distag_error* err) {
  return guard(__func__, err, [=] {
    const spmd::Line line = line_of(need(mesh, "mesh"));
    const std::string folder = need_folder(directory);
    const Value saved = need(value, "value").get();
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    check_can_wait();
    SystemRandom random;
    spmd::save_checkpoint(line, folder, saved, timeout, random);
  });
}

distag_status distag_checkpoint_save_async(distag_mesh* mesh, const char* directory, distag_value* value,
                                           int64_t timeout_ns, distag_future** out_future, distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    const distag_mesh& live = need(mesh, "mesh");
    const spmd::Line line = line_of(live);
    distag_worker& worker = *live.shared()->worker();
    const std::string folder = need_folder(directory);
    const Value saved = need(value, "value").get();
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    need_pointer(out_future, "out_future");
    auto random = std::make_unique<SystemRandom>();
    auto begun = spmd::save_checkpoint_async(line, folder, saved, timeout, std::move(random), to_log(worker));
    const ReserveScope scope(worker.reserve());  // an operation that has begun gets its future
    *out_future = new distag_future(std::move(begun.future), worker, std::move(begun.is_seen));
  });
}

distag_status distag_checkpoint_load(distag_mesh* mesh, const char* directory, distag_value* into, int64_t timeout_ns,
                                     distag_value** out_value, distag_error* err) {
  if (out_value != nullptr) clear(out_value);
  return guard(__func__, err, [=] {
    const std::string folder = need_folder(directory);
    const Value targets = into == nullptr ? Value() : need(into, "into").get();
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    check_can_wait();
    if (mesh == nullptr && into == nullptr && out_value == nullptr) return spmd::check_checkpoint(folder);
    const Value loaded = mesh == nullptr ? spmd::load_checkpoint_alone(folder, targets)
                                         : spmd::load_checkpoint(line_of(need(mesh, "mesh")), folder, targets, timeout);
    if (out_value != nullptr) *out_value = make_value(loaded);
  });
}

distag_status distag_checkpoint_load_async(distag_mesh* mesh, const char* directory, distag_value* into,
                                           int64_t timeout_ns, distag_future** out_future, distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    const distag_mesh* const given = need_or_null(mesh, "mesh");
    const std::string folder = need_folder(directory);
    const Value targets = into == nullptr ? Value() : need(into, "into").get();
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    need_pointer(out_future, "out_future");
    if (given == nullptr) {
      refuse(Status::kUnsupported, "mesh is NULL: without one no thread is left to load, use distag_checkpoint_load");
    }
    const spmd::Line line = line_of(*given);
    distag_worker& worker = *given->shared()->worker();
    auto begun = spmd::load_checkpoint_async(line, folder, targets, timeout, to_log(worker));
    const ReserveScope scope(worker.reserve());  // likewise
    *out_future = new distag_future(std::move(begun.future), worker, std::move(begun.is_seen));
  });
}
