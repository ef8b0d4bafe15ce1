#pragma once

#include <algorithm>

#include "ops/op.h"

namespace distag::ops {

// How a window moves over the rows or columns of an image.
struct Axis {
  int64_t size = 0;    // of the image
  int64_t kernel = 1;  // elements of the window
  int64_t stride = 1;
  int64_t padding = 0;  // on each side
  int64_t dilation = 1;
  int64_t out = 0;  // positions of the window

  // Where element k of the window at position o lies; outside of [0, size) in the padding.
  int64_t position(int64_t o, int64_t k) const { return o * stride - padding + k * dilation; }
  // The positions [first, last) of the window at which element k lies inside of the image.
  int64_t first_inside(int64_t k) const;
  int64_t last_inside(int64_t k) const;
  // The elements [first, last) of the window at position o that lie inside of the image.
  int64_t first_element(int64_t o) const;
  int64_t last_element(int64_t o) const;
  // How many positions of the window one element of the image can be in, at most.
  int64_t overlap() const { return std::min((kernel + stride - 1) / stride, out); }
};

struct Window {
  Axis rows;
  Axis columns;
  int64_t positions() const { return rows.out * columns.out; }
};

// Numbers of a setting of windows, one or a pair for rows and columns, from `least` on and up to one from which
// products are far from overflow. Throws INVALID_ARGUMENT for others.
Dims checked_setting(const char* op, const char* name, const Dims& setting, size_t count, int64_t least);

// From attributes "stride", "padding" and "dilation", of two items each: rows, columns. Stride defaults to
// `default_stride`. Throws INVALID_ARGUMENT when they make no sense or the window does not fit into the padded image.
Window make_window(const char* op, const Attributes& attributes, const Dims& image, const Dims& kernel,
                   const Dims& default_stride);

}  // namespace distag::ops
