#include <gtest/gtest.h>

#include <cmath>

#include "apply_op.h"

namespace distag::testing {
namespace {

TEST(SoftmaxTest, DoesNotOverflow) {
  auto y = floats_of(run("softmax", {floats({2, 2}, {1000, 1000, -1000, -1001})}));
  EXPECT_FLOAT_EQ(y[0], 0.5f);
  EXPECT_FLOAT_EQ(y[2], 0.7310586f);
  auto logs = floats_of(run("log_softmax", {floats({1, 2}, {1000, 0})}));
  EXPECT_FLOAT_EQ(logs[0], 0);
  EXPECT_FLOAT_EQ(logs[1], -1000);
  auto masked = floats_of(run("softmax", {floats({3}, {-INFINITY, 0, 0})}));
  EXPECT_EQ(masked, (std::vector<float>{0, 0.5, 0.5}));
}

TEST(SoftmaxTest, SumsToOneAlongItsDim) {
  Tensor x = Tensor::empty(Dtype::kFloat64, {3, 50, 2});
  for (int64_t i = 0; i < x.count(); ++i) x.mutable_data_as<double>()[i] = std::sin(static_cast<double>(i)) * 5;
  for (int64_t dim : {0, 1, 2}) {
    for (double sum : values_of<double>(run("sum", {run("softmax", {x}, {{"dim", dim}})}, {{"dims", Dims{dim}}}))) {
      EXPECT_NEAR(sum, 1.0, 1e-14);
    }
  }
  EXPECT_EQ(run("softmax", {x}, {{"dim", 1}}).shape(), x.shape());
  EXPECT_EQ(failure_of([&] {
              run("softmax", {x}, {{"dim", 3}});
            }),
            "INVALID_ARGUMENT: softmax: dim 3 is out of range for float64[3, 50, 2]");
  EXPECT_EQ(run("softmax", {integers({2}, {1, 1})}).dtype(), Dtype::kFloat32);
}

TEST(CrossEntropyTest, IsTheMeanOverABatch) {
  Tensor logits = floats({2, 2}, {0, 0, 0, 1000});
  EXPECT_NEAR(run("cross_entropy", {logits, integers({2}, {0, 1})}).item(), std::log(2.0) / 2, 1e-6);
  EXPECT_NEAR(run("cross_entropy", {logits, integers({2}, {0, 0})}).item(), (std::log(2.0) + 1000) / 2, 1e-3);
}

TEST(CrossEntropyTest, WeighsClassesAndIgnoresOne) {
  Tensor logits = floats({3, 2}, {0, 0, 0, 0, 0, 0});
  Tensor weight = floats({2}, {1, 3});
  Tensor targets = integers({3}, {0, 1, 7});
  Tensor each = run("cross_entropy", {logits, targets, weight}, {{"reduction", "none"}, {"ignore_index", 7}});
  EXPECT_NEAR(floats_of(each)[1], 3 * std::log(2.0), 1e-6);
  EXPECT_EQ(floats_of(each)[2], 0);
  Tensor mean = run("cross_entropy", {logits, targets, weight}, {{"ignore_index", 7}});
  EXPECT_NEAR(mean.item(), std::log(2.0), 1e-6);
  Tensor sum = run("cross_entropy", {logits, targets, weight}, {{"reduction", "sum"}, {"ignore_index", 7}});
  EXPECT_NEAR(sum.item(), 4 * std::log(2.0), 1e-6);
}

TEST(CrossEntropyTest, HasNoMeanOfNothing) {
  const ops::Op* op = ops::find_op("cross_entropy");
  ops::Saved saved;
  saved.needed = 1;
  Tensors inputs{floats({1, 2}, {1, 2}), integers({1}, {-100})};
  EXPECT_TRUE(std::isnan(op->forward(inputs, {}, &saved)[0].item()));
  EXPECT_EQ(floats_of(op->backward(saved, {floats({}, {1})})[0]), (std::vector<float>{0, 0}));
}

TEST(CrossEntropyTest, SaysWhatDoesNotFit) {
  Tensor logits = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(failure_of([&] {
              run("cross_entropy", {logits, integers({2}, {0, 3})});
            }),
            "INVALID_ARGUMENT: cross_entropy: target 3 at row 1 is out of range [0, 3)");
  EXPECT_EQ(failure_of([&] {
              run("cross_entropy", {logits, integers({3}, {0, 1, 2})});
            }).find("INVALID_ARGUMENT: cross_entropy: logits float32[2, 3] and targets int64[3] do not fit"),
            0u);
  EXPECT_EQ(failure_of([&] { run("cross_entropy", {logits, floats({2}, {0, 1})}); }).find("INVALID_ARGUMENT"), 0u);
  EXPECT_EQ(failure_of([&] {
              run("cross_entropy", {logits, integers({2}, {0, 1}), floats({2}, {1, 1})});
            }).find("INVALID_ARGUMENT: cross_entropy: weight float32[2] does not fit 3 classes"),
            0u);
  EXPECT_EQ(failure_of([&] {
              run("cross_entropy", {logits, integers({2}, {0, 1})}, {{"reduction", "max"}});
            }),
            "INVALID_ARGUMENT: cross_entropy: reduction \"max\" is invalid: give mean, sum or none");
}

TEST(MseLossTest, IsTheMeanOfSquares) {
  Tensor a = floats({2, 2}, {1, 2, 3, 4});
  Tensor b = floats({2}, {1, 0});
  EXPECT_EQ(run("mse_loss", {a, b}).item(), 6.0);
  EXPECT_EQ(run("mse_loss", {a, b}, {{"reduction", "sum"}}).item(), 24.0);
  EXPECT_EQ(floats_of(run("mse_loss", {a, b}, {{"reduction", "none"}})), (std::vector<float>{0, 4, 4, 16}));
  EXPECT_EQ(failure_of([] { run("mse_loss", {integers({1}, {1}), integers({1}, {1})}); }).find("UNSUPPORTED"), 0u);
}

TEST(DivergenceTest, TargetsOfZeroCountForNothing) {
  EXPECT_EQ(floats_of(run("kl_div", {floats({2}, {-INFINITY, -1}), floats({2}, {0, 1})}, {{"reduction", "none"}})),
            (std::vector<float>{0, 1}));
}

TEST(DivergenceTest, TargetsOfZeroHaveNoSlope) {
  const ops::Op* op = ops::find_op("kl_div");
  for (const float target : {0.0F, -0.0F}) {
    ops::Saved saved;
    saved.needed = 2;
    op->forward(Tensors{floats({2}, {-1, -2}), floats({2}, {target, 1})}, {}, &saved);
    EXPECT_EQ(floats_of(op->backward(saved, {floats({}, {1})})[1]), (std::vector<float>{0, 1.5}));
  }
}

}  // namespace
}  // namespace distag::testing
