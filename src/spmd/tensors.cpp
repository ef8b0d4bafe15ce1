#include "spmd/tensors.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "layout/spec_text.h"
#include "spmd/entry_node.h"
#include "spmd/parts.h"
#include "tensor/deferred.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

using layout::Box;
using layout::MeshShape;
using layout::Spec;

Sharding& need_sharding(const Tensor& x, const char* what) {
  check_not_shape_only(x);
  Sharding* sharding = Sharding::of(x);
  if (sharding == nullptr) {
    fail(Status::kInvalidArgument, "{}: {} is not sharded: mark its sharding first", what, describe(x));
  }
  return *sharding;
}

uint64_t fingerprint_of(const std::string& text, const Tensor& x, const Sharding& sharding) {
  Fingerprint fingerprint;
  fingerprint.add(text).add(autograd::requires_grad(x) ? 1 : 0);
  return fingerprint.add(sharding.name().line).add(sharding.name().call).add(sharding.name().output).value();
}

std::string text_of(const char* what, const MeshShape& mesh, const Tensor& x, const Spec& from, const Spec& to) {
  return fmt::format("{}({} {}, {})", what, print_spec(mesh, from), describe(x), print_spec(mesh, to));
}

// Runs the part of a call whose failures are alike on all members.
template <typename Check>
auto checked(CallOnLine& call, const std::string& what, Check check) {
  try {
    return check();
  } catch (const Error& error) {
    call.note_failure(what, error);
    throw;
  }
}

// ---- redistribute ----

class RedistributeNode final : public ShardedNode {
 public:
  RedistributeNode(const CallOnLine& call, const Tensor& x, const Spec& to, bool with_gradient)
      : ShardedNode(call.line(), call.number(), edges_of({&x, 1}), {{x.shape(), to.dual(), !with_gradient}}) {
    set_saved(std::make_shared<NothingSaved>());
  }
  std::string name() const override { return "redistribute"; }
  Tensors run(SavedData&, Tensors gradients, CallOnLine&) override { return gradients; }
};

// ---- parts ----

// The gradient of a member's part is its part of the gradient.
class FromLocalNode final : public ShardedNode {
 public:
  FromLocalNode(const CallOnLine& call, const Tensor& local, const Dims& shape, const Spec& gradient_spec)
      : ShardedNode(call.line(), call.number(), edges_of({&local, 1}), {{shape, gradient_spec}}) {
    set_saved(std::make_shared<NothingSaved>());
  }
  std::string name() const override { return "from_local"; }
  Tensors run(SavedData&, Tensors gradients, CallOnLine&) override { return {shard_of(gradients[0])}; }
};

class ToLocalNode final : public MeshEntry {
 public:
  ToLocalNode(const CallOnLine& call, const Tensor& x, const Dims& local_shape, const Spec& gradient_spec)
      : MeshEntry(call.line(), call.number(), edges_of({&x, 1}), {{x.shape(), gradient_spec}}),
        dtype_(x.dtype()),
        local_shape_(local_shape) {
    set_saved(std::make_shared<NothingSaved>());
  }
  std::string name() const override { return "to_local"; }
  layout::AxisSet repeated() const override {
    const layout::MeshShape& mesh = line().program->shape();
    const layout::AxisSet all = (layout::AxisSet{1} << mesh.axis_count()) - 1;
    return mesh.used(all & ~output(0).wanted.cut() & ~output(0).wanted.partial());
  }
  Tensors run(SavedData&, Tensors gradients, CallOnLine& call) override {
    Tensor part = gradients[0];
    if (!part) {
      // The gradient is zero on this member; on others it may not be.
      part = Tensor::empty(dtype_, local_shape_);
      if (part.count() > 0) std::memset(part.mutable_data(), 0, part.byte_size());
    }
    return {make_sharded(call.line(), call.name_of(0), output(0).shape, output(0).wanted, part.contiguous())};
  }

 private:
  const Dtype dtype_;
  const Dims local_shape_;
};

// The spec of gradients of parts: it has the cuts of the tensor's spec.
Spec parse_gradient_spec(const MeshShape& mesh, const std::optional<std::string>& text, const Spec& own) {
  if (!text) return own.dual();
  const Spec spec = parse_spec(mesh, *text, own.rank());
  if (!places_alike(mesh, spec.dual(), own.dual())) {
    fail(Status::kInvalidArgument, "gradient_spec {} cuts another way than {}", print_spec(mesh, spec),
         print_spec(mesh, own));
  }
  return spec;
}

