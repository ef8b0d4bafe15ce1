// Checkpoints.

#include "base/random.h"
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

distag_status distag_checkpoint_load(distag_mesh* mesh, const char* directory, distag_value* into, int64_t timeout_ns,
                                     distag_value** out_value, distag_error* err) {
  if (out_value != nullptr) clear(out_value);
  return guard(__func__, err, [=] {
    const std::string folder = need_folder(directory);
    const Value targets = into == nullptr ? Value() : need(into, "into").get();
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    check_can_wait();
    const Value loaded = mesh == nullptr ? spmd::load_checkpoint_alone(folder, targets)
                                         : spmd::load_checkpoint(line_of(need(mesh, "mesh")), folder, targets, timeout);
    if (out_value != nullptr) *out_value = make_value(loaded);
  });
}
