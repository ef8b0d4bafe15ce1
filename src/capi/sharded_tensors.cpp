// Sharded tensors, and contexts that all members of a mesh share.

#include "capi/context.h"
#include "capi/future.h"
#include "capi/mesh.h"
#include "capi/op_call.h"
#include "capi/struct_check.h"
#include "capi/value.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "tensor/shape_only.h"

using namespace distag;
using namespace distag::capi;

namespace {

spmd::Line line_of(const distag_mesh& mesh) { return mesh.shared()->line(mesh.line_name()); }

// -1 is kept; a rank that is no member becomes an invalid position, which fails alike on all members.
int64_t position_of(const layout::MeshShape& mesh, int32_t rank) {
  if (rank == -1) return -1;
  return mesh.position_of(rank).value_or(mesh.count());
}

std::optional<std::string> text_or_none(const char* text, const char* name) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(need_text(text, name));
}

const Tensor& need_sharded(distag_tensor* x) {
  const Tensor& tensor = need(x, "x").tensor();
  check_not_shape_only(tensor);
  if (spmd::Sharding::of(tensor) == nullptr) {
    refuse(Status::kInvalidArgument, "{} is not sharded: mark its sharding first", describe(tensor));
  }
  return tensor;
}

}  // namespace

distag_status distag_tensor_mark_sharding(distag_tensor* tensor, distag_mesh* mesh, const char* spec,
                                          int32_t source_rank, distag_error* err) {
  return guard(__func__, err, [=] {
    const Tensor marked = need(tensor, "tensor").tensor();
    const spmd::Line line = line_of(need(mesh, "mesh"));
    check_can_wait();
    spmd::mark_sharding(marked, line, need_text(spec, "spec"), position_of(line.program->shape(), source_rank));
  });
}

distag_status distag_redistribute(distag_tensor* x, const char* spec, uint32_t flags, distag_tensor** out_y,
                                  distag_error* err) {
  clear(out_y);
  return guard(__func__, err, [=] {
    const Tensor from = need_sharded(x);
    need_pointer(out_y, "out_y");
    need_known_bits(flags, DISTAG_REDISTRIBUTE_GRADIENT | DISTAG_REDISTRIBUTE_KEEP, "flags");
    check_can_wait();
    spmd::RedistributeOptions options;
    options.with_gradient = (flags & DISTAG_REDISTRIBUTE_GRADIENT) != 0;
    options.keep = (flags & DISTAG_REDISTRIBUTE_KEEP) != 0;
    *out_y = make_tensor(spmd::redistribute(from, need_text(spec, "spec"), options));
  });
}

distag_status distag_tensor_from_local(distag_mesh* mesh, distag_tensor* local, const char* spec, const int64_t* shape,
                                       size_t ndim, const char* gradient_spec, distag_tensor** out_x,
                                       distag_error* err) {
  clear(out_x);
  return guard(__func__, err, [=] {
    const spmd::Line line = line_of(need(mesh, "mesh"));
    const Tensor part = need(local, "local").tensor();
    need_pointer(out_x, "out_x");
    std::optional<Dims> whole;
    if (shape != nullptr || ndim > 0) whole = need_dims(shape, ndim, "shape");
    check_can_wait();
    *out_x = make_tensor(
        spmd::from_local(line, part, need_text(spec, "spec"), whole, text_or_none(gradient_spec, "gradient_spec")));
  });
}

distag_status distag_tensor_to_local(distag_tensor* x, const char* gradient_spec, distag_tensor** out_local,
                                     distag_error* err) {
  clear(out_local);
  return guard(__func__, err, [=] {
    const Tensor from = need_sharded(x);
    need_pointer(out_local, "out_local");
    *out_local = make_tensor(spmd::to_local(from, text_or_none(gradient_spec, "gradient_spec")));
  });
}

distag_status distag_tensor_gather(distag_tensor* x, int32_t rank, int64_t timeout_ns, distag_tensor** out_y,
                                   distag_error* err) {
  clear(out_y);
  return guard(__func__, err, [=] {
    const Tensor from = need_sharded(x);
    need_pointer(out_y, "out_y");
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    check_can_wait();
    const int64_t position = position_of(spmd::Sharding::of(from)->program().shape(), rank);
    const Tensor whole = spmd::gather(from, position, timeout);
    if (whole) *out_y = make_tensor(whole);
  });
}

distag_status distag_tensor_gather_async(distag_tensor* x, int32_t rank, int64_t timeout_ns, distag_future** out_future,
                                         distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    const Tensor from = need_sharded(x);
    need_pointer(out_future, "out_future");
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    const spmd::Sharding& sharding = *spmd::Sharding::of(from);
    const auto shared = static_cast<MeshShared*>(sharding.program().host())->shared_from_this();
    auto future = Future<Value>::make();
    future->set_operation("tensor_gather");
    Ref<distag_future> given = Ref<distag_future>::take(new distag_future(future, *shared->worker()));
    const auto whole = spmd::gather_async(from, position_of(sharding.program().shape(), rank), timeout);
    pass_on(whole, future, [](const Tensor& y) { return y ? Value(y) : Value(); });
    *out_future = given.give();
  });
}

distag_mesh* distag_tensor_get_mesh(distag_tensor* tensor) {
  return guard_or<distag_mesh*>(nullptr, [=]() -> distag_mesh* {
    distag_tensor* live = peek(tensor);
    return live == nullptr ? nullptr : live->mesh();
  });
}

const char* distag_tensor_get_spec(distag_tensor* tensor) {
  return guard_or<const char*>(nullptr, [=]() -> const char* {
    const distag_tensor* live = peek(tensor);
    spmd::Sharding* sharding = live == nullptr ? nullptr : spmd::Sharding::of(live->tensor());
    return sharding == nullptr ? nullptr : sharding->spec_text();
  });
}

distag_status distag_context_create_joint(distag_mesh* mesh, distag_context** out_context, distag_error* err) {
  clear(out_context);
  return guard(__func__, err, [=] {
    const distag_mesh& live = need(mesh, "mesh");
    need_pointer(out_context, "out_context");
    const spmd::Line line = line_of(live);
    distag_worker* worker = live.shared()->worker();
    *out_context = new distag_context(spmd::make_joint_context(line, worker->core().dautograd()), worker);
  });
}
