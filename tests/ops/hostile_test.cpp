// A peer may call any op with anything: whatever it gives, the op answers or fails with an Error. Run with sanitizers;
// hostile_calls_test.cpp has the same as calls of another worker.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/hostile.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

// Gradients from seeds of every layout; each is read whole.
void apply_backward(const ops::Op& op, const ops::Saved& saved, const Tensors& inputs, const Tensors& outputs) {
  for (Layout layout : kLayouts) {
    Tensors seeds;
    for (const Tensor& output : outputs) seeds.push_back(in_layout(output, layout));
    const Tensors gradients = op.backward(saved, std::move(seeds));
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i]) continue;
      ASSERT_EQ(gradients[i].shape(), inputs[i].shape()) << "input " << i << ", " << describe(inputs[i]);
      ASSERT_EQ(gradients[i].dtype(), inputs[i].dtype()) << "input " << i;
      gradients[i].clone();
    }
  }
}

// Whether the op took what it got.
bool apply_both_ways(uint64_t seed, const ops::Op& op) {
  HostileArguments generator(seed);
  const Tensors inputs = generator.inputs(op.arguments);
  const ops::Attributes attributes = generator.attributes(op.arguments);
  try {
    ops::check_arguments(op, inputs, attributes);
    ops::Saved saved;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] && is_floating(inputs[i].dtype())) saved.needed |= uint64_t{1} << i;
    }
    const Tensors outputs = op.forward(inputs, attributes, saved.needed != 0 ? &saved : nullptr);
    if (op.backward == nullptr || saved.needed == 0) return true;
    for (const Tensor& output : outputs) {
      if (!is_floating(output.dtype())) return true;  // has no gradient
    }
    apply_backward(op, saved, inputs, outputs);
  } catch (const Error&) {
    return false;
  }
  return true;
}

TEST(HostileTest, EveryOpAnswersOrFails) {
  constexpr int kRuns = 1500;
  constexpr int kMostRuns = 100000;  // of an op that takes few, as those with many settings
  for (const ops::Op* op : ops::builtins()) {
    SCOPED_TRACE(op->name);
    int taken = 0;
    for (uint64_t seed = 0; seed < kRuns || (taken == 0 && seed < kMostRuns); ++seed) {
      SCOPED_TRACE(seed);
      taken += apply_both_ways(seed, *op) ? 1 : 0;
      if (HasFatalFailure()) return;
    }
    EXPECT_LT(taken, kRuns);
    EXPECT_GT(taken, 0);  // else nothing behind its checks ran
  }
}

// Views of 2^62 elements cost nothing, and come by reference from one call to the next.
TEST(HostileTest, EveryOpAnswersOrFailsForViewsLargerThanMemory) {
  for (const ops::Op* op : ops::builtins()) {
    SCOPED_TRACE(op->name);
    for (uint64_t seed = 0; seed < 200; ++seed) {
      HostileArguments generator(seed);
      Tensors inputs = generator.inputs(op->arguments);
      for (Tensor& input : inputs) {
        if (!input || input.count() == 0 || input.rank() == 0) continue;
        Dims shape = input.shape();
        Dims strides = input.strides();
        const size_t dim = seed % shape.size();
        const int64_t others = input.count() / shape[dim];
        shape[dim] = INT64_MAX / 8 / others - static_cast<int64_t>(seed % 3);
        strides[dim] = 0;
        input = input.view(shape, strides, input.offset());
      }
      try {
        const ops::Attributes attributes = generator.attributes(op->arguments);
        ops::check_arguments(*op, inputs, attributes);
        op->forward(inputs, attributes, nullptr);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace distag::testing
