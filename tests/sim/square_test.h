#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "autograd/autograd.h"
#include "ops/builtins.h"
#include "support/sim_group.h"

namespace distag::sim {

// Three workers. w0 has a context and in it y, the square of x, made by w1; w2 knows the context and has no part in
// that.
class SquareTest : public ::testing::Test {
 protected:
  void make(SimGroupOptions options, int64_t elements = 1) {
    options.size = 3;
    group_ = std::make_unique<SimWorkerGroup>(1, options);
    for (int32_t rank = 0; rank < 3; ++rank) {
      group_->worker(rank).rpc().register_function("nothing", [](Invocation&) {});
      group_->worker(rank).rpc().register_function("square", [](Invocation& invocation) {
        const Tensor x = invocation.args()[0].as_tensor();
        invocation.set_result(Value(autograd::apply(ops::kMul, std::vector<Tensor>{x, x}, {})[0]));
      });
    }
    group_->start();
    for (int32_t rank = 0; rank < 3; ++rank) {
      peers_.push_back(group_->worker(0).group().membership().find_by_rank(rank)->peer);
    }
    context_ = group_->worker(0).dautograd().create_context();
    x_ = Tensor::empty(Dtype::kFloat64, {elements});
    std::fill_n(x_.mutable_data_as<double>(), elements, 3.0);
    autograd::set_requires_grad(x_, true);
    y_ = group_->call(0, 1, "square", {Value(x_)}, id()).as_tensor();
    group_->call(0, 2, "nothing", {}, id());
  }

  Incarnation incarnation(size_t rank) const { return peers_[rank].incarnation; }
  Id id() const { return context_->global_id(); }
  DautogradStats stats(int32_t rank) { return group_->worker(rank).stats().dautograd; }

  std::unique_ptr<SimWorkerGroup> group_;
  std::vector<Peer> peers_;
  std::shared_ptr<Context> context_;
  Tensor x_;
  Tensor y_;
};

}  // namespace distag::sim
