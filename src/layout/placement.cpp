#include "layout/placement.h"

#include <tuple>

#include "base/error.h"

namespace distag::layout {
namespace {

constexpr int kNone = -1;   // the axis cuts nothing
constexpr int kStays = -2;  // all inputs are partial over the axis, and so is the output

// A factor for each axis of the mesh, or kNone or kStays.
using Assignment = std::array<int, kMaxAxes>;

// The largest number of bytes that an element of a result may take: sums of bool are int64.
int64_t result_item_size(const OpCall& call) {
  Dtype dtype = Dtype::kBool;
  for (const Operand& operand : call.inputs) {
    if (operand.is_defined) dtype = promote(dtype, operand.dtype);
  }
  return static_cast<int64_t>(dtype_size(dtype == Dtype::kBool ? Dtype::kInt64 : dtype));
}

class Chooser {
 public:
  Chooser(const MeshShape& mesh, const OpCall& call, const Rule& rule) : mesh_(mesh), call_(call), rule_(rule) {
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
      options_[axis] = axis < mesh.axis_count() ? options_of(static_cast<uint8_t>(axis)) : std::vector<int>{kNone};
    }
  }

  Placement best() {
    Assignment assignment{};
    visit(0, assignment);
    return best_;
  }

 private:
  struct Score {
    MoveClass moves = MoveClass::kData;
    int64_t bytes = 0;
    int partial = 0;
    int64_t received = 0;  // the share of `bytes` that brings the inputs
    bool operator<(const Score& other) const {
      return std::tie(moves, bytes, partial) < std::tie(other.moves, other.bytes, other.partial);
    }
  };

  // In the order of inputs and dims; kNone comes last.
  std::vector<int> options_of(uint8_t axis) const {
    if (mesh_.size(axis) == 1) return {kept_factor(axis)};
    if (rule_.is_linear && all_partial(axis)) return {kStays};
    std::vector<int> options;
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      if (!call_.inputs[i].is_defined) continue;
      const size_t dim = call_.inputs[i].spec.dim_of(axis);
      if (dim == call_.inputs[i].spec.rank()) continue;
      const int factor = rule_.inputs[i][dim].factor;
      const bool is_new = std::find(options.begin(), options.end(), factor) == options.end();
      // Table rows cannot be cut along an axis that already cuts rows of the index: the table is gathered over that
      // axis.
      const Spec& index = call_.inputs[rule_.index()].spec;
      const bool has_other_rows = rule_.form == LocalForm::kTableRows && i == rule_.table && dim == rule_.table_dim &&
                                  index.dim_of(axis) < index.rank();
      if (has_other_rows) continue;
      if (factor != FactorDim::kWhole && is_new) options.push_back(factor);
    }
    options.push_back(kNone);
    return options;
  }