// Rank and sizes of all members' parts, one row for each member.
Tensor sizes_of(const Tensor& local) {
  Tensor row = Tensor::empty(Dtype::kInt64, {static_cast<int64_t>(kMaxRank) + 1});
  auto* sizes = row.mutable_data_as<int64_t>();
  std::fill_n(sizes, kMaxRank + 1, 0);
  sizes[0] = static_cast<int64_t>(local.rank());
  std::copy(local.shape().begin(), local.shape().end(), sizes + 1);
  return row;
}

Dims shape_in_row(const Tensor& rows, int64_t position) {
  const int64_t* row = rows.data_as<int64_t>() + position * rows.shape()[1];
  return Dims(std::span<const int64_t>(row + 1, static_cast<size_t>(row[0])));
}

std::vector<Dims> shapes_in(const Tensor& rows) {
  std::vector<Dims> shapes;
  for (int64_t position = 0; position < rows.shape()[0]; ++position) shapes.push_back(shape_in_row(rows, position));
  return shapes;
}

}  // namespace

Tensor redistribute(const Tensor& x, const std::string& text, RedistributeOptions options) {
  Sharding& sharding = need_sharding(x, "redistribute");
  CallOnLine call(sharding.line(), "redistribute");
  const MeshShape& mesh = sharding.program().shape();
  const Lying lying = sharding.lying();
  const std::string failed = fmt::format("redistribute({}, {})", describe(x), text);
  const Spec to = checked(call, failed, [&] {
    Spec parsed = parse_spec(mesh, text, x.rank());
    const layout::Move checks(mesh, x.shape(), lying.spec, parsed);
    return parsed;
  });
  const std::string what = text_of("redistribute", mesh, x, lying.spec, to);
  const uint64_t flags = (options.with_gradient ? 1 : 0) + (options.keep ? 2 : 0);
  call.note(what, Fingerprint().add(fingerprint_of(what, x, sharding)).add(flags).value());
  Tensor shard = call.move(x.shape(), lying.shard, lying.spec, to);
  if (shard.id() == lying.shard.id()) shard = autograd::detach(shard);
  Tensor y = make_sharded(call.line(), call.name_of(0), x.shape(), to, std::move(shard));
  if (!autograd::requires_grad(x)) return y;
  const bool forgets = is_parameter(x) && !options.keep && !sharding.program().keeps_gathered();
  const bool is_gathered = !layout::Move(mesh, x.shape(), lying.spec, to).is_local();
  if (forgets) Sharding::of(y)->set_origin(sharding.origin() ? *sharding.origin() : lying, is_gathered);
  autograd::set_history(y, {std::make_shared<RedistributeNode>(call, x, to, options.with_gradient), 0});
  return y;
}

Tensor from_local(const Line& line, const Tensor& local, const std::string& text, const std::optional<Dims>& shape,
                  const std::optional<std::string>& gradient_spec) {
  CallOnLine call(line, "from_local");
  const MeshShape& mesh = line.program->shape();
  std::string what = fmt::format("from_local({}, {}", dtype_name(local.dtype()), text);
  what += shape ? fmt::format(", {})", to_string(*shape)) : ")";
  Spec wanted;
  const Spec spec = checked(call, what, [&] {
    check_not_shape_only(local);
    if (Sharding::of(local) != nullptr) {
      fail(Status::kInvalidArgument, "from_local: {} is sharded already", describe(local));
    }
    Spec parsed = parse_spec(mesh, text, shape ? shape->size() : local.rank());
    if (shape) check_shape(mesh, parsed, *shape, dtype_size(local.dtype()));
    wanted = parse_gradient_spec(mesh, gradient_spec, parsed);
    return parsed;
  });
  call.note(
      what,
      Fingerprint().add(what).add(gradient_spec.value_or("")).add(autograd::requires_grad(local) ? 1 : 0).value());
  call.make_elements(local);
  Dims whole = shape.value_or(Dims());
  if (!shape && local.rank() > 0) {
    whole = shape_of_parts(mesh, spec, shapes_in(call.gather_rows(sizes_of(local))), "from_local");
  }
  if (local.shape() != local_shape(mesh, spec, whole, line.program->position())) {
    // The others do not know of the failure.
    Error error(Status::kInvalidArgument,
                fmt::format("from_local: {} is not the part of {} that this member has as {}: {}", describe(local),
                            to_string(whole), text, to_string(box_of(mesh, spec, whole, line.program->position()))));
    call.end_mesh(error);
    throw error;
  }
  Tensor x = make_sharded(line, call.name_of(0), whole, spec, autograd::detach(local));
  if (autograd::requires_grad(local)) {
    autograd::set_history(x, {std::make_shared<FromLocalNode>(call, local, whole, wanted), 0});
  }
  return x;
}

