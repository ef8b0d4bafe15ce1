#pragma once

#include <array>
#include <span>
#include <vector>

#include "tensor/storage.h"
#include "tensor/tensor.h"
#include "tensor/value.h"

namespace distag {

// Tensors, of which some may be undefined, that hold the buffers of one moment: a write of several tensors is seen in
// all of them or in none. Waits for writes that are under way.
class HeldTensors {
 public:
  explicit HeldTensors(std::span<const Tensor> tensors);
  std::span<const Tensor> all() const { return {many_.empty() ? few_.data() : many_.data(), count_}; }

 private:
  std::array<Tensor, 3> few_;
  Tensors many_;
  const size_t count_;
};

// Takes hold of all of them, as of one moment, without waiting: false where a write is under way. For a loop.
bool try_hold(std::span<Tensor> tensors);

// The values with all their tensors held, as of one moment.
Values hold(const Values& values);
// The same without waiting.
bool try_hold(Values& values);

// Has tensors to itself for writing, and through mutable_data() where they are: no thread reads or writes them, or
// views of them, until it ends. Throws INVALID_STATE for borrowed memory, OUT_OF_MEMORY where a buffer is held by
// others and a copy finds no memory; then nothing has changed. Meanwhile they are read through data() alone: what takes
// hold would wait for ever.
class TensorWriter {
 public:
  explicit TensorWriter(std::span<const Tensor> targets);
  explicit TensorWriter(const Tensor& target) : TensorWriter(std::span<const Tensor>(&target, 1)) {}

 private:
  std::vector<BufferRef> replaced_;  // freed after the locks are given back
  LockedStorages storages_;
};

}  // namespace distag
