#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "support/expect.h"
#include "support/tensors.h"

namespace distag {
namespace {

using testing::status_of;
using testing::tensor_of;
using testing::values_of;

TEST(TensorTest, KnowsWhatItIs) {
  Tensor x = tensor_of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(x.dtype(), Dtype::kFloat32);
  EXPECT_EQ(x.count(), 6);
  EXPECT_EQ(x.byte_size(), 24u);
  EXPECT_EQ(x.strides(), (Dims{3, 1}));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(describe(x), "float32[2, 3]");
  EXPECT_EQ(describe(Tensor()), "none");
  Tensor same = x;
  EXPECT_EQ(same.id(), x.id());
  EXPECT_NE(x.clone().id(), x.id());
}

TEST(TensorTest, HasNoDataWithoutElements) {
  Tensor x = Tensor::empty(Dtype::kFloat64, {0, 3});
  EXPECT_EQ(x.data(), nullptr);
  EXPECT_EQ(x.mutable_data(), nullptr);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(x.clone().count(), 0);
  EXPECT_EQ(status_of([&] { x.item(); }), Status::kInvalidArgument);
}

TEST(TensorTest, MakesScalars) {
  EXPECT_EQ(Tensor::scalar(Dtype::kFloat32, 1.5).item(), 1.5);
  EXPECT_EQ(Tensor::scalar(Dtype::kInt64, -3).item(), -3.0);
  EXPECT_EQ(Tensor::scalar(Dtype::kBool, 7).item(), 1.0);
  EXPECT_EQ(Tensor::scalar(Dtype::kFloat64, 0.1).rank(), 0u);
  EXPECT_EQ(status_of([] { Tensor::scalar(Dtype::kInt64, 1e19); }), Status::kInvalidArgument);
}

TEST(TensorTest, RefusesAViewOutsideOfItsMemory) {
  double memory[6] = {0, 1, 2, 3, 4, 5};
  BufferRef buffer = Buffer::borrow(memory, sizeof memory, {});
  Tensor reversed = Tensor::over(buffer, Dtype::kFloat64, {3}, {-2}, 4);
  EXPECT_EQ(values_of<double>(reversed), (std::vector<double>{4, 2, 0}));
  auto over = [&](const Dims& shape, const Dims& strides, int64_t offset) {
    return status_of([&] { Tensor::over(buffer, Dtype::kFloat64, shape, strides, offset); });
  };
  EXPECT_EQ(over({2, 3}, {3, 1}, 0), Status::kOk);
  EXPECT_EQ(over({2, 3}, {3, 1}, 1), Status::kInvalidArgument);
  EXPECT_EQ(over({2, 3}, {4, 1}, 0), Status::kInvalidArgument);
  EXPECT_EQ(over({3}, {-1}, 1), Status::kInvalidArgument);
  EXPECT_EQ(over({2}, {INT64_MAX}, 1), Status::kInvalidArgument);
  EXPECT_EQ(over({3}, {INT64_MAX}, 0), Status::kInvalidArgument);
  EXPECT_EQ(over({1}, {1}, -1), Status::kInvalidArgument);
  EXPECT_EQ(over({2}, {1, 1}, 0), Status::kInvalidArgument);
  EXPECT_EQ(over({0, 9}, {9, 1}, 0), Status::kOk);
}

TEST(TensorTest, RefusesMemoryThatIsNotAligned) {
  alignas(8) char memory[20] = {};
  EXPECT_EQ(status_of([&] { Tensor::over(Buffer::borrow(memory + 1, 16, {}), Dtype::kFloat64, {2}, {1}); }),
            Status::kInvalidArgument);
}

TEST(TensorTest, CopiesStridedElementsInOrder) {
  Tensor x = tensor_of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor transposed = x.view({3, 2}, {1, 3}, 0);
  EXPECT_FALSE(transposed.is_contiguous());
  EXPECT_EQ(values_of<float>(transposed), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_TRUE(transposed.contiguous().is_contiguous());
  EXPECT_EQ(x.contiguous().id(), x.id());
}

TEST(TensorTest, SharesWritesWithItsViews) {
  Tensor x = tensor_of<float>({4}, {1, 2, 3, 4});
  Tensor view = x.view({2}, {1}, 2);
  x.mutable_data_as<float>()[2] = 9;
  EXPECT_EQ(values_of<float>(view), (std::vector<float>{9, 4}));
  EXPECT_TRUE(view.shares_storage_with(x));
}

TEST(TensorTest, LeavesSnapshotsAsTheyAreWhenItIsWritten) {
  Tensor x = tensor_of<float>({2}, {1, 2});
  Tensor view = x.view({1}, {1}, 1);
  Tensor kept = x.snapshot();
  EXPECT_EQ(kept.data(), x.data());
  x.mutable_data_as<float>()[1] = 5;
  EXPECT_EQ(values_of<float>(kept), (std::vector<float>{1, 2}));
  EXPECT_EQ(values_of<float>(view), (std::vector<float>{5}));
  EXPECT_FALSE(kept.shares_storage_with(x));
  // Now that no snapshot holds the buffer, a write stays in place.
  const std::byte* place = x.data();
  x.mutable_data_as<float>()[0] = 6;
  EXPECT_EQ(x.data(), place);
}

TEST(TensorTest, RefusesToWriteBorrowedMemoryButNotASnapshotOfIt) {
  float memory[2] = {1, 2};
  Tensor x = Tensor::over(Buffer::borrow(memory, sizeof memory, {}), Dtype::kFloat32, {2}, {1});
  EXPECT_EQ(status_of([&] { x.mutable_data(); }), Status::kInvalidState);
  Tensor arrived = x.snapshot();
  arrived.mutable_data_as<float>()[0] = 7;
  EXPECT_EQ(memory[0], 1.0f);
  EXPECT_EQ(values_of<float>(arrived), (std::vector<float>{7, 2}));
}

TEST(TensorTest, CopiesAdoptedMemoryBeforeAWrite) {
  float memory[2] = {1, 2};
  Tensor x = Tensor::over(Buffer::adopt(memory, sizeof memory, {}), Dtype::kFloat32, {2}, {1});
  x.mutable_data_as<float>()[0] = 7;
  EXPECT_EQ(memory[0], 1.0f);
}

TEST(TensorTest, IsExclusiveOnlyWithoutAnyOtherHolder) {
  Tensor x = tensor_of<float>({2}, {1, 2});
  EXPECT_TRUE(x.is_exclusive());
  {
    Tensor same = x;
    EXPECT_FALSE(x.is_exclusive());
  }
  {
    Tensor view = x.view({1}, {1}, 0);
    EXPECT_FALSE(x.is_exclusive());
  }
  {
    Tensor kept = x.snapshot();
    EXPECT_FALSE(x.is_exclusive());
    EXPECT_FALSE(kept.is_exclusive());
  }
  EXPECT_TRUE(x.is_exclusive());
  EXPECT_FALSE(Tensor().is_exclusive());
}

// In a forked child a thread of the parent may have it for ever.
TEST(TensorTest, WhetherItOwnsItsBufferWaitsForNoLock) {
  const Tensor x = tensor_of<float>({2}, {1, 2});
  EXPECT_TRUE(x.owns_buffer());
  const std::lock_guard<Storage> lock(x.storage());
  EXPECT_FALSE(x.owns_buffer());
}

}  // namespace
}  // namespace distag
