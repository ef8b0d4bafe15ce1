#include "spmd/checkpoint_items.h"

#include "base/error.h"
#include "layout/spec_text.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "store/index.h"

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

// How many members have a part of it.
int64_t replicas_of(const MeshShape& mesh, const layout::Spec& spec) {
  const AxisSet all = (AxisSet{1} << mesh.axis_count()) - 1;
  return mesh.size_of(layout::axes_of(all & ~spec.cut()));
}

Tensor without_sum(const Line& line, const std::string& path, const Tensor& tensor) {
  const Sharding* sharding = Sharding::of(tensor);
  if (sharding == nullptr) return tensor;
  if (&sharding->program() != line.program.get()) {
    fail(Status::kInvalidArgument, "\"{}\": {} is of another mesh: save it there", path, sharding->describe());
  }
  const layout::Spec spec = sharding->lying().spec;
  if (line.program->shape().used(spec.partial()) == 0) return tensor;
  return redistribute(tensor, print_spec(line.program->shape(), spec.dual()), {});
}

}  // namespace

uint64_t SavedValue::fingerprint(const MeshShape& mesh) const {
  Fingerprint fingerprint;
  fingerprint.add(tree);
  for (const SavedTensor& tensor : tensors) {
    fingerprint.add(tensor.path).add(store::stored_name(tensor.dtype)).add(to_string(tensor.shape));
    fingerprint.add(print_spec(mesh, tensor.spec));
  }
  return fingerprint.value();
}

SavedValue items_of(const Line& line, const Value& value) {
  SavedValue saved;
  saved.tree = store::print_tree(value, [&](const std::string& path, const Tensor& given) {
    if (path == "__metadata__") fail(Status::kInvalidArgument, "\"{}\" is a name of the format: take another", path);
    const Tensor tensor = without_sum(line, path, given);
    SavedTensor item{path, tensor, tensor.dtype(), tensor.shape(), layout::Spec(tensor.rank())};
    store::stored_name(item.dtype);  // which refuses others
    if (const Sharding* sharding = Sharding::of(tensor)) {
      const Lying lying = sharding->lying();
      item.spec = lying.spec.dual();
      item.elements = lying.shard;
    }
    saved.tensors.push_back(std::move(item));
  });
  return saved;
}

std::vector<WrittenPart> parts_written_by(const MeshShape& mesh, const std::vector<SavedTensor>& tensors,
                                          int64_t position) {
  std::vector<WrittenPart> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SavedTensor& tensor = tensors[i];
    if (element_count(tensor.shape) == 0) {  // whole, so that others find it by its name
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
