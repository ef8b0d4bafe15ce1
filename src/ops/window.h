#pragma once

#include <algorithm>

#include "ops/op.h"

namespace distag::ops {

// The movement of a window over the rows or columns of an image.
struct Axis {
  int64_t size = 0;    // size of the image
  int64_t kernel = 1;  // elements of the window
  int64_t stride = 1;
  int64_t padding = 0;  // on each side
  int64_t dilation = 1;
  int64_t out = 0;  // positions of the window

  // The position of element k of the window at position o; outside [0, size) it is padding.
  int64_t position(int64_t o, int64_t k) const { return o * stride - padding + k * dilation; }
  // The positions [first, last) of the window at which element k is inside the image.
  int64_t first_inside(int64_t k) const;
  int64_t last_inside(int64_t k) const;
  // The elements [first, last) of the window at position o that are inside the image.
  int64_t first_element(int64_t o) const;
  int64_t last_element(int64_t o) const;
  // The largest number of window positions that share an element of the image.
  int64_t overlap() const { return std::min((kernel + stride - 1) / stride, out); }
};

struct Window {
  Axis rows;
  Axis columns;
  int64_t positions() const { return rows.out * columns.out; }
};

// The numbers of a window setting, one or a pair for rows and columns. They must be at least `least` and small enough
// that products do not overflow. Throws INVALID_ARGUMENT otherwise.
Dims checked_setting(const char* op, const char* name, const Dims& setting, size_t count, int64_t least);

// A window from the attributes "stride", "padding" and "dilation", of two items each: rows, columns. Stride defaults to
// `default_stride`. Throws INVALID_ARGUMENT if they are invalid or the window exceeds the padded image.
Window make_window(const char* op, const Attributes& attributes, const Dims& image, const Dims& kernel,
                   const Dims& default_stride);

}  // namespace distag::ops
