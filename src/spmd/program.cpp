#include "spmd/program.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/executor.h"
#include "layout/spec_text.h"
#include "spmd/op_key.h"
#include "spmd/part_ops.h"

namespace distag::spmd {
namespace {

std::string text_of(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kBool:
      return value.as_bool() ? "true" : "false";
    case ValueKind::kInt64:
      return fmt::format("{}", value.as_int64());
    case ValueKind::kFloat64:
      return fmt::format("{}", value.as_float64());
    case ValueKind::kText:
      return fmt::format("\"{}\"", value.as_text());
    case ValueKind::kList: {
      std::string text = "[";
      for (const Value& item : value.as_list()) text += (text.size() > 1 ? ", " : "") + text_of(item);
      return text + "]";
    }
    default:  // no attribute is of another kind
      return "?";
  }
}

// "sum(('x', None) float32[4, 4], dims = [0])"
std::string text_of(const layout::MeshShape& mesh, const layout::OpCall& call) {
  std::string text = fmt::format("{}(", call.op);
  const char* between = "";
  for (const layout::Operand& operand : call.inputs) {
    text += between;
    between = ", ";
    text += operand.is_defined ? fmt::format("{} {}{}", print_spec(mesh, operand.spec), dtype_name(operand.dtype),
                                             to_string(operand.shape))
                               : "none";
  }
  for (const auto& [name, value] : call.attributes) text += fmt::format(", {} = {}", name, text_of(value));
  return text + ")";
}

std::shared_ptr<const OpPlan> make_plan(const Mesh& mesh, const layout::OpCall& call, const std::string& key) {
  auto plan = std::make_shared<OpPlan>();
  plan->rule = rule_of(call);
  plan->placement = choose_placement(mesh.shape(), call, plan->rule);
  plan->local = local_call(mesh.shape(), call, plan->rule, plan->placement, mesh.position());
  plan->op = ops::find_op(plan->local.op);
  if (plan->local.part) plan->part = &find_part_op(plan->local.op);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    plan->moves.push_back(call.inputs[i].is_defined &&
                          !places_alike(mesh.shape(), call.inputs[i].spec, plan->placement.inputs[i]));
  }
  plan->has_unequal_parts = has_unequal_parts(mesh.shape(), call, plan->rule, plan->placement);
  plan->text = text_of(mesh.shape(), call);
  plan->hash = Fingerprint().add(key).value();
  return plan;
}

}  // namespace

void add_spec(Fingerprint& fingerprint, const layout::Spec& spec) {
  fingerprint.add(spec.rank());
  for (size_t d = 0; d < spec.rank(); ++d) {
    uint64_t axes = 1;
    for (uint8_t axis : spec.dim(d)) axes = axes * layout::kMaxAxes + axis;
    fingerprint.add(axes);
  }
  fingerprint.add(spec.partial());
}

Tensor await(Future<Tensor>& future) {
  wait(future, kForever);
  return future.value();
}

Program::Program(std::shared_ptr<MeshUse> use, Warn warn, void* host)
    : use_(std::move(use)), warn_(std::move(warn)), host_(host) {}

Program::LineState& Program::line(const std::string& name) { return lines_.try_emplace(name, name).first->second; }

std::shared_ptr<MeshLine> Program::turns_of(const std::string& name) {
  MutexLock lock(mutex_);
  return line(name).turns;
}

void Program::forget_line(const std::string& name) {
  MutexLock lock(mutex_);
  lines_.erase(name);
}

std::shared_ptr<Completion> Program::follow_work(const std::string& name, std::shared_ptr<Completion> next) {
  MutexLock lock(mutex_);
  return std::exchange(line(name).last_work, std::move(next));
}

void Program::add_entry(const EntryName& name, const std::shared_ptr<autograd::Node>& node) {
  MutexLock lock(mutex_);
  if (entries_.size() >= most_entries_) {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
    most_entries_ = std::max<size_t>(64, 2 * entries_.size());
  }
  entries_[name] = node;
}

std::shared_ptr<autograd::Node> Program::find_entry(const EntryName& name) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<const OpPlan> Program::plan(const layout::OpCall& call) {
  std::string key = key_of(call);
  {
    MutexLock lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
  }
  mesh().count_plan_miss();
  auto plan = make_plan(mesh(), call, key);
  MutexLock lock(mutex_);
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_.emplace(std::move(key), plan);
  return plan;
}

std::string Program::describe_replicas(std::span<const Tensor> tensors) const {
  if (!mesh().policy().check_replicas) return {};
  Fingerprint fingerprint;
  size_t count = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor || tensor.shard_slot() != nullptr) continue;
    const Tensor held = tensor.hold().contiguous();
    fingerprint.add(std::span<const std::byte>(held.data(), held.byte_size()));
    ++count;
  }
  return count == 0 ? "" : fmt::format(" with plain elements of hash {:016x}", fingerprint.value());
}

void Program::on_hidden_move(const std::string& text) {
  if (mesh().policy().hidden_moves == MeshPolicy::HiddenMoves::kRefuse) {
    fail(Status::kInvalidState, "{}; the mesh refuses that: redistribute the tensor where it is meant to move", text);
  }
  mesh().count_hidden_move();
  if (mesh().policy().hidden_moves == MeshPolicy::HiddenMoves::kLog && warn_) warn_(text);
}

