#include "ops/direct_convolution.h"

#include <array>
#include <cstring>

#include "ops/reduce.h"
#include "ops/simd.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// The most elements of a kernel: 32 channels of 3 x 3. With more elements, a product of matrices is about as fast.
constexpr int64_t kMostElements = 288;
// The most rows and columns of a padded image.
constexpr int64_t kMostPadded = int64_t{1} << 20;
// The gradient of a weight is the sum of this many bytes of partial sums, for all vector sizes.
constexpr size_t kPartialBytes = 64;

template <typename T>
constexpr int64_t kPartials = static_cast<int64_t>(kPartialBytes / sizeof(T));

int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// The channels of one group of one image with its padding, and with room to read rows of y as whole vectors.
struct Padded {
  int64_t rows = 0;
  int64_t pitch = 0;

  Padded(const Convolution& conv, int64_t vector)
      : rows(conv.window.rows.size + 2 * conv.window.rows.padding),
        pitch(rounded_up(conv.window.columns.out, vector) +
              std::max(conv.window.columns.size + 2 * conv.window.columns.padding - conv.window.columns.out,
                       int64_t{0})) {}

  Dims shape(const Convolution& conv) const { return Dims{conv.in_channels, rows, pitch}; }

  // `padded` must be zero before the first image; each image overwrites the same elements.
  template <typename T>
  void fill(T* padded, const T* image, const Convolution& conv) const {
    const Axis& columns = conv.window.columns;
    const Axis& lines = conv.window.rows;
    for (int64_t c = 0; c < conv.in_channels; ++c) {
      for (int64_t r = 0; r < lines.size; ++r) {
        T* to = padded + (c * rows + r + lines.padding) * pitch + columns.padding;
        std::memcpy(to, image + (c * lines.size + r) * columns.size, static_cast<size_t>(columns.size) * sizeof(T));
      }
    }
  }
};

// The offset of each element of the kernel in the padded image, for the window at position (0, 0).
using Taps = std::array<int64_t, kMostElements>;

Taps make_taps(const Convolution& conv, const Padded& padded) {
  Taps taps{};
  size_t count = 0;
  for (int64_t c = 0; c < conv.in_channels; ++c) {
    for (int64_t i = 0; i < conv.window.rows.kernel; ++i) {
      for (int64_t j = 0; j < conv.window.columns.kernel; ++j) {
        taps[count++] =
            (c * padded.rows + i * conv.window.rows.dilation) * padded.pitch + j * conv.window.columns.dilation;
      }
    }
  }
  return taps;
}

// The sizes that the kernels need.
struct Sizes {
  int64_t taps;
  int64_t channels;  // channels of y in one group
  int64_t rows;      // rows of y
  int64_t columns;
  int64_t row_step;  // from one row of y to the next, in the padded image
};

Sizes sizes_of(const Convolution& conv, const Padded& padded) {
  return {conv.kernel_size, conv.out_channels, conv.window.rows.out, conv.window.columns.out,
          conv.window.rows.stride * padded.pitch};
}

template <typename V, typename T>
DISTAG_INLINE void load(V& vector, const T* from) {
  __builtin_memcpy(&vector, from, sizeof vector);
}

template <typename V, typename T>
DISTAG_INLINE void store(T* to, const V& vector) {
  __builtin_memcpy(to, &vector, sizeof vector);
}

// ---- forward ----

// Channels of y that are computed together; their weights lie side by side for each tap.
constexpr int64_t kForwardChannels = 4;
constexpr int64_t kForwardVectors = 2;  // vectors of positions

template <typename T>
struct Forward {
  template <size_t kBytes>
  struct Kernel {
    using V [[gnu::vector_size(kBytes)]] = T;
    static constexpr int64_t kLanes = static_cast<int64_t>(kBytes / sizeof(T));
    static constexpr int64_t kTile = kForwardVectors * kLanes;

