// rand and randn: the same numbers on every machine for a seed, whatever the dtype.
//
// Elements 2 j and 2 j + 1 (row-major) come from block j. Philox with counter (low j, high j, 0, 0) and key (low seed,
// high seed) gives words w0..w3, of which u = w1 w0 and v = w3 w2 are 64-bit numbers. rand uses u for the even and v
// for the odd element: its upper 53 bits times 2^-53, or 24 bits times 2^-24 for float32. randn uses Box-Muller: with r
// = sqrt(-2 log(1 - u 2^-53)) and t = 2 pi v 2^-53 the even element is r cos(t), the odd one r sin(t), computed in
// double by IEEE operations only, and rounded for float32.
#include "ops/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/dropout.h"
#include "ops/math.h"
#include "ops/philox.h"
#include "ops/require.h"
#include "ops/unary.h"

namespace distag::ops {
namespace {

// The bits of a number of rand: u or v, or their upper halves if those are enough.
template <typename T>
using BitsOf = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;

DISTAG_INLINE float uniform(uint32_t bits) { return static_cast<float>(static_cast<int32_t>(bits >> 8)) * 0x1p-24f; }
DISTAG_INLINE double uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// The number of elements whose bits are made at a time, beginning with an even one.
constexpr int64_t kStretch = 256;

template <typename Bits, typename Use>
struct Stretches {
  template <size_t kBytes>
  struct Kernel {
    DISTAG_INLINE static void run(const Use* given, uint64_t first, int64_t all, uint64_t seed) {
      const Use use = *given;  // a local copy, so that its numbers are not read from memory in each step
      alignas(kBytes) Bits bits[kStretch];
      for (int64_t done = 0; done < all;) {
        const uint64_t next = first + static_cast<uint64_t>(done);
        const auto skipped = static_cast<int64_t>(next % 2);
        const int64_t count = std::min(all - done, kStretch - skipped);
        Philox<kBytes>::fill(bits, (skipped + count + 1) / 2, seed, next / 2);
        use(bits, skipped, done, count);
        done += count;
      }
    }
  };
};

// Calls use(bits, skipped, done, count) for each stretch of `all` elements from number `first` on, in order: elements
// from `done` on, whose bits begin at bits[skipped]. `use` is DISTAG_INLINE_LAMBDA.
template <typename Bits, typename Use>
void for_each_stretch(uint64_t first, int64_t all, uint64_t seed, const Use& use) {
  simd::run_in_vectors<Stretches<Bits, Use>::template Kernel, const Use*, uint64_t, int64_t, uint64_t>(64, &use, first,
                                                                                                       all, seed);
}

struct SineCosine {
  double sine;
  double cosine;
};

// sin(x) and cos(x) for |x| <= pi / 4, by their Taylor series.
DISTAG_INLINE SineCosine small_sine_cosine(double x) {
  double z = x * x;
  double sine = 0;
  double cosine = 0;
  DISTAG_UNROLL
  for (int k = 8; k >= 1; --k) {
    sine = -(1.0 + sine) * z / ((2.0 * k) * (2.0 * k + 1.0));
    cosine = -(1.0 + cosine) * z / ((2.0 * k - 1.0) * (2.0 * k));
  }
  return {x + x * sine, 1.0 + cosine};
}

// For an angle of 2 pi turns, with turns in [0, 1): the nearest quarter turn is subtracted exactly.
DISTAG_INLINE SineCosine sine_cosine_of_turns(double turns) {
  const int quarter = static_cast<int>(turns * 4.0 + 0.5);
  const SineCosine rest = small_sine_cosine((turns - quarter * 0.25) * 6.283185307179586476925);
  const bool is_odd = (quarter & 1) != 0;
  const double sine = is_odd ? rest.cosine : rest.sine;
  const double cosine = is_odd ? rest.sine : rest.cosine;
  return {(quarter & 2) != 0 ? -sine : sine, ((quarter + 1) & 2) != 0 ? -cosine : cosine};
}

// uniform() from two exact halves: no instruction set before AVX-512 converts vectors of 64-bit integers to doubles.
DISTAG_INLINE double uniform_of_halves(uint64_t bits) {
  const uint64_t number = bits >> 11;
  const double high = std::bit_cast<double>((number >> 32) | 0x4530000000000000u) - 0x1.00000001p84;
  return (high + std::bit_cast<double>((number & 0xFFFFFFFFu) | 0x4330000000000000u)) * 0x1p-53;
}

template <typename T>
DISTAG_INLINE void make_normal_pair(uint64_t u, uint64_t v, T& even, T& odd) {
  double radius = std::sqrt(-2.0 * math::log(1.0 - uniform_of_halves(u)));
  SineCosine direction = sine_cosine_of_turns(uniform_of_halves(v));
  even = static_cast<T>(radius * direction.cosine);
  odd = static_cast<T>(radius * direction.sine);
}

// Makes `count` elements from number `first` on.
template <typename T>
void fill(Distribution distribution, T* data, int64_t count, uint64_t seed, uint64_t first) {
  if (distribution == Distribution::kUniform) {
    return for_each_stretch<BitsOf<T>>(first, count, seed,
                                       [data](const BitsOf<T>* bits, int64_t skipped, int64_t done, int64_t length)
                                           DISTAG_INLINE_LAMBDA {
                                             DISTAG_INDEPENDENT
                                             for (int64_t i = 0; i < length; ++i)
                                               data[done + i] = uniform(bits[skipped + i]);
                                           });
  }
  for_each_stretch<uint64_t>(first, count, seed,
                             [data](const uint64_t* bits, int64_t skipped, int64_t done, int64_t length)
                                 DISTAG_INLINE_LAMBDA {
                                   T pairs[kStretch];
                                   const int64_t blocks = (skipped + length + 1) / 2;
                                   DISTAG_INDEPENDENT
                                   for (int64_t i = 0; i < blocks; ++i) {
                                     make_normal_pair(bits[2 * i], bits[2 * i + 1], pairs[2 * i], pairs[2 * i + 1]);
                                   }
                                   for (int64_t i = 0; i < length; ++i) data[done + i] = pairs[skipped + i];
                                 });
}

template <Name kName, Distribution kDistribution>
struct RandomOp {
  static Tensor forward(Inputs, const Attributes& attributes, Saved*) {
    const auto seed = static_cast<uint64_t>(get_int(attributes, "seed", 0));
    Tensor out = Tensor::empty(get_dtype(attributes, "dtype", Dtype::kFloat32), get_dims(attributes, "shape"));
    dispatch_floating(kName.text, out.dtype(),
                      [&]<typename T>(T) { fill(kDistribution, out.mutable_data_as<T>(), out.count(), seed, 0); });
    return out;
  }
};

}  // namespace

void fill_random(Distribution distribution, Dtype dtype, std::byte* out, int64_t count, uint64_t seed, uint64_t first) {
  dispatch_floating("rand", dtype,
                    [&]<typename T>(T) { fill(distribution, reinterpret_cast<T*>(out), count, seed, first); });
}

constexpr Op kRand = make_op<RandomOp<"rand", Distribution::kUniform>>(
    "rand(int64 seed, int64[] shape = [], dtype dtype = float32) -> tensor",
    "A tensor of the shape, uniform in [0, 1), from Philox 4x32-10.");

constexpr Op kRandn = make_op<RandomOp<"randn", Distribution::kNormal>>(
    "randn(int64 seed, int64[] shape = [], dtype dtype = float32) -> tensor",
    "A tensor of the shape, standard normal, from Philox 4x32-10.");

// ---- dropout --------------------------------------------------------------------------------------------------------

// An element becomes 0 if its uniform number is below p.
Tensor dropped(const Tensor& given, const Attributes& attributes, const Dims& whole, const Dims& offset) {
  const double p = get_float(attributes, "p", 0.5);
  require(p >= 0 && p <= 1, "dropout: p {} is no probability, from 0 to 1", p);
  const auto seed = static_cast<uint64_t>(get_int(attributes, "seed", 0));
  const Tensor x = given.contiguous();
  Tensor out = Tensor::empty(x.dtype(), x.shape());
  dispatch_floating("dropout", x.dtype(), [&]<typename T>(T) {
    const T* in = x.data_as<T>();
    T* to = out.mutable_data_as<T>();
    const auto scale = static_cast<T>(1 / (1 - p));
    for_each_run(x.shape(), whole, offset, [&](uint64_t first, int64_t count) {
      for_each_stretch<BitsOf<T>>(first, count, seed,
                                  [=](const BitsOf<T>* bits, int64_t skipped, int64_t done, int64_t length)
                                      DISTAG_INLINE_LAMBDA {
                                        DISTAG_INDEPENDENT
                                        for (int64_t i = 0; i < length; ++i) {
                                          const bool is_dropped = static_cast<double>(uniform(bits[skipped + i])) < p;
                                          to[done + i] = is_dropped ? T(0) : in[done + i] * scale;
                                        }
                                      });
      to += count;
      in += count;
    });
  });
  return out;
}

struct DropoutOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    Dims start;
    start.resize(x.rank());
    if (saved != nullptr) {
      saved->attributes = attributes;
      saved->shapes = {x.shape(), start};
    }
    return dropped(x, attributes, x.shape(), start);
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    return dropped(g, saved.attributes, saved.shapes[0], saved.shapes[1]);
  }
};
constexpr Op kDropout = make_op<DropoutOp>("dropout(tensor x, float64 p = 0.5, int64 seed) -> tensor",
                                           "0 where the element's number of rand (same seed, shape and dtype) is below "
                                           "p, else x / (1 - p); the same with each call, so give each step a seed.",
                                           kCheap);

}  // namespace distag::ops
