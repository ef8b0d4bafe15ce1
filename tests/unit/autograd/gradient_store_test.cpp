#include "autograd/gradient_store.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/tensors.h"

namespace distag::autograd {
namespace {

using testing::tensor_of;
using testing::values_of;

Tensor vector_of(const std::vector<double>& values) {
  return tensor_of(Dims{static_cast<int64_t>(values.size())}, values);
}

TEST(GradientStoreTest, CountsThePassesThatItsSumsHold) {
  const Tensor leaf = vector_of({0});
  GradientStore store;
  EXPECT_EQ(store.read()->passes, 0u);
  store.add({1, 1}, {{leaf, vector_of({1})}});
  store.add({1, 2}, {});
  EXPECT_EQ(store.read()->passes, 2u);
  store.add({1, 3}, {{leaf, vector_of({2})}});
  EXPECT_EQ(store.read()->passes, 3u);
  EXPECT_EQ(values_of<double>(*store.read()->find(leaf)), (std::vector<double>{3}));
}

TEST(GradientStoreTest, ScalesTheNamedLeavesAndNoSnapshot) {
  const Tensor a = vector_of({0, 0});
  const Tensor b = vector_of({0});
  const Tensor stranger = vector_of({0});
  GradientStore store;
  store.add({1, 1}, {{a, vector_of({2, 4})}, {b, vector_of({6})}});
  const auto before = store.read();
  const std::vector<uint64_t> leaves = {stranger.id(), a.id()};
  store.scale(leaves, 0.5, 1);
  EXPECT_EQ(values_of<double>(*store.read()->find(a)), (std::vector<double>{1, 2}));
  EXPECT_EQ(values_of<double>(*store.read()->find(b)), (std::vector<double>{6}));
  EXPECT_EQ(values_of<double>(*before->find(a)), (std::vector<double>{2, 4}));
  store.add({1, 2}, {{a, vector_of({1, 1})}});
  EXPECT_EQ(values_of<double>(*store.read()->find(a)), (std::vector<double>{2, 3}));
}

TEST(GradientStoreTest, RefusesToScaleASumThatHasGrown) {
  const Tensor leaf = vector_of({0});
  GradientStore store;
  store.add({1, 1}, {{leaf, vector_of({2})}});
  const uint64_t seen = store.read()->passes;
  store.add({1, 2}, {{leaf, vector_of({2})}});
  const std::vector<uint64_t> leaves = {leaf.id()};
  try {
    store.scale(leaves, 0.5, seen);
    FAIL() << "it was scaled";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState);
  }
  EXPECT_EQ(values_of<double>(*store.read()->find(leaf)), (std::vector<double>{4}));
}

}  // namespace
}  // namespace distag::autograd
