#pragma once

// Collectives of a mesh over whole workers, for tests: the members, their calls and their results.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "coll/meshes.h"
#include "support/sim_group.h"
#include "support/tensors.h"

namespace distag::sim {

using distag::testing::tensor_of;
using distag::testing::values_of;
using Result = std::shared_ptr<Future<Tensor>>;

// A group and a mesh of all of it, as each member has it.
class MeshGroup {
 public:
  MeshGroup(uint64_t seed, const Dims& shape, SimGroupOptions options = {}, std::vector<int64_t> granules = {},
            Nanos timeout = 30 * kSecond)
      : timeout_(timeout) {
    options.size = static_cast<int32_t>(element_count(shape));
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    group_->start();
    request_.name = "train";
    request_.shape = shape;
    for (size_t i = 0; i < shape.size(); ++i) request_.axis_names.emplace_back(1, static_cast<char>("xyz"[i]));
    request_.granules = std::move(granules);
    make();
  }

  void make() {
    meshes_.clear();
    std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      made.push_back(group_->worker(rank).meshes().create(request_, timeout_));
    }
    for (const auto& one : made) {
      wait(*one, kForever);
      meshes_.push_back(one->value());
    }
  }

  int32_t size() const { return group_->size(); }
  SimWorkerGroup& group() { return *group_; }
  Mesh& mesh(int32_t rank) { return *meshes_[static_cast<size_t>(rank)]; }
  // Lets the mesh of that member go, which it has left, or which has ended.
  void forget(int32_t rank) { meshes_[static_cast<size_t>(rank)].reset(); }
  layout::Axes all_axes() const { return layout::axes_of((layout::AxisSet{1} << request_.shape.size()) - 1); }
  MeshStats stats(int32_t rank) {
    MeshStats stats;
    group_->loop(rank).run([&] { stats = mesh(rank).stats(); });
    return stats;
  }
  void shut_down() {
    for (const ShutdownReport& report : group_->shutdown()) EXPECT_TRUE(report.clean);
  }

  layout::MeshRequest request_;

 private:
  const Nanos timeout_;
  std::unique_ptr<SimWorkerGroup> group_;
  std::vector<std::shared_ptr<Mesh>> meshes_;
};

inline Tensor numbers(const Dims& shape, int64_t seed) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    tensor.mutable_data_as<double>()[i] = static_cast<double>((i * 7919 + seed * 104729) % 1009) / 7.0 - 70;
  }
  return tensor;
}

inline CollectiveCall call_of(CollectiveKind kind, const layout::Axes& axes, const Tensor& tensor) {
  CollectiveCall call;
  call.kind = kind;
  call.axes = axes;
  call.tensor = tensor;
  return call;
}

inline CollectiveCall sum_of(const Dims& shape) { return call_of(CollectiveKind::kAllReduce, {0}, numbers(shape, 1)); }

inline Tensor value_of(const Result& result) {
  wait(*result, kForever);
  return result->value();
}

inline Error failure_of(const Completion& completion) {
  wait(const_cast<Completion&>(completion), kForever);
  if (completion.error() != nullptr) return *completion.error();
  ADD_FAILURE() << "it did not fail";
  return Error();
}

inline void expect_failure(const Error& error, Status status, const std::string& word) {
  EXPECT_EQ(error.status(), status) << error.message();
  EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && values_of<double>(a) == values_of<double>(b);
}

// The sum in the only order: ascending positions.
inline Tensor expected_sum(const std::vector<Tensor>& operands) {
  auto sum = values_of<double>(operands[0]);
  for (size_t k = 1; k < operands.size(); ++k) {
    const auto next = values_of<double>(operands[k]);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += next[i];
  }
  return tensor_of<double>(operands[0].shape(), sum);
}

}  // namespace distag::sim
