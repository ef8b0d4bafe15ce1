#include "capi/value.h"

#include <memory>

#include "capi/mesh.h"
#include "capi/rref.h"
#include "spmd/sharding.h"

distag_value::~distag_value() { delete[] lent_.load(std::memory_order_relaxed); }

size_t distag_value::count() const {
  switch (value_.kind()) {
    case distag::ValueKind::kList:
      return value_.as_list().size();
    case distag::ValueKind::kMap:
      return value_.as_map().size();
    default:
      return 0;
  }
}

distag_value* distag_value::item(size_t index) {
  if (index >= count()) return nullptr;
  return lent(index, count()).get([this, index] {
    const bool is_list = value_.kind() == distag::ValueKind::kList;
    return distag::capi::make_value(is_list ? value_.as_list()[index] : value_.as_map()[index].second);
  });
}

distag_value* distag_value::twin() {
  return lent(0, 1).get([this] { return distag::capi::make_value(value_); });
}

distag_value::LentItem& distag_value::lent(size_t index, size_t count) {
  LentItem* all = lent_.load(std::memory_order_acquire);
  if (all == nullptr) {
    auto fresh = std::make_unique<LentItem[]>(count);
    if (lent_.compare_exchange_strong(all, fresh.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
      all = fresh.release();
    }
  }
  return all[index];
}

// False if a graph, a frame or host code may depend on a tensor.
bool distag_value::is_plain_memory() const {
  bool is_plain = !value_.has_external() && value_.kind() != distag::ValueKind::kObject;
  value_.for_each_tensor([&is_plain](const distag::Tensor& tensor) {
    is_plain = is_plain && tensor.grad_slot() == nullptr && tensor.owns_buffer();
  });
  return is_plain;
}

distag_tensor::distag_tensor(distag::Value value) : distag_value(distag::capi::Kind::kTensor, std::move(value)) {}

distag_tensor::~distag_tensor() = default;

distag_mesh* distag_tensor::mesh() {
  const auto* sharding = distag::spmd::Sharding::of(tensor());
  if (sharding == nullptr) return nullptr;
  return mesh_.get([sharding] {
    auto* shared = static_cast<distag::capi::MeshShared*>(sharding->program().host());
    return new distag_mesh(shared->shared_from_this(), sharding->line().name, false);
  });
}

namespace distag::capi {

void check_bools(const void* data, size_t size, Dtype dtype) {
  if (dtype != Dtype::kBool) return;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] > 1) refuse(Status::kInvalidArgument, "byte {} of bool data is {}, not 0 or 1", i, bytes[i]);
  }
}

distag_value* make_value(Value value) {
  if (value.kind() == ValueKind::kTensor) return new distag_tensor(std::move(value));
  if (value.kind() == ValueKind::kRref) return new distag_rref(std::move(value));
  return new distag_value(std::move(value));
}

distag_tensor* make_tensor(Tensor tensor) { return new distag_tensor(Value(std::move(tensor))); }

Values need_values(distag_value* const* items, size_t count, const char* name) {
  check_copied_array(items, count, name);
  Values values;
  values.reserve(count);
  for (size_t i = 0; i < count; ++i) values.push_back(need_item(items, i, name).get());
  return values;
}

Tensors need_tensors(distag_tensor* const* items, size_t count, const char* name) {
  check_copied_array(items, count, name);
  Tensors tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) tensors.push_back(need_item(items, i, name).tensor());
  return tensors;
}

}  // namespace distag::capi