  // An axis of one member cuts nothing; the spec keeps the axis if the dim passes.
  int kept_factor(uint8_t axis) const {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      if (!call_.inputs[i].is_defined) continue;
      const size_t dim = call_.inputs[i].spec.dim_of(axis);
      if (dim == call_.inputs[i].spec.rank()) continue;
      const int factor = rule_.inputs[i][dim].factor;
      if (factor != FactorDim::kWhole && rule_.factors[static_cast<size_t>(factor)] == FactorKind::kPass) return factor;
    }
    return kNone;
  }

  bool all_partial(uint8_t axis) const {
    bool any = false;
    for (const Operand& operand : call_.inputs) {
      if (!operand.is_defined) continue;
      if (!operand.spec.is_partial(axis)) return false;
      any = true;
    }
    return any;
  }

  void visit(size_t axis, Assignment& assignment) {
    if (axis == kMaxAxes) return consider(assignment);
    for (int option : options_[axis]) {
      assignment[axis] = option;
      visit(axis + 1, assignment);
    }
  }

  void consider(const Assignment& assignment) {
    std::vector<Axes> axes(rule_.factors.size());
    for (size_t factor = 0; factor < axes.size(); ++factor) {
      axes[factor] = ordered_axes(assignment, static_cast<int>(factor));
    }
    if (!boxes_agree(axes)) return;
    Placement placement;
    for (size_t i = 0; i < rule_.inputs.size(); ++i) {
      placement.inputs.push_back(spec_of(rule_.inputs[i], axes, stays(assignment)));
    }
    AxisSet sums = stays(assignment);
    AxisSet merged = 0;
    for (size_t factor = 0; factor < axes.size(); ++factor) {
      if (rule_.factors[factor] == FactorKind::kSum) sums |= set_of(axes[factor]);
      if (rule_.factors[factor] == FactorKind::kMerged) merged |= set_of(axes[factor]);
    }
    for (const auto& dims : rule_.outputs) placement.outputs.push_back(spec_of(dims, axes, sums));
    const Score score = scored(placement, sums & ~stays(assignment), merged);
    if (found_ && !(score < best_score_)) return;
    found_ = true;
    best_score_ = score;
    placement.moves = score.moves;
    placement.received = score.received;
    best_ = std::move(placement);
  }

  // The axes of a factor, in the order of the first input dim that has them all, else in mesh order.
  Axes ordered_axes(const Assignment& assignment, int factor) const {
    AxisSet wanted = 0;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
      if (assignment[axis] == factor) wanted |= AxisSet{1} << axis;
    }
    for (size_t i = 0; wanted != 0 && i < rule_.inputs.size(); ++i) {
      for (size_t dim = 0; dim < rule_.inputs[i].size(); ++dim) {
        const Axes& there = call_.inputs[i].spec.dim(dim);
        if (rule_.inputs[i][dim].factor != factor || (wanted & ~set_of(there)) != 0) continue;
        Axes ordered;
        for (uint8_t axis : there) {
          if (has_axis(wanted, axis)) ordered.push_back(axis);
        }
        return ordered;
      }
    }
    return axes_of(wanted);
  }

  // Whether dims of one factor with different sizes (a reshape) are cut into the same boxes of elements.
  bool boxes_agree(const std::vector<Axes>& axes) const {
    for (size_t factor = 0; factor < axes.size(); ++factor) {
      if (axes[factor].empty()) continue;
      const int64_t parts = mesh_.size_of(axes[factor]);
      std::optional<std::pair<int64_t, int64_t>> first;  // size and unit
      auto agrees = [&](const FactorDim& dim, int64_t size) {
        if (dim.factor != static_cast<int>(factor)) return true;
        if (!first) first = {size, dim.unit};
        return same_blocks(*first, {size, dim.unit}, parts);
      };
      for (size_t i = 0; i < rule_.inputs.size(); ++i) {
        for (size_t d = 0; d < rule_.inputs[i].size(); ++d) {
          if (!agrees(rule_.inputs[i][d], call_.inputs[i].shape[d])) return false;
        }
      }
      for (size_t i = 0; i < rule_.outputs.size(); ++i) {
        for (size_t d = 0; d < rule_.outputs[i].size(); ++d) {
          if (!agrees(rule_.outputs[i][d], rule_.output_shapes[i][d])) return false;
        }
      }
    }
    return true;
  }

  static bool same_blocks(std::pair<int64_t, int64_t> a, std::pair<int64_t, int64_t> b, int64_t parts) {
    if (a == b) return true;
    for (int64_t index = 0; index < parts; ++index) {
      const Range left = block_of(a.first, parts, index);
      const Range right = block_of(b.first, parts, index);
      if (left.offset * a.second != right.offset * b.second || left.extent * a.second != right.extent * b.second) {
        return false;
      }
    }
    return true;
  }

  static AxisSet stays(const Assignment& assignment) {
    AxisSet axes = 0;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
      if (assignment[axis] == kStays) axes |= AxisSet{1} << axis;
    }
    return axes;
  }

  static Spec spec_of(const std::vector<FactorDim>& dims, const std::vector<Axes>& axes, AxisSet partial) {
    Spec spec(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].factor != FactorDim::kWhole) spec.dim(d) = axes[static_cast<size_t>(dims[d].factor)];
    }
    spec.set_partial(partial & ~spec.cut());
    return spec;
  }

  Score scored(const Placement& placement, AxisSet newly_partial, AxisSet merged) const {
    Score score;
    // Merging is a choice if the first input is not cut there: it is done for a weight.
    const bool is_as_it_lies = (merged & ~call_.inputs[0].spec.cut()) == 0;
    score.moves = is_as_it_lies ? MoveClass::kNone : MoveClass::kParameters;
    std::vector<int64_t> received(static_cast<size_t>(mesh_.count()), 0);
    for (size_t i = 0; i < placement.inputs.size(); ++i) {
      const Operand& operand = call_.inputs[i];
      if (!operand.is_defined) continue;
      const Move move(mesh_, operand.shape, operand.spec, placement.inputs[i]);
      if (move.sum() == SumKind::kNothing && move.move() == MoveKind::kNothing) continue;
      const bool moves_data = move.move() != MoveKind::kNothing && !operand.is_parameter;
      score.moves = std::max(score.moves, moves_data ? MoveClass::kData : MoveClass::kParameters);
      const auto item = static_cast<int64_t>(dtype_size(operand.dtype));
      for (int64_t position = 0; position < mesh_.count(); ++position) {
        received[static_cast<size_t>(position)] +=
            item * (move.received_in_sum(position) + move.received_in_move(position));
      }
    }
    score.received = *std::max_element(received.begin(), received.end());
    score.bytes = score.received;
    if (score.moves != MoveClass::kNone) score.bytes += sum_bytes(placement, newly_partial);
    if (merged != 0) score.bytes += merge_bytes(placement, merged);
    score.partial = __builtin_popcount(placement.outputs.empty() ? 0 : placement.outputs[0].partial());
    return score;
  }

  // Bytes of the all_reduce that the newly partial axes of the outputs will need.
  int64_t sum_bytes(const Placement& placement, AxisSet newly_partial) const {
    const int64_t parts = mesh_.size_of(axes_of(newly_partial));
    int64_t bytes = 0;
    for (size_t i = 0; parts > 1 && i < placement.outputs.size(); ++i) {
      // Position 0 has the largest box.
      const int64_t count = box_of(mesh_, placement.outputs[i], rule_.output_shapes[i], 0).count();
      bytes += all_reduce_cost(count, parts) * result_item_size(call_);
    }
    return bytes;
  }

  // Bytes of the all_reduce of the numbers that members merge for each row.
  int64_t merge_bytes(const Placement& placement, AxisSet merged) const {
    int64_t rows = 1;
    const Box box = box_of(mesh_, placement.inputs[0], call_.inputs[0].shape, 0);
    for (size_t d = 0; d < box.extent.size(); ++d) {
      const int factor = rule_.inputs[0][d].factor;
      const bool is_merged =
          factor != FactorDim::kWhole && rule_.factors[static_cast<size_t>(factor)] == FactorKind::kMerged;
      if (!is_merged) rows *= box.extent[d];
    }
    return all_reduce_cost(rows * rule_.merged_numbers, mesh_.size_of(axes_of(merged))) * result_item_size(call_);
  }

  const MeshShape& mesh_;
  const OpCall& call_;
  const Rule& rule_;
  std::array<std::vector<int>, kMaxAxes> options_;
  bool found_ = false;
  Score best_score_;
  Placement best_;
};

