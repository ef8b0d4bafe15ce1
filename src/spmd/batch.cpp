#include "spmd/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/autograd.h"
#include "coll/line.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

using layout::Box;
using layout::MeshShape;
using layout::Spec;

// A copy of one box of the tensor. If the box is all of the tensor, a snapshot of it.
Tensor cut_out(const Tensor& held, const Box& box) {
  if (box.extent == held.shape()) return held.contiguous().snapshot();
  int64_t offset = held.offset();
  for (size_t d = 0; !box.empty() && d < held.rank(); ++d) offset += box.offset[d] * held.strides()[d];
  return held.view(box.extent, held.strides(), offset).clone();
}

const Tensor& need_plain(const Value& item, const std::string& key) {
  const std::string what = key.empty() ? "the source gave" : fmt::format("the source gave for \"{}\"", key);
  if (item.kind() != ValueKind::kTensor) {
    fail(Status::kInvalidArgument, "{} {}: a batch is a tensor, or a list or map of tensors", what,
         kind_name(item.kind()));
  }
  check_not_shape_only(item.as_tensor());
  if (item.as_tensor().shard_slot() != nullptr) {
    fail(Status::kInvalidArgument, "{} {}, which is sharded already: give a plain tensor", what,
         distag::describe(item.as_tensor()));
  }
  return item.as_tensor();
}

}  // namespace

BatchRules::BatchRules(const MeshShape& mesh, int64_t position, const LoaderSettings& settings, bool compares_elements)
    : mesh_(mesh),
      position_(position),
      mode_(settings.mode),
      compares_elements_(compares_elements),
      specs_(mesh, settings) {}

layout::Range BatchRules::own_rows(const BatchRows::Range& range) const {
  const layout::Axes& axes = specs_.row_axes();
  return layout::block_of(range.count, mesh_.size_of(axes), mesh_.index_along(axes, position_));
}

bool BatchRules::is_asked(const BatchRows::Range& range) const {
  if (mode_ == BatchMode::kRoot) return position_ == 0;
  return mode_ != BatchMode::kRows || own_rows(range).extent > 0;
}

BatchEntry BatchRules::entry_of(const std::string& key, const Tensor& given, const BatchRows::Range& range) const {
  BatchEntry entry{key, given.dtype(), given.shape()};
  const Spec spec = specs_.of(key, given.rank());
  if (mode_ == BatchMode::kLocal) return entry;
  if (mode_ == BatchMode::kRows) {
    const int64_t rows = own_rows(range).extent;
    if (given.shape()[0] != rows) {
      fail(Status::kInvalidArgument, "the source gave {}{}, and was asked for {} rows", distag::describe(given),
           key.empty() ? "" : fmt::format(" for \"{}\"", key), rows);
    }
    entry.shape[0] = range.count;
  }
  check_shape(mesh_, spec, entry.shape, dtype_size(entry.dtype));
  return entry;
}

void BatchRules::add_parts(MadeBatch& made, const Tensor& given, const BatchEntry& entry) const {
  const Tensor held = given.hold();
  const Spec spec = specs_.of(entry.key, entry.shape.size());
  if (mode_ == BatchMode::kLocal) {
    made.parts.push_back(held.contiguous().snapshot());
    return;
  }
  for (int64_t position = 0; position < mesh_.count(); ++position) {
    if (mode_ != BatchMode::kRoot && position != position_) continue;
    Box box = box_of(mesh_, spec, entry.shape, position);
    if (mode_ == BatchMode::kRows) box.offset[0] = 0;  // `held` has this member's rows only
    made.parts.push_back(cut_out(held, box));
  }
}

uint64_t BatchRules::hash_of(const Tensors& given) const {
  if (!compares_elements_ || mode_ == BatchMode::kRoot || mode_ == BatchMode::kLocal) return 0;
  Fingerprint fingerprint;
  for (const Tensor& tensor : given) {
    const Tensor held = tensor.hold().contiguous();
    fingerprint.add(std::span<const std::byte>(held.data(), held.byte_size()));
  }
  return fingerprint.value() | 1;
}

MadeBatch BatchRules::take(const Value& given, const BatchRows::Range& range) const {
  MadeBatch made;
  if (given.is_null()) {
    made.word.kind = BatchWord::Kind::kEnd;
    return made;
  }
  made.word.kind = BatchWord::Kind::kBatch;
  std::vector<std::string> keys;
  Tensors tensors;
  const auto add = [&](const std::string& key, const Value& item) {
    tensors.push_back(need_plain(item, key));
    keys.push_back(key);
  };
  if (given.kind() == ValueKind::kMap) {
    made.word.form = BatchForm::kMap;
    for (const auto& [key, item] : given.as_map()) add(key, item);
  } else if (given.kind() == ValueKind::kList) {
    made.word.form = BatchForm::kList;
    for (const Value& item : given.as_list()) add("", item);
  } else {
    add("", given);
  }
  specs_.check_entries(made.word.form == BatchForm::kMap, keys);
  for (size_t i = 0; i < tensors.size(); ++i) made.word.entries.push_back(entry_of(keys[i], tensors[i], range));
  for (size_t i = 0; i < tensors.size(); ++i) add_parts(made, tensors[i], made.word.entries[i]);
  made.word.elements = hash_of(tensors);
  return made;
}

}  // namespace distag::spmd
