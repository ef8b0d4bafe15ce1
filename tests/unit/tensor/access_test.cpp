#include "tensor/access.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "support/tensors.h"

namespace distag {
namespace {

using testing::tensor_of;
using testing::values_of;

// In another thread, as what would wait for ever in this one.
bool can_hold(Tensors tensors) { return try_hold(std::span<Tensor>(tensors)); }

TEST(AccessTest, KeepsTheValuesOfAHeldTensorAndItsViews) {
  Tensor x = tensor_of<float>({4}, {1, 2, 3, 4});
  const HeldTensors held({&x, 1});
  const Tensor view = held.all()[0].view({2}, {1}, 2);
  {
    const TensorWriter writer(x);
    x.mutable_data_as<float>()[3] = 9;
  }
  EXPECT_EQ(values_of<float>(held.all()[0]), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values_of<float>(view), (std::vector<float>{3, 4}));
  EXPECT_EQ(values_of<float>(held.all()[0].snapshot()), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values_of<float>(x), (std::vector<float>{1, 2, 3, 9}));
  EXPECT_EQ(held.all()[0].id(), x.id());
  EXPECT_FALSE(held.all()[0].is_exclusive());
}

TEST(AccessTest, WritesInPlaceWhatNobodyHolds) {
  Tensor x = tensor_of<float>({2}, {1, 2});
  const std::byte* place = x.data();
  { const HeldTensors gone({&x, 1}); }
  {
    const TensorWriter writer(x);
    EXPECT_EQ(x.mutable_data(), place);
  }
  const Tensor held = x.hold();
  const TensorWriter writer(x);
  EXPECT_NE(x.mutable_data(), place);
  EXPECT_EQ(held.data(), place);
}

TEST(AccessTest, HoldsAllTensorsOfOneMomentOrNone) {
  Tensors many;
  for (float i = 0; i < 9; ++i) many.push_back(tensor_of<float>({1}, {i}));
  many.emplace_back();
  many.push_back(many[3].view({1}, {1}, 0));
  {
    const TensorWriter writer(many[7]);
    Tensors tried = many;
    EXPECT_FALSE(try_hold(std::span<Tensor>(tried)));
    for (const Tensor& tensor : tried) EXPECT_FALSE(tensor && tensor.is_held());
    // Nothing else stays locked.
    EXPECT_TRUE(can_hold({many[0], many[8]}));
  }
  const HeldTensors held(many);
  EXPECT_EQ(held.all().size(), 11u);
  EXPECT_FALSE(held.all()[9]);
  EXPECT_TRUE(can_hold(many));
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(held.all()[i].item(), static_cast<double>(i));
}

TEST(AccessTest, HoldsTheTensorsOfValues) {
  Tensor x = tensor_of<float>({1}, {1});
  Values values{Value(int64_t{3}), Value::list({Value(x), Value::text("a")})};
  Values tried = values;
  {
    const TensorWriter writer(x);
    EXPECT_FALSE(try_hold(tried));
    EXPECT_FALSE(tried[1].as_list()[0].as_tensor().is_held());
  }
  EXPECT_TRUE(try_hold(tried));
  EXPECT_TRUE(tried[1].as_list()[0].as_tensor().is_held());
  EXPECT_TRUE(hold(values)[1].as_list()[0].as_tensor().is_held());
  EXPECT_EQ(tried[0].as_int64(), 3);
}

TEST(AccessTest, LetsTwoWritersOfOneStorageInOneAfterTheOther) {
  Tensor x = tensor_of<double>({2}, {0, 0});
  auto add = [&x](int64_t place, int count) {
    Tensor part = x.view({1}, {1}, place);
    for (int i = 0; i < count; ++i) {
      const Tensor kept = i % 3 == 0 ? x.snapshot() : Tensor();
      const TensorWriter writer(part);
      *part.mutable_data_as<double>() += 1;
    }
  };
  std::thread other(add, 0, 2000);
  add(1, 2000);
  other.join();
  EXPECT_EQ(values_of<double>(x), (std::vector<double>{2000, 2000}));
}

TEST(AccessTest, SeesAWriteOfSeveralTensorsInAllOrInNone) {
  Tensors all;
  for (int i = 0; i < 100; ++i) all.push_back(tensor_of<double>({1}, {0}));
  std::atomic<bool> is_over = false;
  std::thread writer([all, &is_over]() mutable {
    for (int i = 0; i < 10000; ++i) {
      const TensorWriter access(all);
      for (Tensor& tensor : all) *tensor.mutable_data_as<double>() += 1;
    }
    is_over = true;
  });
  int mixtures = 0;
  while (!is_over) {
    const HeldTensors held(all);
    for (const Tensor& tensor : held.all()) mixtures += tensor.item() != held.all()[0].item();
  }
  writer.join();
  EXPECT_EQ(mixtures, 0);
  EXPECT_EQ(all[99].item(), 10000.0);
}

TEST(AccessTest, TakesAStorageOnceForAllOfItsViews) {
  Tensor x = tensor_of<float>({2}, {1, 2});
  const Tensors views{x.view({1}, {1}, 0), x.view({1}, {1}, 1), x};
  const TensorWriter writer(views);
  EXPECT_FALSE(can_hold({x}));
}

TEST(AccessTest, FreesAReplacedBufferOutsideOfTheLock) {
  float memory[1] = {1};
  bool was_free = false;
  Tensor x;
  BufferRef buffer = Buffer::adopt(memory, sizeof memory, [&] { was_free = x && can_hold({x}); });
  x = Tensor::over(std::move(buffer), Dtype::kFloat32, {1}, {1});
  {
    const TensorWriter writer(x);
    *x.mutable_data_as<float>() = 2;
    EXPECT_FALSE(was_free);
  }
  EXPECT_TRUE(was_free);
}

TEST(AccessTest, RefusesToWriteBorrowedMemoryAndLocksNothing) {
  float memory[1] = {1};
  Tensor x = tensor_of<float>({1}, {1});
  Tensor borrowed = Tensor::over(Buffer::borrow(memory, sizeof memory, {}), Dtype::kFloat32, {1}, {1});
  try {
    const TensorWriter writer(Tensors{x, borrowed});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState);
  }
  EXPECT_TRUE(can_hold({x, borrowed}));
}

}  // namespace
}  // namespace distag
