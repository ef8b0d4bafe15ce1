// The order that TSan is to see: a holder's reads come before the writes of whoever finds itself alone afterwards.
#include <gtest/gtest.h>

#include <thread>

#include "support/tensors.h"

namespace distag {
namespace {

double sum_of(const Tensor& x) {
  double sum = 0;
  for (double value : testing::values_of<double>(x)) sum += value;
  return sum;
}

// Writes as soon as `x` is exclusive, while another thread reads through `other` and lets go.
template <typename Other>
void write_once_alone(Tensor x, Other other) {
  double seen = 0;
  std::thread reader([&seen, other = std::move(other)]() mutable {
    seen = sum_of(other);
    other = Tensor();
  });
  while (!x.is_exclusive()) std::this_thread::yield();
  x.mutable_data_as<double>()[0] = 100;
  reader.join();
  EXPECT_EQ(seen, 6.0);
}

TEST(ExclusiveTest, ComesAfterTheReadsOfAnotherHandle) {
  for (int i = 0; i < 50; ++i) {
    Tensor x = testing::tensor_of<double>({3}, {1, 2, 3});
    Tensor same = x;
    write_once_alone(std::move(x), std::move(same));
  }
}

TEST(ExclusiveTest, ComesAfterTheReadsOfAView) {
  for (int i = 0; i < 50; ++i) {
    Tensor x = testing::tensor_of<double>({3}, {1, 2, 3});
    Tensor view = x.view({3}, {1}, 0);
    write_once_alone(std::move(x), std::move(view));
  }
}

TEST(ExclusiveTest, ComesAfterTheReadsOfASnapshot) {
  for (int i = 0; i < 50; ++i) {
    Tensor x = testing::tensor_of<double>({3}, {1, 2, 3});
    Tensor kept = x.snapshot();
    write_once_alone(std::move(x), std::move(kept));
  }
}

}  // namespace
}  // namespace distag
