#pragma once

#include "spmd/program.h"

namespace distag::spmd {

// The members that hold the other parts of an op's merged dims. Each call waits, and all of these members make it.
class Across {
 public:
  virtual ~Across() = default;
  // Reduces the tensors of these members, which have one shape.
  virtual Tensor reduce(const Tensor& x, Reduction reduction) = 0;
  // [members, count]: the rows of all members, in the order of positions.
  virtual Tensor gather(const Tensor& row) = 0;
};

// Across the members that differ along some axes only, within a call of their line.
class AcrossLine final : public Across {
 public:
  AcrossLine(CallOnLine& call, const layout::Axes& axes) : call_(call), axes_(axes) {}

  Tensor reduce(const Tensor& x, Reduction reduction) override {
    has_begun_ = true;
    return await(*call_.begin_reduce(x, axes_, reduction));
  }
  Tensor gather(const Tensor& row) override {
    has_begun_ = true;
    return call_.gather_rows(row, axes_);
  }
  // Whether a call has begun, so that other members may wait for the next ones.
  bool has_begun() const { return has_begun_; }

 private:
  CallOnLine& call_;
  const layout::Axes axes_;
  bool has_begun_ = false;
};

}  // namespace distag::spmd
