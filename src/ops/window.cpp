#include "ops/window.h"

#include <algorithm>

#include "ops/attributes.h"
#include "ops/require.h"
#include "ops/views.h"
#include "tensor/limits.h"

namespace distag::ops {
Dims checked_setting(const char* op, const char* name, const Dims& setting, size_t count, int64_t least) {
  bool fits = setting.size() == count;
  for (const int64_t item : setting) fits = fits && item >= least && item <= kMostOfSetting;
  require(fits, "{}: {} {} must be {} from {} to {}", op, name, setting,
          count == 1 ? "one number" : "two numbers (rows, columns)", least, kMostOfSetting);
  return setting;
}

int64_t Axis::first_inside(int64_t k) const {
  int64_t before = padding - k * dilation;
  return before <= 0 ? 0 : std::min(out, (before + stride - 1) / stride);
}

int64_t Axis::last_inside(int64_t k) const {
  int64_t reach = size - 1 + padding - k * dilation;
  return reach < 0 ? 0 : std::min(out, reach / stride + 1);
}

int64_t Axis::first_element(int64_t o) const {
  int64_t start = position(o, 0);
  return start >= 0 ? 0 : std::min(kernel, (dilation - 1 - start) / dilation);
}

int64_t Axis::last_element(int64_t o) const {
  int64_t room = size - position(o, 0);
  return room <= 0 ? 0 : std::min(kernel, (room - 1) / dilation + 1);
}

Window make_window(const char* op, const Attributes& attributes, const Dims& image, const Dims& kernel,
                   const Dims& default_stride) {
  checked_setting(op, "kernel", kernel, 2, 1);
  const Dims stride = checked_setting(op, "stride", get_dims(attributes, "stride", default_stride), 2, 1);
  const Dims padding = checked_setting(op, "padding", get_dims(attributes, "padding", Dims{0, 0}), 2, 0);
  const Dims dilation = checked_setting(op, "dilation", get_dims(attributes, "dilation", Dims{1, 1}), 2, 1);
  Axis axes[2];
  for (size_t i = 0; i < 2; ++i) {
    axes[i] = {image[i], kernel[i], stride[i], padding[i], dilation[i], 0};
    int64_t room = joined_size(op, image[i], 2 * padding[i]) - dilation[i] * (kernel[i] - 1) - 1;
    require(room >= 0, "{}: a window of {} with dilation {} does not fit into {} with padding {}", op, kernel, dilation,
            image, padding);
    axes[i].out = room / stride[i] + 1;
  }
  return {axes[0], axes[1]};
}

}  // namespace distag::ops
