#include "spmd/checkpoint_items.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "layout/spec_text.h"
#include "spmd/sharding.h"
#include "store/safetensors.h"
#include "store/tree.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

using layout::AxisSet;
using layout::Box;
using layout::MeshShape;

// FNV-1a: the same on all members.
uint64_t hash_of(const std::string& path) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// The number of members that hold each part.
int64_t replicas_of(const MeshShape& mesh, const layout::Spec& spec) {
  const AxisSet all = (AxisSet{1} << mesh.axis_count()) - 1;
  return mesh.size_of(layout::axes_of(all & ~spec.cut()));
}

void read_lying(const Program& program, SavedTensor& item, const Sharding& sharding) {
  if (&sharding.program() != &program) {
    fail(Status::kInvalidArgument, "\"{}\": {} is of another mesh: save it there", item.path, sharding.describe());
  }
  Lying lying = sharding.lying();
  item.from = lying.spec;
  item.spec = lying.spec.dual();
  item.elements = std::move(lying.shard);
  item.is_copy = false;
}

}  // namespace

std::map<std::string, std::string> SavedValue::describe(const Program& program) const {
  std::map<std::string, std::string> entries = store::entries_of_tree(tree);
  for (const SavedTensor& tensor : tensors) {
    entries[tensor.path] = fmt::format("{}{} {}", dtype_name(tensor.dtype), to_string(tensor.shape),
                                       print_spec(program.shape(), tensor.from));
    if (tensor.is_copy) entries[tensor.path] += program.describe_replicas({&tensor.elements, 1});
  }
  return entries;
}

SavedValue items_of(const Program& program, const Value& value, bool are_kept) {
  SavedValue saved;
  saved.tree = store::print_tree(value, [&](const std::string& path, const Tensor& tensor) {
    if (path == "__metadata__") fail(Status::kInvalidArgument, "\"{}\" is a name of the format: take another", path);
    const layout::Spec whole(tensor.rank());
    SavedTensor item{path, tensor, tensor.dtype(), tensor.shape(), whole, whole, true};
    store::stored_name(item.dtype);  // refuses a dtype that the format lacks
    check_not_shape_only(tensor);
    if (const Sharding* sharding = Sharding::of(tensor)) read_lying(program, item, *sharding);
    saved.tensors.push_back(std::move(item));
  });
  // Large elements first, as other writers do: this aligns them.
  std::sort(saved.tensors.begin(), saved.tensors.end(), [](const SavedTensor& a, const SavedTensor& b) {
    const size_t size = dtype_size(a.dtype);
    return size != dtype_size(b.dtype) ? size > dtype_size(b.dtype) : a.path < b.path;
  });
  if (!are_kept) return saved;
  try {
    for (SavedTensor& tensor : saved.tensors) tensor.elements = tensor.elements.snapshot();
  } catch (...) {
    saved.failure = current_error();
  }
  return saved;
}

void sum_parts(CallOnLine& call, SavedValue& saved) {
  for (SavedTensor& tensor : saved.tensors) {
    tensor.elements = call.move(tensor.shape, tensor.elements, tensor.from, tensor.spec);
  }
}

std::vector<WrittenPart> parts_written_by(const MeshShape& mesh, const std::vector<SavedTensor>& tensors,
                                          int64_t position) {
  std::vector<WrittenPart> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SavedTensor& tensor = tensors[i];
    if (element_count(tensor.shape) == 0) {  // position 0 writes it, so that readers find its name
      Dims zero;
      zero.resize(tensor.shape.size());
      if (position == 0) parts.push_back({i, {zero, tensor.shape}});
      continue;
    }
    const Box box = box_of(mesh, tensor.spec, tensor.shape, position);
    if (box.empty()) continue;
    const auto writer = hash_of(tensor.path) % static_cast<uint64_t>(replicas_of(mesh, tensor.spec));
    if (static_cast<uint64_t>(replica_of(mesh, tensor.spec, tensor.shape, position)) == writer)
      parts.push_back({i, box});
  }
  return parts;
}

Tensor elements_of(const MeshShape& mesh, const SavedTensor& tensor, const Box& box, int64_t position) {
  const Tensor held = tensor.elements.hold();
  if (element_count(box.extent) == 0) return Tensor::empty(tensor.dtype, box.extent);
  const Box own = box_of(mesh, tensor.spec, tensor.shape, position);
  int64_t offset = held.offset();
  for (size_t d = 0; d < box.offset.size(); ++d) offset += (box.offset[d] - own.offset[d]) * held.strides()[d];
  return held.view(box.extent, held.strides(), offset).contiguous();
}

}  // namespace distag::spmd