    // Computes kTile positions of kForwardChannels channels; only the first `channels` of them are stored.
    DISTAG_INLINE static void make_tile(T* y, const T* x, const T* weights, const T* bias, const int64_t* taps,
                                        const Sizes& sizes, int64_t channels) {
      V sums[kForwardChannels][kForwardVectors];
      DISTAG_UNROLL
      for (int64_t c = 0; c < kForwardChannels; ++c) sums[c][0] = sums[c][1] = V{} + bias[c];
      for (int64_t k = 0; k < sizes.taps; ++k) {
        V first, second;
        load(first, x + taps[k]);
        load(second, x + taps[k] + kLanes);
        DISTAG_UNROLL
        for (int64_t c = 0; c < kForwardChannels; ++c) {
          sums[c][0] += first * weights[k * kForwardChannels + c];
          sums[c][1] += second * weights[k * kForwardChannels + c];
        }
      }
      DISTAG_UNROLL
      for (int64_t c = 0; c < kForwardChannels; ++c) {
        if (c >= channels) break;
        store(y + c * sizes.rows * sizes.columns, sums[c][0]);
        store(y + c * sizes.rows * sizes.columns + kLanes, sums[c][1]);
      }
    }

    // The last tile of a row begins earlier if the row is not a whole number of tiles.
    DISTAG_INLINE static void run(T* y, const T* x, const T* weights, const T* bias, const int64_t* taps, Sizes sizes) {
      for (int64_t c = 0; c < sizes.channels; c += kForwardChannels) {
        for (int64_t r = 0; r < sizes.rows; ++r) {
          for (int64_t w = 0; w < sizes.columns; w += kTile) {
            const int64_t at = std::min(w, sizes.columns - kTile);
            make_tile(y + (c * sizes.rows + r) * sizes.columns + at, x + r * sizes.row_step + at,
                      weights + c * sizes.taps, bias + c, taps, sizes, sizes.channels - c);
          }
        }
      }
    }
  };
};

// [channels / kForwardChannels, taps, kForwardChannels] of each group, with zeros for missing channels.
template <typename T>
Tensor packed_weights(const Tensor& weight, const Convolution& conv, int64_t channels) {
  Tensor packed = zero_tensor(weight.dtype(), Dims{conv.groups * channels * conv.kernel_size});
  const T* from = weight.data_as<T>();
  T* data = packed.mutable_data_as<T>();
  for (int64_t g = 0; g < conv.groups; ++g) {
    for (int64_t c = 0; c < conv.out_channels; ++c) {
      const int64_t block = g * channels + c / kForwardChannels * kForwardChannels;
      T* to = data + block * conv.kernel_size + c % kForwardChannels;
      for (int64_t k = 0; k < conv.kernel_size; ++k) to[k * kForwardChannels] = *from++;
    }
  }
  return packed;
}

// [groups, channels]; zeros if there is no bias.
template <typename T>
Tensor packed_bias(const Tensor& bias, Dtype dtype, const Convolution& conv, int64_t channels) {
  Tensor packed = zero_tensor(dtype, Dims{conv.groups, channels});
  T* data = packed.mutable_data_as<T>();
  for (int64_t g = 0; bias && g < conv.groups; ++g) {
    std::copy_n(bias.data_as<T>() + g * conv.out_channels, conv.out_channels, data + g * channels);
  }
  return packed;
}

// ---- the gradient of the weight ----

template <typename T>
struct Backward {
  template <size_t kBytes>
  struct Kernel {
    using V [[gnu::vector_size(kBytes)]] = T;
    using Mask = decltype(V{} < V{});
    static constexpr int64_t kLanes = static_cast<int64_t>(kBytes / sizeof(T));
    static constexpr int64_t kChannels = kBytes == 64 ? 8 : 4;
    static constexpr int64_t kTaps = 3;

