#include "tensor/access.h"

#include <algorithm>

#include "base/error.h"

namespace distag {
namespace {

// Runs before the locks are taken. Gives false if elements must be made and it may not wait.
bool make_all(std::span<const Tensor> tensors, bool may_wait) {
  for (const Tensor& tensor : tensors) {
    if (!tensor || tensor.is_held() || tensor.storage().is_made()) continue;
    if (!may_wait) return false;
    tensor.check_whole();
    tensor.storage().make_elements();
  }
  return true;
}

// Gives false if it would have to wait, and may not.
bool hold_all(std::span<Tensor> tensors, bool may_wait) {
  LockedStorages storages;
  bool is_common = true;
  for (const Tensor& tensor : tensors) {
    if (!tensor || tensor.is_held()) continue;
    storages.add(tensor.storage());
    is_common = is_common && !tensor.storage().is_deferred();
  }
  if (!is_common && !make_all(tensors, may_wait)) return false;
  if (may_wait) {
    storages.lock();
  } else if (!storages.try_lock()) {
    return false;
  }
  for (Tensor& tensor : tensors) {
    if (tensor && !tensor.is_held()) tensor.set_hold_locked();
  }
  return true;
}

Tensors tensors_of(const Values& values) {
  Tensors tensors;
  for (const Value& value : values) {
    value.for_each_tensor([&tensors](const Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

Values with_tensors(const Values& values, const Tensors& tensors) {
  Values result;
  result.reserve(values.size());
  auto next = tensors.begin();
  for (const Value& value : values) {
    result.push_back(value.map_tensors([&next](const Tensor&) { return *next++; }));
  }
  return result;
}

}  // namespace

HeldTensors::HeldTensors(std::span<const Tensor> tensors) : count_(tensors.size()) {
  std::span<Tensor> held(few_.data(), tensors.size());
  if (tensors.size() > few_.size()) {
    many_.assign(tensors.begin(), tensors.end());
    held = many_;
  } else {
    std::copy(tensors.begin(), tensors.end(), few_.begin());
  }
  hold_all(held, true);
}

bool try_hold(std::span<Tensor> tensors) { return hold_all(tensors, false); }

Values hold(const Values& values) {
  Tensors tensors = tensors_of(values);
  if (tensors.empty()) return values;
  hold_all(tensors, true);
  return with_tensors(values, tensors);
}

bool try_hold(Values& values) {
  Tensors tensors = tensors_of(values);
  if (tensors.empty()) return true;
  if (!try_hold(tensors)) return false;
  values = with_tensors(values, tensors);
  return true;
}

TensorWriter::TensorWriter(std::span<const Tensor> targets) {
  for (const Tensor& target : targets) {
    target.check_whole();
    if (target.storage().is_read_only()) {
      fail(Status::kInvalidState, "tensor {} borrows its memory and cannot be written: clone it first",
           describe(target));
    }
    if (target.count() == 0) continue;
    target.storage().make_elements();
    storages_.add(target.storage());
  }
  storages_.lock();
  replaced_.reserve(storages_.all().size());
  for (Storage* storage : storages_.all()) {
    if (BufferRef replaced = storage->make_writable()) replaced_.push_back(std::move(replaced));
  }
}

}  // namespace distag
