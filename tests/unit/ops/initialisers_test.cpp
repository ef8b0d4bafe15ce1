#include "ops/initialisers.h"

#include <gtest/gtest.h>

#include <functional>

#include "apply_op.h"
#include "plain_philox.h"

namespace distag::testing {
namespace {

using ops::Distribution;
using ops::full_initialiser;
using ops::random_initialiser;
using ops::RandomElements;

std::string bytes_of(const Tensor& x) {
  std::string bytes(x.byte_size(), '\0');
  x.copy_to(bytes.data());
  return bytes;
}

Tensor part_of(const Tensor& whole, const Dims& offset, const Dims& extent) {
  int64_t first = 0;
  for (size_t d = 0; d < offset.size(); ++d) first += offset[d] * whole.strides()[d];
  return whole.view(extent, whole.strides(), first);
}

// Every box of the shape.
template <typename Check>
void for_each_box(const Dims& shape, Check check) {
  Dims offset;
  Dims extent;
  const std::function<void(size_t)> choose = [&](size_t dim) {
    if (dim == shape.size()) return check(offset, extent);
    for (int64_t from = 0; from < shape[dim]; ++from) {
      for (int64_t size = 1; size <= shape[dim] - from; ++size) {
        offset.push_back(from);
        extent.push_back(size);
        choose(dim + 1);
        offset.pop_back();
        extent.pop_back();
      }
    }
  };
  choose(0);
}

TEST(InitialisersTest, BoxesOfRandomNumbersAreThoseOfTheWhole) {
  for (const Dims& shape : {Dims{}, Dims{9}, Dims{3, 5}, Dims{4, 1, 3}, Dims{2, 3, 2, 2}}) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
      for (const Distribution distribution : {Distribution::kUniform, Distribution::kNormal}) {
        const char* op = distribution == Distribution::kUniform ? "rand" : "randn";
        const Tensor whole = run(op, {}, {{"seed", int64_t{-3}}, {"shape", shape}, {"dtype", dtype}});
        const auto initialiser = random_initialiser(dtype, shape, {distribution, static_cast<uint64_t>(-3), 1, 0});
        int boxes = 0;
        for_each_box(shape, [&](const Dims& offset, const Dims& extent) {
          const Tensor box = make_box(*initialiser, dtype, offset, extent);
          ASSERT_EQ(bytes_of(box), bytes_of(part_of(whole, offset, extent)))
              << op << to_string(shape) << " " << to_string(extent) << " at " << to_string(offset);
          ++boxes;
        });
        EXPECT_GE(boxes, 1);
        EXPECT_EQ(bytes_of(Tensor::deferred(dtype, shape, initialiser)), bytes_of(whole));
      }
    }
  }
}

TEST(InitialisersTest, ScaledAndShiftedAsTheOpsDo) {
  const Dims shape{7, 3};
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    const RandomElements elements{Distribution::kNormal, 5, 0.1, -0.3};
    const Tensor plain = run("randn", {}, {{"seed", int64_t{5}}, {"shape", shape}, {"dtype", dtype}});
    const Tensor whole = run("add_scalar", {run("mul_scalar", {plain}, {{"value", 0.1}})}, {{"value", -0.3}});
    const Tensor box = make_box(*random_initialiser(dtype, shape, elements), dtype, {2, 1}, {4, 2});
    EXPECT_EQ(bytes_of(box), bytes_of(part_of(whole, {2, 1}, {4, 2})));
  }
}

// Element i comes of block i / 2, also where that has more than 32 bits.
TEST(InitialisersTest, BoxesFarOut) {
  const int64_t side = int64_t{1} << 20;
  const Dims shape{side, side, 4};
  const auto initialiser =
      random_initialiser(Dtype::kFloat64, shape, {Distribution::kUniform, (uint64_t{7} << 32) + 9, 1, 0});
  const Tensor box = make_box(*initialiser, Dtype::kFloat64, {side - 1, side - 2, 1}, {1, 2, 3});
  const auto values = values_of<double>(box);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < 3; ++column) {
      const auto index = static_cast<uint64_t>(((side - 1) * side + side - 2 + row) * 4 + 1 + column);
      const uint64_t bits = plain_block((uint64_t{7} << 32) + 9, index / 2)[index % 2];
      EXPECT_EQ(values[static_cast<size_t>(row * 3 + column)], static_cast<double>(bits >> 11) * 0x1p-53);
    }
  }
}

TEST(InitialisersTest, FullIsOfEveryDtype) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt64, Dtype::kBool}) {
    const Tensor whole = run("full", {}, {{"value", 3.0}, {"shape", Dims{2, 3}}, {"dtype", dtype}});
    const auto initialiser = full_initialiser(dtype, 3.0);
    EXPECT_EQ(bytes_of(make_box(*initialiser, dtype, {0, 1}, {2, 2})), bytes_of(part_of(whole, {0, 1}, {2, 2})));
    EXPECT_EQ(bytes_of(Tensor::deferred(dtype, {2, 3}, initialiser)), bytes_of(whole));
  }
}

TEST(InitialisersTest, RefusesWhatTheOpsRefuse) {
  EXPECT_EQ(failure_of([] { full_initialiser(Dtype::kInt64, 0.5); }), "INVALID_ARGUMENT: full: 0.5 is no int64");
  for (const Dtype dtype : {Dtype::kInt64, Dtype::kBool}) {
    EXPECT_EQ(status_of([dtype] { random_initialiser(dtype, {2}, {}); }), Status::kUnsupported);
  }
}

}  // namespace
}  // namespace distag::testing
