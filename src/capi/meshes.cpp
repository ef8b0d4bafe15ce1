// Meshes: making, lines, what they are and did.

#include "capi/mesh.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/host_code.h"
#include "base/named_future.h"
#include "base/not_started.h"
#include "base/parker.h"
#include "capi/future.h"
#include "capi/struct_check.h"
#include "capi/text_copy.h"
#include "worker/mesh_report.h"

using namespace distag;
using namespace distag::capi;

namespace {

constexpr size_t kLongestName = 127;
constexpr const char* kShapeVariable = "DISTAG_AUTO_SPMD_MESH";

// The arguments of distag_mesh_create as the host gave them.
struct Given {
  const int32_t* ranks;
  size_t rank_count;
  const int64_t* shape;
  const char* const* axis_names;
  size_t ndim;
  const distag_mesh_options* options;
};

// The mesh that the host wants.
struct Wanted {
  layout::MeshRequest request;
  MeshPolicy policy;
  Nanos timeout = 0;
};

Dims shape_of_environment() {
  const char* text = std::getenv(kShapeVariable);
  if (text == nullptr) return {-1, 1};
  const std::string_view all = text;
  Dims shape;
  for (size_t first = 0; first <= all.size() && shape.size() < layout::kMaxAxes;) {
    const size_t end = std::min(all.find(',', first), all.size());
    int64_t size = 0;
    const auto read = std::from_chars(all.data() + first, all.data() + end, size);
    if (read.ec != std::errc() || read.ptr != all.data() + end || size < 1) break;
    shape.push_back(size);
    if (end == all.size()) return shape;
    first = end + 1;
  }
  refuse(Status::kInvalidArgument, "{} is \"{}\", not 1 to {} sizes like \"2,2\"", kShapeVariable,
         all.substr(0, kLongestName), layout::kMaxAxes);
}

// Checks the product here, so that the failure names the variable.
void check_shape_of_environment(const Dims& shape, size_t count) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(product, size, &product)) product = 0;
  }
  if (product < 0 || product == static_cast<int64_t>(count)) return;
  refuse(Status::kInvalidArgument, "{}=\"{}\" makes a mesh of {} members, but there are {}", kShapeVariable,
         std::getenv(kShapeVariable), product, count);
}