// The spec of an input's gradient: an input that is repeated along an axis that cuts an output sees only a part of its
// uses.
Spec gradient_spec(const Spec& input, std::span<const Spec> outputs, bool is_added_once) {
  Spec spec = input.dual();
  AxisSet parted = 0;
  for (const Spec& output : outputs) parted |= output.cut() | (is_added_once ? 0 : output.partial());
  spec.set_partial(parted & ~input.cut() & ~input.partial());
  return spec;
}

Attributes with_local_shape(const MeshShape& mesh, const OpCall& call, const Rule& rule, const Placement& placement,
                            int64_t position) {
  const Dims shape = local_shape(mesh, placement.outputs[0], rule.output_shapes[0], position);
  return with_attribute(call.attributes, "shape", dims_value(shape));
}

Attributes with_local_diagonal(const MeshShape& mesh, const OpCall& call, const Placement& placement,
                               int64_t position) {
  const Box box = box_of(mesh, placement.inputs[0], call.inputs[0].shape, position);
  const size_t rank = box.offset.size();
  const int64_t diagonal = get_int(call.attributes, "diagonal", 0);
  // A diagonal beyond the tensor equals one at its edge, which cannot overflow.
  const int64_t rows = call.inputs[0].shape[rank - 2];
  const int64_t columns = call.inputs[0].shape[rank - 1];
  const int64_t moved = std::clamp(diagonal, -rows, columns) + box.offset[rank - 2] - box.offset[rank - 1];
  return with_attribute(call.attributes, "diagonal", Value(moved));
}

AxisSet merged_axes(const Rule& rule, const Placement& placement) {
  AxisSet merged = 0;
  for (size_t i = 0; i < rule.inputs.size(); ++i) {
    for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
      const int factor = rule.inputs[i][d].factor;
      if (factor == FactorDim::kWhole) continue;
      if (rule.factors[static_cast<size_t>(factor)] == FactorKind::kMerged)
        merged |= set_of(placement.inputs[i].dim(d));
    }
  }
  return merged;
}

