#include "rpc/op_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/tensors.h"

namespace distag {
namespace {

OpCall call_of(const std::string& op, Values args) { return make_op_call(*ops::find_op(op), args); }

Value zeros(Dtype dtype, const Dims& shape) {
  Tensor x = Tensor::empty(dtype, shape);
  std::fill_n(x.mutable_data(), x.byte_size(), std::byte{0});
  return Value(std::move(x));
}

TEST(OpCallTest, IsCheapForSmallElementwiseWork) {
  EXPECT_TRUE(is_cheap(call_of("mul", {zeros(Dtype::kFloat32, {8192}), zeros(Dtype::kFloat32, {1})})));
  EXPECT_TRUE(is_cheap(call_of("concat", {zeros(Dtype::kFloat32, {8}), zeros(Dtype::kFloat32, {9})})));
  EXPECT_FALSE(is_cheap(call_of("mul", {zeros(Dtype::kFloat32, {8193}), zeros(Dtype::kFloat32, {1})})));
}

TEST(OpCallTest, IsNotCheapWhereTheInputsBroadcastToMuch) {
  EXPECT_FALSE(is_cheap(call_of("add", {zeros(Dtype::kFloat32, {8192, 1}), zeros(Dtype::kFloat32, {1, 8192})})));
}

// 64 KiB and 64 KiB give 512 MiB.
TEST(OpCallTest, IsNotCheapWhereTheOutputMayBeMuchMoreThanTheInputs) {
  const Value rows = zeros(Dtype::kFloat32, {1, 16384});
  const Value few_rows = zeros(Dtype::kFloat32, {1, 4096});
  const Value indices = zeros(Dtype::kInt64, {8192});
  const Value options = Value::map({{"dim", Value(int64_t{0})}});
  EXPECT_FALSE(is_cheap(call_of("index_select", {rows, indices, options})));
  EXPECT_FALSE(is_cheap(call_of("index_select", {few_rows, zeros(Dtype::kInt64, {2048}), options})));
  EXPECT_FALSE(is_cheap(call_of("embedding", {few_rows, zeros(Dtype::kInt64, {2048})})));
}

TEST(OpCallTest, IsCheapForThreeInputsOfOneShape) {
  const Value x = zeros(Dtype::kFloat32, {8192});
  EXPECT_TRUE(is_cheap(call_of("where", {zeros(Dtype::kBool, {8192}), x, x})));
}

TEST(OpCallTest, IsNotCheapForManySmallInputs) {
  Values many(100, zeros(Dtype::kFloat32, {8192}));
  EXPECT_FALSE(is_cheap(call_of("concat", many)));
}

TEST(OpCallTest, IsOneShortPassUpToAMebibyteOfDenseTensors) {
  const Value most = zeros(Dtype::kFloat32, {512, 512});
  EXPECT_TRUE(is_one_short_pass(call_of("neg", {most})));
  EXPECT_TRUE(is_one_short_pass(call_of("mul", {most, zeros(Dtype::kFloat32, {1})})));
  EXPECT_TRUE(is_one_short_pass(call_of("add", {most, most})));
  EXPECT_FALSE(is_one_short_pass(call_of("neg", {zeros(Dtype::kFloat32, {512, 513})})));
  EXPECT_FALSE(is_one_short_pass(call_of("neg", {zeros(Dtype::kFloat64, {512, 512})})));
  EXPECT_FALSE(is_one_short_pass(call_of("exp", {most})));
}

TEST(OpCallTest, IsNoShortPassWhereMemoryIsNotReadInOrderOrTheResultIsLarger) {
  const Value most = zeros(Dtype::kFloat32, {512, 512});
  const Value transposed(most.as_tensor().view(Dims{512, 512}, Dims{1, 512}, 0));
  EXPECT_FALSE(is_one_short_pass(call_of("neg", {transposed})));
  EXPECT_FALSE(is_one_short_pass(call_of("mul", {zeros(Dtype::kFloat32, {512, 1}), zeros(Dtype::kFloat32, {1, 512})})));
}

// Each element of the output looks at a whole window.
TEST(OpCallTest, IsNotCheapForWindows) {
  EXPECT_FALSE(is_cheap(call_of("max_pool2d", {zeros(Dtype::kFloat32, {1, 1, 64, 64})})));
}

}  // namespace
}  // namespace distag
