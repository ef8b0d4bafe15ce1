#pragma once

#include "spmd/program.h"

namespace distag::spmd {

// The members that have the other parts of the merged dims of an op. What it does waits, and all of them do it.
class Across {
 public:
  virtual ~Across() = default;
  // The reduction of what each has, of one shape.
  virtual Tensor reduce(const Tensor& x, Reduction reduction) = 0;
  // [members, count]: the vectors of all, in the order of positions.
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
  // Whether others may wait for what follows.
  bool has_begun() const { return has_begun_; }

 private:
  CallOnLine& call_;
  const layout::Axes axes_;
  bool has_begun_ = false;
};

}  // namespace distag::spmd