std::optional<LocalCall::Part> part_of(const MeshShape& mesh, const OpCall& call, const Rule& rule,
                                       const Placement& placement, int64_t position) {
  const AxisSet merged = merged_axes(rule, placement);
  const bool has_rows = rule.form == LocalForm::kTableRows && !placement.inputs[rule.table].dim(rule.table_dim).empty();
  const bool has_mask = rule.form == LocalForm::kMaskOfBox && placement.inputs[0].cut() != 0;
  if (merged == 0 && !has_rows && !has_mask) return std::nullopt;
  const size_t input = has_rows ? rule.table : 0;
  const Dims& whole = call.inputs[input].shape;
  return LocalCall::Part{axes_of(merged), box_of(mesh, placement.inputs[input], whole, position), whole};
}

// The dim of the output that shares the factor of the one-dim input.
size_t added_dim(const Rule& rule) {
  const int factor = rule.inputs[*rule.added_once][0].factor;
  size_t dim = 0;
  while (rule.outputs[0][dim].factor != factor) ++dim;
  return dim;
}

}  // namespace

Placement choose_placement(const MeshShape& mesh, const OpCall& call, const Rule& rule) {
  Placement placement = Chooser(mesh, call, rule).best();
  for (size_t i = 0; i < placement.inputs.size(); ++i) {
    placement.gradients.push_back(gradient_spec(placement.inputs[i], placement.outputs, rule.added_once == i));
  }
  return placement;
}

bool has_unequal_parts(const MeshShape& mesh, const OpCall& call, const Rule& rule, const Placement& placement) {
  const auto is_unequal = [&mesh](const Spec& spec, const Dims& shape) {
    const Dims first = local_shape(mesh, spec, shape, 0);
    for (int64_t position = 1; position < mesh.count(); ++position) {
      if (local_shape(mesh, spec, shape, position) != first) return true;
    }
    return false;
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].is_defined && is_unequal(placement.inputs[i], call.inputs[i].shape)) return true;
  }
  for (size_t i = 0; i < placement.outputs.size(); ++i) {
    if (is_unequal(placement.outputs[i], rule.output_shapes[i])) return true;
  }
  return false;
}

LocalCall local_call(const MeshShape& mesh, const OpCall& call, const Rule& rule, const Placement& placement,
                     int64_t position) {
  LocalCall local{std::string(call.op), call.attributes, rule.scale, false, std::nullopt, std::nullopt};
  switch (rule.form) {
    case LocalForm::kSame:
    case LocalForm::kTableRows:
    case LocalForm::kMaskOfBox:
      break;
    case LocalForm::kSumOfMean:
      local.op = "sum";
      break;
    case LocalForm::kLossOfMean:
    case LocalForm::kLossOverWeights:
      local.attributes = with_attribute(call.attributes, "reduction", Value::text("sum"));
      local.is_over_weights = rule.form == LocalForm::kLossOverWeights;
      break;
    case LocalForm::kLossOfRows:
      local.attributes = with_attribute(call.attributes, "reduction", Value::text("sum"));
      // Members with all rows see which rows are ignored. Otherwise no row is ignored: a target equal to the default is
      // rejected.
      local.is_over_weights = mesh.used(placement.outputs[0].partial()) == 0;
      if (!local.is_over_weights) {
        local.attributes = with_attribute(local.attributes, "ignore_index", Value(INT64_MIN));
      }
      break;
    case LocalForm::kBlockOfShape:
      local.attributes = with_local_shape(mesh, call, rule, placement, position);
      break;
    case LocalForm::kReshape:
      local.op = "reshape";
      local.attributes = {
          {"shape", dims_value(local_shape(mesh, placement.outputs[0], rule.output_shapes[0], position))}};
      break;
    case LocalForm::kBandOfRows:
      local.attributes = with_local_diagonal(mesh, call, placement, position);
      break;
  }
  local.part = part_of(mesh, call, rule, placement, position);
  const Axes partial = axes_of(placement.outputs[0].partial());
  if (rule.added_once && !partial.empty()) {
    local.added_apart = {*rule.added_once, added_dim(rule), mesh.index_along(partial, position) == 0};
  }
  return local;
}

Spec meeting_spec(const Spec& own, std::span<const Spec> arrivals) {
  Spec spec = own.dual();
  AxisSet partial = 0;
  for (const Spec& arrival : arrivals) partial |= arrival.partial();
  spec.set_partial(partial & ~spec.cut());
  return spec;
}

}  // namespace distag::layout