std::vector<int32_t> ranks_of(distag_worker* worker, const Given& given) {
  std::vector<int32_t> ranks;
  if (given.ranks != nullptr && given.rank_count == 0) {
    refuse(Status::kInvalidArgument, "ranks are given, but rank_count is 0: give both, or NULL for all members");
  }
  if (given.rank_count > static_cast<size_t>(layout::kMaxMembers)) {
    refuse(Status::kInvalidArgument, "rank_count is {}: a mesh has at most {} members", given.rank_count,
           layout::kMaxMembers);
  }
  if (given.ranks != nullptr) return {given.ranks, given.ranks + given.rank_count};
  if (worker == nullptr) {
    for (size_t i = 0; i < given.rank_count; ++i) ranks.push_back(static_cast<int32_t>(i));
    return ranks;
  }
  for (const MemberRecord& member : worker->core().group().membership().all()) {
    if (member.state == Standing::kMember) ranks.push_back(member.peer.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  if (!std::binary_search(ranks.begin(), ranks.end(), worker->core().rank())) {
    refuse(Status::kInvalidState, "the worker has left its group");
  }
  if (given.rank_count != 0 && given.rank_count != ranks.size()) {
    refuse(Status::kInvalidArgument, "ranks is NULL and rank_count {}, but the group has {} living members",
           given.rank_count, ranks.size());
  }
  return ranks;
}

void read_shape(const Given& given, layout::MeshRequest& request) {
  request.shape = given.shape != nullptr ? Dims(std::span(given.shape, given.ndim)) : shape_of_environment();
  if (given.shape == nullptr) {
    if (given.ndim != 0 && given.ndim != request.shape.size()) {
      refuse(Status::kInvalidArgument, "shape is NULL and ndim {}, but the shape without one has {} axes", given.ndim,
             request.shape.size());
    }
    check_shape_of_environment(request.shape, request.ranks.size());
  }
  if (given.axis_names == nullptr) return;
  if (given.ndim == 0) refuse(Status::kInvalidArgument, "axis_names are given, but ndim is 0");
  for (size_t i = 0; i < given.ndim; ++i) {
    request.axis_names.push_back(need_text_item(given.axis_names, i, "axis_names"));
  }
}

Wanted read_wanted(distag_worker* worker, const Given& given) {
  const distag_mesh_options options = read_struct(given.options, "distag_mesh_options");
  Wanted wanted;
  need_enumerator(options.hidden_moves, DISTAG_HIDDEN_REFUSE, "hidden_moves", "DISTAG_HIDDEN_ALLOW, _LOG, _REFUSE");
  if (options.hidden_moves != 0) {
    wanted.policy.hidden_moves = static_cast<MeshPolicy::HiddenMoves>(options.hidden_moves);
  }
  wanted.policy.check_replicas = need_flag(options.check_replicas, "check_replicas");
  wanted.policy.keep_gathered = need_flag(options.keep_gathered, "keep_gathered");
  if (options.bucket_bytes != 0) wanted.policy.bucket_bytes = options.bucket_bytes;
  wanted.timeout = need_timeout(options.timeout_ns, "timeout_ns");
  if (options.name != nullptr) wanted.request.name = need_text(options.name, "name");
  if (wanted.request.name.empty() || wanted.request.name.size() > kLongestName) {
    refuse(Status::kInvalidArgument, "name has {} bytes: give 1 to {}", wanted.request.name.size(), kLongestName);
  }
  wanted.request.ranks = ranks_of(worker, given);
  read_shape(given, wanted.request);
  if (options.outer_shape != nullptr) {
    if (given.shape == nullptr) refuse(Status::kInvalidArgument, "outer_shape is given, but shape is NULL");
    wanted.request.outer_shape = Dims(std::span(options.outer_shape, given.ndim));
  }
  if (options.granules != nullptr) {
    wanted.request.granules.assign(options.granules, options.granules + wanted.request.ranks.size());
  }
  return wanted;
}

Ref<distag_mesh> begin_mesh(distag_worker* worker, const Given& given) {
  if (worker != nullptr) {
    worker->check_up();
    if (!worker->core().is_started()) refuse(Status::kInvalidState, "{}", kNotStarted);
  }
  Wanted wanted = read_wanted(worker, given);
  std::shared_ptr<MeshShared> shared;
  if (worker == nullptr) {
    shared = std::make_shared<MeshShared>(layout::MeshShape::make(wanted.request));
  } else {
    Meshes& meshes = worker->core().meshes();
    std::string creation = meshes.describe_creation(wanted.request.name);
    shared = std::make_shared<MeshShared>(
        *worker, meshes.create(std::move(wanted.request), wanted.timeout, wanted.policy), std::move(creation));
  }
  return Ref<distag_mesh>::take(new distag_mesh(std::move(shared), ""));
}

// Completes with null. To cancel it takes this worker out of the mesh, though the host keeps the handle.
std::shared_ptr<Future<Value>> as_null(const MeshShared& mesh) {
  const auto& made = mesh.made();
  auto future = make_named<Value>(mesh.creation());
  future->set_canceller([weak = std::weak_ptr(made)] {
    const auto cancelled = weak.lock();
    if (cancelled == nullptr) return;
    cancelled->cancel();
    cancelled->on_done([raw = cancelled.get()] {
      if (raw->error() == nullptr) raw->value()->mesh().leave();
    });
  });
  pass_on(made, future, [](const std::shared_ptr<MeshUse>&) { return Value(); });
  return future;
}

}  // namespace

void distag_mesh_retain(distag_mesh* mesh) { retain_handle(mesh); }
void distag_mesh_release(distag_mesh* mesh) { release_handle(mesh); }

distag_status distag_mesh_create(distag_worker* worker, const int32_t* ranks, size_t rank_count, const int64_t* shape,
                                 const char* const* axis_names, size_t ndim, const distag_mesh_options* options,
                                 distag_mesh** out_mesh, distag_error* err) {
  clear(out_mesh);
  return guard(__func__, err, [=] {
    distag_worker* live = need_or_null(worker, "worker");
    need_pointer(out_mesh, "out_mesh");
    check_can_wait();
    Ref<distag_mesh> mesh = begin_mesh(live, {ranks, rank_count, shape, axis_names, ndim, options});
    if (const auto& made = mesh->shared()->made()) {
      wait(*made, kForever);
      made->value();
    }
    *out_mesh = mesh.give();
  });
}

distag_status distag_mesh_create_async(distag_worker* worker, const int32_t* ranks, size_t rank_count,
                                       const int64_t* shape, const char* const* axis_names, size_t ndim,
                                       const distag_mesh_options* options, distag_mesh** out_mesh,
                                       distag_future** out_future, distag_error* err) {
  clear(out_mesh);
  clear(out_future);
  return guard(__func__, err, [=] {
    distag_worker* live = need_or_null(worker, "worker");
    need_pointer(out_mesh, "out_mesh");
    need_pointer(out_future, "out_future");
    if (live == nullptr) {
      refuse(Status::kUnsupported, "worker is NULL: a mesh without a worker is made by distag_mesh_create");
    }
    Ref<distag_mesh> mesh = begin_mesh(live, {ranks, rank_count, shape, axis_names, ndim, options});
    *out_future = new distag_future(as_null(*mesh->shared()), *live);
    *out_mesh = mesh.give();
  });
}

distag_status distag_mesh_get_info(distag_mesh* mesh, distag_mesh_info* out_info, distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_info, sizeof(distag_mesh_info))) fill_struct(out_info, distag_mesh_info{});
    distag_mesh& live = need(mesh, "mesh");
    check_filled_struct(out_info, sizeof(distag_mesh_info), "distag_mesh_info");
    fill_struct(out_info, live.info());
  });
}