namespace {

void record_to_local(const Tensor& x, Sharding& sharding, const Lying& lying,
                     const std::optional<std::string>& gradient_spec, const Tensor& local) {
  const MeshShape& mesh = sharding.program().shape();
  CallOnLine call(sharding.line(), "to_local");
  const std::string what =
      fmt::format("to_local({} {}, {})", print_spec(mesh, lying.spec), describe(x), gradient_spec.value_or("None"));
  const Spec wanted = checked(call, what, [&] { return parse_gradient_spec(mesh, gradient_spec, lying.spec); });
  call.note(what, fingerprint_of(what, x, sharding));
  if (autograd::requires_grad(x)) {
    const auto node = std::make_shared<ToLocalNode>(call, x, lying.shard.shape(), wanted);
    autograd::set_history(local, {node, 0});
    sharding.program().add_entry(node->entry_name(), node);
  }
}

}  // namespace

// The part of a member stays readable after the mesh has ended, also if it ends during the call.
Tensor to_local(const Tensor& x, const std::optional<std::string>& gradient_spec) {
  Sharding& sharding = need_sharding(x, "to_local");
  const Lying lying = sharding.lying();
  Tensor local = autograd::detach(lying.shard);
  const auto& ended = sharding.program().mesh().when_ended();
  if (ended->is_done()) return local;
  try {
    record_to_local(x, sharding, lying, gradient_spec, local);
  } catch (...) {
    if (!ended->is_done()) throw;
    return autograd::detach(lying.shard);
  }
  return local;
}

namespace {

std::shared_ptr<Future<Tensor>> begin_gather(const Tensor& x, int64_t position, Nanos timeout, bool is_bounded) {
  Sharding& sharding = need_sharding(x, "gather");
  CallOnLine call(sharding.line(), "gather");
  call.set_timeout(timeout);
  const MeshShape& mesh = sharding.program().shape();
  const Lying lying = sharding.lying();
  const std::string what = fmt::format("gather({} {}, {})", print_spec(mesh, lying.spec), describe(x), position);
  checked(call, what, [&] {
    if (position >= -1 && position < mesh.count()) return;
    fail(Status::kInvalidArgument,
         "gather: the rank is not among the {} members of mesh \"{}\": give one of its ranks, or -1 for all",
         mesh.count(), mesh.name());
  });
  call.note(what, fingerprint_of(what, x, sharding));
  auto whole = Future<Tensor>::make();
  const bool is_wanted = position < 0 || position == sharding.program().position();
  if (places_alike(mesh, lying.spec, Spec(x.rank()))) {
    whole->complete(is_wanted ? lying.shard.contiguous().snapshot() : Tensor());
    return whole;
  }
  const auto moved = call.begin_move(x.shape(), lying.shard, lying.spec, Spec(x.rank()), is_bounded);
  pass_on(moved, whole, [is_wanted](const Tensor& value) { return is_wanted ? value : Tensor(); });
  return whole;
}

}  // namespace

std::shared_ptr<Future<Tensor>> gather_async(const Tensor& x, int64_t position, Nanos timeout) {
  return begin_gather(x, position, timeout, true);
}

Tensor gather(const Tensor& x, int64_t position, Nanos timeout) {
  return await(*begin_gather(x, position, timeout, false));
}

Tensor part_of_state(const Tensor& parameter, const Tensor& state) {
  if (state.shape() != parameter.shape()) return state;
  const Sharding& sharding = need_sharding(parameter, "load");
  const MeshShape& mesh = sharding.program().shape();
  const Spec spec = sharding.lying().spec;
  const Box box = box_of(mesh, spec, parameter.shape(), sharding.program().position());
  if (const Sharding* own = Sharding::of(state)) {
    const Program& program = own->program();
    const Lying lying = own->lying();
    const bool is_alike =
        &program == &sharding.program()
            ? places_alike(mesh, lying.spec, spec)
            : !own->is_partial() && box_of(program.shape(), lying.spec, state.shape(), program.position()) == box;
    if (is_alike) return lying.shard;
    fail(Status::kInvalidArgument, "load: the state is {}, and its parameter {}: redistribute it, or give the whole",
         own->describe(), sharding.describe());
  }
  if (const auto initialiser = state.initialiser()) {
    return make_box(*initialiser, state.dtype(), box.offset, box.extent);
  }
  const Tensor held = state.hold();
  int64_t offset = held.offset();
  for (size_t d = 0; !box.empty() && d < held.rank(); ++d) offset += box.offset[d] * held.strides()[d];
  return held.view(box.extent, held.strides(), offset).clone();
}

}  // namespace distag::spmd