    // Masks the elements of a row's last vector that belong to the row: behind them may be an infinity, and infinity
    // times the 0 of g is NaN.
    DISTAG_INLINE static void make_mask(Mask& mask, const Sizes& sizes, int64_t first) {
      for (int64_t lane = 0; lane < kLanes; ++lane) mask[lane] = first + lane < sizes.columns ? -1 : 0;
    }

    // Adds to the partial sums of kChannels channels and kTaps taps. Indices beyond the last one repeat the last one.
    DISTAG_INLINE static void add_tile(T* const* sums, const T* const* g, const T* const* x, const Sizes& sizes,
                                       int64_t pitch, const Mask& mask) {
      V totals[kChannels][kTaps];
      DISTAG_UNROLL
      for (int64_t c = 0; c < kChannels; ++c) {
        DISTAG_UNROLL
        for (int64_t k = 0; k < kTaps; ++k) load(totals[c][k], sums[c * kTaps + k]);
      }
      const int64_t last = pitch - kPartials<T>;
      for (int64_t r = 0; r < sizes.rows; ++r) {
        for (int64_t w = 0; w <= last; w += kPartials<T>) {
          V images[kTaps];
          DISTAG_UNROLL
          for (int64_t k = 0; k < kTaps; ++k) {
            load(images[k], x[k] + r * sizes.row_step + w);
            if (w == last) images[k] = reinterpret_cast<V>(reinterpret_cast<Mask>(images[k]) & mask);
          }
          DISTAG_UNROLL
          for (int64_t c = 0; c < kChannels; ++c) {
            V gradient;
            load(gradient, g[c] + r * pitch + w);
            DISTAG_UNROLL
            for (int64_t k = 0; k < kTaps; ++k) totals[c][k] += gradient * images[k];
          }
        }
      }
      DISTAG_UNROLL
      for (int64_t c = 0; c < kChannels; ++c) {
        DISTAG_UNROLL
        for (int64_t k = 0; k < kTaps; ++k) store(sums[c * kTaps + k], totals[c][k]);
      }
    }

    // sums: [channels, taps, kPartials]; g: [channels, rows, pitch].
    DISTAG_INLINE static void run(T* sums, const T* g, const T* x, const int64_t* taps, Sizes sizes, int64_t pitch) {
      for (int64_t c = 0; c < sizes.channels; c += kChannels) {
        for (int64_t k = 0; k < sizes.taps; k += kTaps) {
          for (int64_t part = 0; part < kPartials<T>; part += kLanes) {
            Mask mask{};
            make_mask(mask, sizes, pitch - kPartials<T> + part);
            T* to[kChannels * kTaps];
            const T* gradients[kChannels];
            const T* images[kTaps];
            for (int64_t b = 0; b < kTaps; ++b) images[b] = x + taps[std::min(k + b, sizes.taps - 1)] + part;
            for (int64_t a = 0; a < kChannels; ++a) {
              const int64_t channel = std::min(c + a, sizes.channels - 1);
              gradients[a] = g + channel * sizes.rows * pitch + part;
              for (int64_t b = 0; b < kTaps; ++b) {
                to[a * kTaps + b] =
                    sums + (channel * sizes.taps + std::min(k + b, sizes.taps - 1)) * kPartials<T> + part;
              }
            }
            add_tile(to, gradients, images, sizes, pitch, mask);
          }
        }
      }
    }
  };
};

// Copies rows of g, padded with zeros to whole vectors.
template <typename T>
void fill_rows(T* padded, const T* g, const Sizes& sizes, int64_t pitch) {
  for (int64_t r = 0; r < sizes.channels * sizes.rows; ++r) {
    std::memcpy(padded + r * pitch, g + r * sizes.columns, static_cast<size_t>(sizes.columns) * sizeof(T));
  }
}

}  // namespace

template <typename T>
bool suits_direct_convolution(const Convolution& conv) {
  const Axis& rows = conv.window.rows;
  const Axis& columns = conv.window.columns;
  const Padded padded(conv, kPartials<T>);
  return columns.stride == 1 && columns.out >= kPartials<T> && !conv.is_pointwise() && conv.in_size() > 0 &&
         conv.kernel_size <= kMostElements && padded.rows <= kMostPadded && padded.pitch <= kMostPadded &&
         padded.rows * padded.pitch <= rows.kernel * columns.kernel * conv.window.positions();
}

