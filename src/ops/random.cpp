// rand and randn: the same numbers on every machine for a seed, whatever the dtype.
//
// Elements 2 j and 2 j + 1 (row-major) come from block j: philox with counter (low j, high j, 0, 0) and key (low seed,
// high seed) gives words w0..w3, of which u = w1 w0 and v = w3 w2 are 64-bit numbers. rand takes u for the even and v
// for the odd element: its upper 53 bits times 2^-53, or 24 bits times 2^-24 for float32. randn takes Box-Muller: with
// r = sqrt(-2 log(1 - u 2^-53)) and t = 2 pi v 2^-53 the even element is r cos(t), the odd one r sin(t), computed in
// double by IEEE operations only, and rounded for float32.
#include "ops/random.h"

#include <cmath>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/dropout.h"
#include "ops/math.h"
#include "ops/philox.h"

namespace distag::ops {
namespace {

struct Pair64 {
  uint64_t u;
  uint64_t v;
};

DISTAG_INLINE Pair64 random_pair(uint64_t seed, uint64_t block) {
  constexpr uint64_t kWord = 0xFFFFFFFFu;
  const PhiloxCounter words = philox({block & kWord, block >> 32, 0, 0}, {seed & kWord, seed >> 32});
  return {words[1] << 32 | words[0], words[3] << 32 | words[2]};
}

template <typename T>
DISTAG_INLINE T uniform(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(static_cast<int32_t>(bits >> 40)) * 0x1p-24f;
  if constexpr (std::is_same_v<T, double>) return static_cast<double>(bits >> 11) * 0x1p-53;
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
  for (int k = 8; k >= 1; --k) {
    sine = -(1.0 + sine) * z / ((2.0 * k) * (2.0 * k + 1.0));
    cosine = -(1.0 + cosine) * z / ((2.0 * k - 1.0) * (2.0 * k));
  }
  return {x + x * sine, 1.0 + cosine};
}

// Of 2 pi turns, for turns in [0, 1): the nearest quarter turn is taken out exactly.
DISTAG_INLINE SineCosine sine_cosine_of_turns(double turns) {
  int quarter = static_cast<int>(turns * 4.0 + 0.5);
  SineCosine rest = small_sine_cosine((turns - quarter * 0.25) * 6.283185307179586476925);
  switch (quarter & 3) {
    case 0:
      return rest;
    case 1:
      return {rest.cosine, -rest.sine};
    case 2:
      return {-rest.sine, -rest.cosine};
    default:
      return {-rest.cosine, rest.sine};
  }
}

template <typename T>
struct UniformPair {
  DISTAG_INLINE static void make(Pair64 bits, T& even, T& odd) {
    even = uniform<T>(bits.u);
    odd = uniform<T>(bits.v);
  }
};

template <typename T>
struct NormalPair {
  DISTAG_INLINE static void make(Pair64 bits, T& even, T& odd) {
    double radius = std::sqrt(-2.0 * math::log(1.0 - uniform<double>(bits.u)));
    SineCosine direction = sine_cosine_of_turns(uniform<double>(bits.v));
    even = static_cast<T>(radius * direction.cosine);
    odd = static_cast<T>(radius * direction.sine);
  }
};

// `count` elements, from the even one of a block on.
template <typename Pair, typename T>
struct RandomRow {
  DISTAG_INLINE static void run(T* data, int64_t count, uint64_t seed, uint64_t first_block) {
    const int64_t pairs = count / 2;
    DISTAG_INDEPENDENT
    for (int64_t block = 0; block < pairs; ++block) {
      Pair::make(random_pair(seed, first_block + static_cast<uint64_t>(block)), data[2 * block], data[2 * block + 1]);
    }
    if (count % 2 != 0) {
      T beyond;
      Pair::make(random_pair(seed, first_block + static_cast<uint64_t>(pairs)), data[count - 1], beyond);
    }
  }
};

// From any element on.
template <typename Pair, typename T>
void fill_row(T* data, int64_t count, uint64_t seed, uint64_t first) {
  if (count > 0 && first % 2 != 0) {
    T before;
    Pair::make(random_pair(seed, first / 2), before, *data++);
    --count;
    ++first;
  }
  simd::run<RandomRow<Pair, T>>(data, count, seed, first / 2);
}

template <template <typename> typename Maker>
Tensors random(const char* op, const Attributes& attributes) {
  auto seed = static_cast<uint64_t>(get_int(attributes, "seed", 0));
  Tensor out = Tensor::empty(get_dtype(attributes, "dtype", Dtype::kFloat32), get_dims(attributes, "shape"));
  dispatch_floating(op, out.dtype(), [&]<typename T>(T) {
    simd::run<RandomRow<Maker<T>, T>>(out.mutable_data_as<T>(), out.count(), seed, uint64_t{0});
  });
  return {out};
}

Tensors rand_forward(std::span<const Tensor>, const Attributes& attributes, Saved*) {
  return random<UniformPair>("rand", attributes);
}

Tensors randn_forward(std::span<const Tensor>, const Attributes& attributes, Saved*) {
  return random<NormalPair>("randn", attributes);
}

}  // namespace

void fill_random(Distribution distribution, Dtype dtype, std::byte* out, int64_t count, uint64_t seed, uint64_t first) {
  dispatch_floating("rand", dtype, [&]<typename T>(T) {
    if (distribution == Distribution::kUniform) {
      fill_row<UniformPair<T>, T>(reinterpret_cast<T*>(out), count, seed, first);
    } else {
      fill_row<NormalPair<T>, T>(reinterpret_cast<T*>(out), count, seed, first);
    }
  });
}

constexpr Op kRand{.name = "rand",
                   .signature = "rand(int64 seed, int64[] shape = [], dtype dtype = float32) -> tensor",
                   .summary = "A tensor of the shape, uniform in [0, 1), from Philox 4x32-10.",
                   .forward = rand_forward};

constexpr Op kRandn{.name = "randn",
                    .signature = "randn(int64 seed, int64[] shape = [], dtype dtype = float32) -> tensor",
                    .summary = "A tensor of the shape, standard normal, from Philox 4x32-10.",
                    .forward = randn_forward};

// ---- dropout --------------------------------------------------------------------------------------------------------

namespace {

// Elements of the whole from number `first` on: 0 where its uniform number is below p, else x scale.
template <typename T>
struct DropoutRow {
  DISTAG_INLINE static T choose(T x, uint64_t bits, double p, T scale) {
    return static_cast<double>(uniform<T>(bits)) < p ? T(0) : x * scale;
  }
  DISTAG_INLINE static void run(T* out, const T* x, uint64_t first, int64_t count, uint64_t seed, double p, T scale) {
    if (first % 2 != 0 && count > 0) {
      *out++ = choose(*x++, random_pair(seed, first / 2).v, p, scale);
      ++first;
      --count;
    }
    const int64_t pairs = count / 2;
    DISTAG_INDEPENDENT
    for (int64_t i = 0; i < pairs; ++i) {
      const Pair64 bits = random_pair(seed, first / 2 + static_cast<uint64_t>(i));
      out[2 * i] = choose(x[2 * i], bits.u, p, scale);
      out[2 * i + 1] = choose(x[2 * i + 1], bits.v, p, scale);
    }
    if (count % 2 != 0) {
      out[count - 1] = choose(x[count - 1], random_pair(seed, first / 2 + static_cast<uint64_t>(pairs)).u, p, scale);
    }
  }
};

// Calls visit(number of the first element in the whole, count) for each run of elements of the part, one after the
// other.
template <typename Visit>
void for_each_run(const Dims& part, const Dims& whole, const Dims& offset, Visit visit) {
  size_t outer = part.size();  // dims before those that make up a run
  int64_t length = 1;
  bool is_all = true;
  while (outer > 0 && is_all) {
    --outer;
    length *= part[outer];
    is_all = part[outer] == whole[outer];
  }
  const Dims strides = row_major_strides(whole);
  Dims position;
  position.resize(outer);
  const int64_t runs = length == 0 ? 0 : element_count(part) / length;
  for (int64_t run = 0; run < runs; ++run) {
    int64_t first = 0;
    for (size_t d = 0; d < part.size(); ++d) first += (offset[d] + (d < outer ? position[d] : 0)) * strides[d];
    visit(static_cast<uint64_t>(first), length);
    for (size_t d = outer; d-- > 0;) {
      if (++position[d] < part[d]) break;
      position[d] = 0;
    }
  }
}

}  // namespace

Tensor dropped(const Tensor& given, const Attributes& attributes, const Dims& whole, const Dims& offset) {
  const double p = get_float(attributes, "p", 0.5);
  if (!(p >= 0 && p <= 1)) fail(Status::kInvalidArgument, "dropout: p {} is no probability, from 0 to 1", p);
  const auto seed = static_cast<uint64_t>(get_int(attributes, "seed", 0));
  const Tensor x = given.contiguous();
  Tensor out = Tensor::empty(x.dtype(), x.shape());
  dispatch_floating("dropout", x.dtype(), [&]<typename T>(T) {
    const T* in = x.data_as<T>();
    T* to = out.mutable_data_as<T>();
    for_each_run(x.shape(), whole, offset, [&](uint64_t first, int64_t count) {
      simd::run<DropoutRow<T>, T*, const T*, uint64_t, int64_t, uint64_t, double, T>(to, in, first, count, seed, p,
                                                                                     static_cast<T>(1 / (1 - p)));
      to += count;
      in += count;
    });
  });
  return out;
}

namespace {

Tensors dropout_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  Dims start;
  start.resize(x.rank());
  if (saved != nullptr) {
    saved->attributes = attributes;
    saved->shapes = {x.shape(), start};
  }
  return {dropped(x, attributes, x.shape(), start)};
}

Tensors dropout_backward(const Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = dropped(gradients[0], saved.attributes, saved.shapes[0], saved.shapes[1]);
  return gradients;
}

}  // namespace

constexpr Op kDropout{.name = "dropout",
                      .signature = "dropout(tensor x, float64 p = 0.5, int64 seed) -> tensor",
                      .summary =
                          "0 where the element's number of rand (same seed, shape and dtype) is below p, else x / (1 - "
                          "p); the same with each call, so give each step a seed.",
                      .forward = dropout_forward,
                      .backward = dropout_backward,
                      .is_cheap = true};

}  // namespace distag::ops