distag_status distag_mesh_open_line(distag_mesh* mesh, const char* name, distag_mesh** out_line, distag_error* err) {
  clear(out_line);
  return guard(__func__, err, [=] {
    const distag_mesh& live = need(mesh, "mesh");
    const std::string wanted = need_text(name, "name");
    need_pointer(out_line, "out_line");
    const std::shared_ptr<MeshShared>& shared = live.shared();
    Mesh& members = shared->need_mesh();
    auto line = std::make_unique<std::string>(wanted);
    shared->lines().open(wanted);
    try {
      members.open_line(wanted);
      *out_line = new distag_mesh(shared, *std::move(line));
    } catch (...) {
      shared->lines().close(wanted);
      throw;
    }
  });
}

distag_status distag_mesh_get_stats(distag_mesh* mesh, distag_mesh_stats* out_stats, distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_stats, sizeof(distag_mesh_stats))) fill_struct(out_stats, distag_mesh_stats{});
    const distag_mesh& live = need(mesh, "mesh");
    check_filled_struct(out_stats, sizeof(distag_mesh_stats), "distag_mesh_stats");
    const Mesh* made = live.shared()->mesh();
    const MeshStats stats = made == nullptr ? MeshStats() : made->stats();
    distag_mesh_stats filled{};
    filled.calls = stats.calls;
    filled.all_reduces = stats.all_reduces;
    filled.all_gathers = stats.all_gathers;
    filled.reduce_scatters = stats.reduce_scatters;
    filled.all_to_alls = stats.all_to_alls;
    filled.broadcasts = stats.broadcasts;
    filled.moves = stats.moves;
    filled.hidden_moves = stats.hidden_moves;
    filled.bytes_sent = stats.bytes_sent;
    filled.bytes_received = stats.bytes_received;
    filled.bytes_held = stats.bytes_held;
    filled.bytes_held_max = stats.bytes_held_max;
    filled.plan_misses = stats.plan_misses;
    fill_struct(out_stats, filled);
  });
}

namespace {

constexpr Nanos kReportPatience = kSecond;

std::string report_of(const MeshShared& shared) {
  if (shared.worker() == nullptr) return write_report(shared.shape(), nullptr, MeshSnapshot());
  Mesh& mesh = shared.need_mesh();
  check_can_wait();
  const auto snapshot = mesh.fetch_snapshot();
  if (!park_until_done(*snapshot, kReportPatience)) {
    refuse(Status::kDeadline, "the worker is busy: its loop did not answer within {} ms",
           kReportPatience / kMillisecond);
  }
  if (snapshot->error() != nullptr) refuse(Status::kInvalidState, "the worker is shut down");
  return write_report(mesh.shape(), &mesh, snapshot->value());
}

}  // namespace

distag_status distag_mesh_copy_report(distag_mesh* mesh, char* buffer, size_t capacity, size_t* out_size,
                                      distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    const auto held = Ref<distag_mesh>::share(&need(mesh, "mesh"));
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    copy_text(report_of(*held->shared()), buffer, capacity, out_size);
  });
}
