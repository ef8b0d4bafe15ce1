// Collectives on plain tensors.

#include <algorithm>
#include <memory>
#include <optional>

#include "autograd/autograd.h"
#include "base/host_code.h"
#include "base/lead.h"
#include "capi/future.h"
#include "capi/mesh.h"
#include "capi/struct_check.h"
#include "layout/spec_text.h"

using namespace distag;
using namespace distag::capi;

namespace {

// The arguments of distag_collective as the host gave them.
struct Given {
  uint32_t kind;
  const char* axes;
  distag_tensor* x;
  const distag_collective_options* options;
};

layout::Axes need_axes(const layout::MeshShape& mesh, const char* axes) {
  if (axes != nullptr) return layout::parse_axes(mesh, need_text(axes, "axes"));
  return layout::axes_of((layout::AxisSet{1} << mesh.axis_count()) - 1);
}

CollectiveCall make_call(const layout::MeshShape& mesh, const std::string& line, const Given& given) {
  CollectiveCall call;
  call.tensor = need(given.x, "x").tensor();
  if (given.kind == 0) refuse(Status::kInvalidArgument, "kind is 0: give one of DISTAG_ALL_REDUCE to DISTAG_PERMUTE");
  need_enumerator(given.kind, DISTAG_PERMUTE, "kind", "DISTAG_ALL_REDUCE to DISTAG_PERMUTE");
  call.kind = static_cast<CollectiveKind>(given.kind);
  call.axes = need_axes(mesh, given.axes);
  const distag_collective_options options = read_struct(given.options, "distag_collective_options");
  need_enumerator(options.reduction, DISTAG_MAX, "reduction", "DISTAG_SUM, _PRODUCT, _MIN, _MAX");
  const bool reduces =
      given.kind == DISTAG_ALL_REDUCE || given.kind == DISTAG_REDUCE_SCATTER || given.kind == DISTAG_REDUCE;
  if (!reduces && options.reduction > DISTAG_SUM) {
    refuse(Status::kUnsupported, "reduction is that of DISTAG_ALL_REDUCE, _REDUCE_SCATTER and _REDUCE: leave it 0");
  }
  if (options.reduction != 0) call.reduction = static_cast<Reduction>(options.reduction);
  call.dim = options.dim;
  call.dim_to = options.dim_to;
  call.root = options.root;
  call.shift = options.shift;
  call.timeout = need_timeout(options.timeout_ns, "timeout_ns");
  call.line = line;
  if (autograd::requires_grad(call.tensor)) {
    refuse(Status::kInvalidArgument, "x requires grad, and collectives on plain tensors are not recorded: detach it");
  }
  return call;
}

// A call that fails on its arguments still counts as a call of the line: so members that fail alike stay in step, and a
// member that fails alone is found.
std::shared_ptr<Future<Tensor>> begin(distag_mesh& mesh, const Given& given, bool waits_for_room) {
  Mesh& members = mesh.shared()->need_mesh();
  try {
    CollectiveCall call = make_call(members.shape(), mesh.line_name(), given);
    call.waits_for_room = waits_for_room;
    return members.collective(std::move(call));
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kOutOfMemory) throw;
    members.note(mesh.line_name(), "collective, which fails: " + std::string(error.message()),
                 Fingerprint().add(error.message()).value());
    throw;
  }
}

// A turn on a line that lasts until the end of the mesh is asked for, after a lack of memory: no other call comes
// before.
class OpenTurn {
 public:
  void begin(const spmd::Line& line, const char* call) {
    turns_ = line.program->turns_of(line.name);
    turn_.emplace(*turns_, call);
  }

 private:
  std::shared_ptr<MeshLine> turns_;
  std::optional<MeshLine::Turn> turn_;
};

// A lack of memory ends the mesh with that failure: the others cannot know that this member has not made the call.
template <typename Call>
void end_when_short(distag_mesh& mesh, Call call) {
  try {
    call();
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kOutOfMemory) mesh.shared()->need_mesh().end(error);
    throw;
  }
}

}  // namespace

distag_status distag_collective(distag_mesh* mesh, uint32_t kind, const char* axes, distag_tensor* x,
                                const distag_collective_options* options, distag_tensor** out_y, distag_error* err) {
  clear(out_y);
  return guard(__func__, err, [=] {
    const auto held = Ref<distag_mesh>::share(&need(mesh, "mesh"));
    need_pointer(out_y, "out_y");
    check_can_wait();
    Tensor y;
    OpenTurn turn;
    end_when_short(*held, [&] {
      turn.begin(held->shared()->line(held->line_name()), "distag_collective");
      const Lead lead(held->shared()->worker()->core().loop());
      const auto result = begin(*held, {kind, axes, x, options}, true);
      wait(*result, kForever);
      y = result->value();
    });
    if (y) *out_y = make_tensor(y);
  });
}

distag_status distag_collective_async(distag_mesh* mesh, uint32_t kind, const char* axes, distag_tensor* x,
                                      const distag_collective_options* options, distag_future** out_future,
                                      distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    distag_mesh& live = need(mesh, "mesh");
    need_pointer(out_future, "out_future");
    OpenTurn turn;
    end_when_short(live, [&] {
      turn.begin(live.shared()->line(live.line_name()), "distag_collective_async");
      auto future = Future<Value>::make();
      future->set_operation("collective");
      live.shared()->need_mesh();
      Ref<distag_future> given = Ref<distag_future>::take(new distag_future(future, *live.shared()->worker()));
      const auto result = begin(live, {kind, axes, x, options}, false);
      pass_on(result, future, [](const Tensor& y) { return y ? Value(y) : Value(); });
      *out_future = given.give();
    });
  });
}
