#include "capi/sharding_op.h"

#include <algorithm>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/executor.h"
#include "capi/boundary.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "tensor/shape_only.h"

namespace distag::capi {
namespace {

constexpr std::string_view kNames[] = {"axis_names", "device_ids", "mesh_shape", "partition_spec"};

const Value& need_attribute(const Attributes& attributes, std::string_view name, ValueKind kind) {
  const Value* value = find_attribute(attributes, name);
  if (value == nullptr) refuse(Status::kInvalidArgument, "mark_sharding: attribute \"{}\" is missing", name);
  if (value->kind() != kind) {
    refuse(Status::kInvalidArgument, "mark_sharding: attribute \"{}\" must be {}, not {}", name, kind_name(kind),
           kind_name(value->kind()));
  }
  return *value;
}

std::vector<int64_t> need_numbers(const Attributes& attributes, std::string_view name) {
  std::vector<int64_t> numbers;
  for (const Value& item : need_attribute(attributes, name, ValueKind::kList).as_list()) {
    if (item.kind() != ValueKind::kInt64) {
      refuse(Status::kInvalidArgument, "mark_sharding: attribute \"{}\" must be a list of int64", name);
    }
    numbers.push_back(item.as_int64());
  }
  return numbers;
}

// "('x', 'y')": the words between the marks.
std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kMarks = "()[]', \"";
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kMarks); at < text.size();) {
    const size_t end = std::min(text.find_first_of(kMarks, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kMarks, end);
  }
  return words;
}

void check_mesh(const spmd::Sharding& sharding, const Attributes& attributes) {
  const layout::MeshShape& mesh = sharding.program().shape();
  const std::vector<int64_t> ranks = need_numbers(attributes, "device_ids");
  const std::vector<int64_t> sizes = need_numbers(attributes, "mesh_shape");
  const std::string& text = need_attribute(attributes, "axis_names", ValueKind::kText).as_text();
  const std::vector<std::string> names = words_of(text);
  if (names.size() != sizes.size()) {
    refuse(Status::kInvalidArgument, "mark_sharding: axis_names {} has {} names, mesh_shape {} sizes", text,
           names.size(), sizes.size());
  }
  const bool is_that = std::equal(ranks.begin(), ranks.end(), mesh.ranks().begin(), mesh.ranks().end()) &&
                       std::equal(sizes.begin(), sizes.end(), mesh.sizes().begin(), mesh.sizes().end()) &&
                       names == mesh.axis_names();
  if (is_that) return;
  refuse(Status::kNotFound,
         "mark_sharding: the tensor lies on mesh \"{}\" of {} members with sizes {}, which device_ids, mesh_shape and "
         "axis_names do not describe",
         mesh.name(), mesh.count(), to_string(mesh.sizes()));
}

}  // namespace

bool is_sharding_op(std::string_view name) { return name == "mark_sharding"; }

Tensor apply_sharding_op(const Tensors& inputs, const Attributes& attributes, bool record) {
  if (inputs.size() != 1) refuse(Status::kInvalidArgument, "mark_sharding takes 1 input, not {}", inputs.size());
  for (const auto& [name, value] : attributes) {
    if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) continue;
    refuse(Status::kNotFound,
           "mark_sharding: no attribute \"{}\"; it takes device_ids, mesh_shape, axis_names and partition_spec", name);
  }
  const std::string& spec = need_attribute(attributes, "partition_spec", ValueKind::kText).as_text();
  check_not_shape_only(inputs[0]);
  const spmd::Sharding* sharding = spmd::Sharding::of(inputs[0]);
  if (sharding == nullptr) {
    refuse(Status::kInvalidArgument,
           "mark_sharding: {} is not sharded: mark its sharding by "
           "distag_tensor_mark_sharding first",
           describe(inputs[0]));
  }
  check_mesh(*sharding, attributes);
  check_can_wait();
  spmd::RedistributeOptions options;
  options.with_gradient = true;
  return spmd::redistribute(record ? inputs[0] : autograd::detach(inputs[0]), spec, options);
}

}  // namespace distag::capi