CallOnLine::CallOnLine(const Line& line, const char* text)
    : line_(line), text_(text), turns_(line.program->turns_of(line.name)), turn_(*turns_, text) {
  const auto& ended = line.program->mesh().when_ended();
  if (ended->is_done()) throw *ended->error();
  MutexLock lock(line.program->mutex_);
  number_ = ++line.program->line(line.name).calls;
}

void CallOnLine::make_elements(const Tensor& plain) {
  try {
    plain.storage().make_elements();
  } catch (...) {
    end_mesh(current_error());
    throw;
  }
}

// Waits until the loop has ended the mesh: a next call that sends nothing would not notice otherwise.
void CallOnLine::end_mesh(const Error& error) {
  Mesh& mesh = line_.program->mesh();
  mesh.end(error);
  wait(*mesh.when_ended(), kForever);
}

void CallOnLine::note(const std::string& text, uint64_t fingerprint) {
  line_.program->mesh().note(line_.name, text, fingerprint);
}

void CallOnLine::note_failure(const std::string& text, const Error& error) {
  note(text, Fingerprint().add(text).add(error.message()).value());
}

std::shared_ptr<Future<Tensor>> CallOnLine::begin_move(const Dims& shape, const Tensor& shard, const layout::Spec& from,
                                                       const layout::Spec& to, bool is_bounded) {
  RedistributeCall call;
  call.is_bounded = is_bounded;
  std::tie(call.timeout, call.time_left) = patience();
  call.within = text_;
  call.shape = shape;
  call.shard = shard;
  call.from = from;
  call.to = to;
  call.line = line_.name;
  return line_.program->mesh().redistribute(std::move(call));
}

Tensor CallOnLine::move(const Dims& shape, const Tensor& shard, const layout::Spec& from, const layout::Spec& to) {
  const layout::MeshShape& mesh = line_.program->shape();
  if (places_alike(mesh, from, to)) return shard;
  const layout::Move move(mesh, shape, from, to);
  if (move.is_local()) {
    // A cut of a repeated tensor needs no other member.
    const layout::Box held = box_of(mesh, from, shape, line_.program->position());
    const layout::Box box = box_of(mesh, to, shape, line_.program->position());
    int64_t offset = shard.offset();
    for (size_t d = 0; !box.empty() && d < shape.size(); ++d) {
      offset += (box.offset[d] - held.offset[d]) * shard.strides()[d];
    }
    return shard.view(box.extent, shard.strides(), offset);
  }
  return await(*begin_move(shape, shard, from, to));
}

void CallOnLine::set_timeout(Nanos timeout) {
  if (timeout == 0) return;
  timeout_ = timeout;
  deadline_ = deadline_after(SteadyClock().now(), timeout);
}

std::pair<Nanos, Nanos> CallOnLine::patience() const {
  if (waits_for_ever_) return {kForever, 0};
  if (timeout_ == 0) return {0, 0};
  const Nanos left = time_left(deadline_);
  return {timeout_, left == 0 ? 1 : left};
}

CollectiveCall CallOnLine::collective(CollectiveKind kind) const {
  CollectiveCall call;
  call.kind = kind;
  std::tie(call.timeout, call.time_left) = patience();
  call.within = text_;
  call.axes = layout::axes_of((layout::AxisSet{1} << line_.program->shape().axis_count()) - 1);
  call.line = line_.name;
  call.waits_for_room = true;
  return call;
}

std::shared_ptr<Future<Tensor>> CallOnLine::begin_reduce(const Tensor& x, const layout::Axes& axes,
                                                         Reduction reduction) {
  CollectiveCall call = collective(CollectiveKind::kAllReduce);
  call.tensor = x;
  call.reduction = reduction;
  call.axes = axes;
  call.sizes_differ = true;
  return line_.program->mesh().collective(std::move(call));
}

Tensor CallOnLine::broadcast(const Tensor& x, int64_t root) {
  CollectiveCall call = collective(CollectiveKind::kBroadcast);
  call.tensor = x;
  call.root = root;
  return await(*line_.program->mesh().collective(std::move(call)));
}

Tensor CallOnLine::gather_rows(const Tensor& row) { return gather_rows(collective(CollectiveKind::kAllGather), row); }

Tensor CallOnLine::gather_words(const Tensor& row) {
  CollectiveCall call = collective(CollectiveKind::kAllGather);
  call.is_word_of_pass = true;
  return gather_rows(std::move(call), row);
}

Tensor CallOnLine::gather_rows(const Tensor& row, const layout::Axes& axes) {
  CollectiveCall call = collective(CollectiveKind::kAllGather);
  call.axes = axes;
  call.sizes_differ = true;
  return gather_rows(std::move(call), row);
}

Tensor CallOnLine::gather_rows(CollectiveCall call, const Tensor& row) {
  call.tensor = row.view({1, row.count()}, {row.count(), 1}, row.offset());
  return await(*line_.program->mesh().collective(std::move(call)));
}

}  // namespace distag::spmd
