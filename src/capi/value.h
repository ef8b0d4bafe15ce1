#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include "capi/boundary.h"
#include "tensor/value.h"

// A value, and the handles it lends: of its items, or of itself.
struct distag_value : distag::capi::Handle {
  explicit distag_value(distag::Value value) : distag_value(distag::capi::Kind::kValue, std::move(value)) {}
  ~distag_value() override;

  const distag::Value& get() const { return value_; }
  // Items of a list or map; 0 for anything else.
  size_t count() const;
  // These are lent: an item, nullptr past the end; the value itself once more.
  distag_value* item(size_t index);
  distag_value* twin();

 protected:
  distag_value(distag::capi::Kind kind, distag::Value value) : Handle(kind), value_(std::move(value)) {}
  bool is_plain_memory() const override;

 private:
  using LentItem = distag::capi::Lent<distag_value>;

  const distag::Value value_;
  LentItem& lent(size_t index, size_t count);

  std::atomic<LentItem*> lent_{nullptr};  // an array: the items, or the twin; made when the first is asked for
};

// Every handle of a value that is a tensor is one of these, so a tensor handle is a value handle at the same address.
struct distag_tensor final : distag_value {
  explicit distag_tensor(distag::Value value);

  ~distag_tensor() override;

  const distag::Tensor& tensor() const { return get().as_tensor(); }
  // The mesh of a sharded tensor, lent; nullptr for others.
  distag_mesh* mesh();

 private:
  distag::capi::Lent<distag_mesh> mesh_;
};

namespace distag::capi {

// Checks that bools of the host are 0 or 1, as the kernels rely on. Throws INVALID_ARGUMENT; ignores other dtypes.
void check_bools(const void* data, size_t size, Dtype dtype);

// New handles, with one reference.
distag_value* make_value(Value value);
distag_tensor* make_tensor(Tensor tensor);

// The values of handles, none of which may be NULL.
Values need_values(distag_value* const* items, size_t count, const char* name);
Tensors need_tensors(distag_tensor* const* items, size_t count, const char* name);

}  // namespace distag::capi
