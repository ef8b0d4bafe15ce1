#pragma once

#include <array>
#include <span>
#include <vector>

#include "tensor/storage.h"
#include "tensor/tensor.h"
#include "tensor/value.h"

namespace distag {

// Holds the buffers of several tensors at one moment: a write of several tensors is seen in all of them or in none.
// Some tensors may be undefined. Waits for writes that are under way.
class HeldTensors {
 public:
  explicit HeldTensors(std::span<const Tensor> tensors);
  std::span<const Tensor> all() const { return {many_.empty() ? few_.data() : many_.data(), count_}; }

 private:
  std::array<Tensor, 3> few_;
  Tensors many_;
  const size_t count_;
};

// Holds all of them, at one moment, without waiting: false if a write is under way. For a loop.
bool try_hold(std::span<Tensor> tensors);

// The values with all their tensors held, at one moment.
Values hold(const Values& values);
// The same without waiting.
bool try_hold(Values& values);

// Has tensors to itself for writing, in place through mutable_data(): until it ends, no other thread reads or writes
// them, or views of them. Throws INVALID_STATE for borrowed memory, OUT_OF_MEMORY if a buffer has other holders and
// there is no memory for a copy; then nothing has changed. Meanwhile they are read through data() alone: to hold them
// would wait for ever.
class TensorWriter {
 public:
  explicit TensorWriter(std::span<const Tensor> targets);
  explicit TensorWriter(const Tensor& target) : TensorWriter(std::span<const Tensor>(&target, 1)) {}

 private:
  std::vector<BufferRef> replaced_;  // freed after the locks are released
  LockedStorages storages_;
};

}  // namespace distag
