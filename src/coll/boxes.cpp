#include "coll/boxes.h"

#include "tensor/strided.h"

namespace distag {

Tensor part_of(const Tensor& x, const layout::Box& box) {
  if (box.empty()) return Tensor::empty(x.dtype(), box.extent);
  int64_t offset = x.offset();
  for (size_t i = 0; i < box.offset.size(); ++i) offset += box.offset[i] * x.strides()[i];
  return x.view(box.extent, x.strides(), offset).contiguous();
}

void write_part(Tensor& target, const Dims& offset, const Tensor& part) {
  if (part.count() == 0) return;
  int64_t first = 0;
  for (size_t i = 0; i < offset.size(); ++i) first += offset[i] * target.strides()[i];
  const size_t item = dtype_size(target.dtype());
  copy_strided(target.mutable_data() + static_cast<size_t>(first) * item, target.strides(), part.data(), part.strides(),
               part.shape(), item);
}

layout::Box relative(layout::Box box, const layout::Box& outer) {
  for (size_t i = 0; i < box.offset.size(); ++i) box.offset[i] -= outer.offset[i];
  return box;
}

}  // namespace distag