template <typename T>
void convolve_directly(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias, const Convolution& conv) {
  const Padded padded(conv, 1);
  const Sizes sizes = sizes_of(conv, padded);
  const Taps taps = make_taps(conv, padded);
  const int64_t channels = rounded_up(conv.out_channels, kForwardChannels);
  const Tensor weights = packed_weights<T>(weight, conv, channels);
  const Tensor biases = packed_bias<T>(bias, x.dtype(), conv, channels);
  Tensor image = zero_tensor(x.dtype(), padded.shape(conv));
  T* image_data = image.mutable_data_as<T>();
  T* out = y.mutable_data_as<T>();
  const size_t most_bytes = static_cast<size_t>(sizes.columns) * sizeof(T) / kForwardVectors;
  for (int64_t i = 0; i < conv.images * conv.groups; ++i) {
    const int64_t first = i % conv.groups * channels;
    padded.fill(image_data, x.data_as<T>() + i * conv.in_size(), conv);
    simd::run_in_vectors<Forward<T>::template Kernel, T*, const T*, const T*, const T*, const int64_t*, Sizes>(
        most_bytes, out + i * conv.out_size(), image_data, weights.data_as<T>() + first * conv.kernel_size,
        biases.data_as<T>() + first, taps.data(), sizes);
  }
}

template <typename T>
Tensor differentiate_weight_directly(const Tensor& g, const Tensor& x, const Convolution& conv) {
  const Padded padded(conv, kPartials<T>);
  const Sizes sizes = sizes_of(conv, padded);
  const Taps taps = make_taps(conv, padded);
  const int64_t pitch = rounded_up(sizes.columns, kPartials<T>);
  const int64_t group_size = conv.out_channels * conv.kernel_size;
  Tensor partials = zero_tensor(x.dtype(), Dims{conv.groups * group_size, kPartials<T>});
  Tensor image = zero_tensor(x.dtype(), padded.shape(conv));
  Tensor rows = zero_tensor(x.dtype(), Dims{pitch == sizes.columns ? 0 : sizes.channels, sizes.rows, pitch});
  T* partial_data = partials.mutable_data_as<T>();
  T* image_data = image.mutable_data_as<T>();
  T* row_data = rows.mutable_data_as<T>();
  for (int64_t i = 0; i < conv.images * conv.groups; ++i) {
    const T* gradient = g.data_as<T>() + i * conv.out_size();
    padded.fill(image_data, x.data_as<T>() + i * conv.in_size(), conv);
    if (rows.count() > 0) fill_rows(row_data, gradient, sizes, pitch);
    simd::run_in_vectors<Backward<T>::template Kernel, T*, const T*, const T*, const int64_t*, Sizes, int64_t>(
        kPartialBytes, partial_data + i % conv.groups * group_size * kPartials<T>,
        rows.count() > 0 ? row_data : gradient, image_data, taps.data(), sizes, pitch);
  }
  return sum_over(
      partials, DimSet(0b10),
      Dims{conv.groups * conv.out_channels, conv.in_channels, conv.window.rows.kernel, conv.window.columns.kernel});
}

template bool suits_direct_convolution<float>(const Convolution&);
template bool suits_direct_convolution<double>(const Convolution&);
template void convolve_directly<float>(Tensor&, const Tensor&, const Tensor&, const Tensor&, const Convolution&);
template void convolve_directly<double>(Tensor&, const Tensor&, const Tensor&, const Tensor&, const Convolution&);
template Tensor differentiate_weight_directly<float>(const Tensor&, const Tensor&, const Convolution&);
template Tensor differentiate_weight_directly<double>(const Tensor&, const Tensor&, const Convolution&);

}  // namespace distag::ops
