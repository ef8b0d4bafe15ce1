// An MLP, trained twenty steps by Adam in float64, in five ways to cut it: equal to one process within 1e-9, and the
// same bits on all members that hold the same box.
#include <gtest/gtest.h>

#include <cstring>

#include "autograd/autograd.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "optim/optimizer.h"
#include "optim/rules.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/programs.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

constexpr int kSteps = 20;
constexpr int64_t kBatch = 6;
constexpr int64_t kIn = 5;
constexpr int64_t kHidden = 8;
constexpr int64_t kOut = 3;

// The specs of one way to cut the model; empty: as it comes.
struct Form {
  const char* name;
  const char* batch;
  const char* first;   // [hidden, in]
  const char* bias;    // [hidden]
  const char* second;  // [out, hidden]
  const char* last;    // [out]
  const char* middle;  // the activations between
};

constexpr Form kDataParallel{"data parallel", "('x', None)", "(None, None)", "(None,)", "(None, None)", "(None,)", ""};
constexpr Form kTensorParallel{
    "tensor parallel", "(None, None)", "('x', None)", "('x',)", "(None, 'x')", "(None,)", ""};
constexpr Form kSequenceParallel{"sequence parallel", "('x', None)", "('x', None)", "('x',)",
                                 "(None, 'x')",       "(None,)",     "(None, None)"};
constexpr Form kFullySharded{"fully sharded", "('x', None)", "('x', None)", "('x',)", "('x', None)", "('x',)", ""};
constexpr Form kTwoDims{"2-D", "('x', None)", "('y', 'x')", "('y',)", "('x', 'y')", "('x',)", ""};

struct Model {
  Tensor first = numbers({kHidden, kIn}, 1);
  Tensor bias = numbers({kHidden}, 2);
  Tensor second = numbers({kOut, kHidden}, 3);
  Tensor last = numbers({kOut}, 4);

  Tensors parameters() const { return {first, bias, second, last}; }

  Tensor loss(const Tensor& x, const Tensor& target, const char* middle) const {
    Tensor batch = x;
    if (*middle != '\0') batch = spmd::redistribute(x, middle, {});
    const Tensor hidden = apply("tanh", {apply("linear", {batch, first, bias})});
    Tensor out = apply("linear", {hidden, second, last});
    if (*middle != '\0') out = spmd::redistribute(out, "('x', None)", {});
    return apply("mse_loss", {out, target});
  }
};

struct Trained {
  std::vector<double> losses;
  Tensors whole;
  Tensors shards;
  std::vector<layout::Spec> specs;
};

Tensor batch_of(int step) { return numbers({kBatch, kIn}, 100 + step); }
Tensor target_of(int step) { return numbers({kBatch, kOut}, 200 + step); }

Trained train_alone() {
  const Model model;
  for (const Tensor& parameter : model.parameters()) autograd::set_requires_grad(parameter, true);
  const auto adam = optim::make_in_process_optimizer(optim::find_rule("adam"), model.parameters());
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    const auto context = make_local_context();
    const Tensor loss = model.loss(batch_of(step), target_of(step), "");
    trained.losses.push_back(loss.item());
    context->backward({loss}, {});
    adam->step(context, {});
  }
  trained.whole = model.parameters();
  return trained;
}

Trained train(Member& member, const Form& form) {
  const Model model;
  const char* const specs[] = {form.first, form.bias, form.second, form.last};
  const Tensors parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    spmd::mark_sharding(parameters[i], member.line, specs[i], -1);
    autograd::set_requires_grad(parameters[i], true);
  }
  const auto adam = optim::make_in_process_optimizer(optim::find_rule("adam"), parameters);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    const Tensor x = batch_of(step);
    const Tensor target = target_of(step);
    spmd::mark_sharding(x, member.line, form.batch, -1);
    spmd::mark_sharding(target, member.line, form.batch, -1);
    const Tensor loss = model.loss(x, target, form.middle);
    context->backward({loss}, {});
    adam->step(context, {});
    trained.losses.push_back(spmd::gather(loss, -1).item());
  }
  for (const Tensor& parameter : parameters) {
    trained.whole.push_back(spmd::gather(parameter, -1));
    trained.shards.push_back(spmd::Sharding::of(parameter)->lying().shard.clone());
    trained.specs.push_back(spmd::Sharding::of(parameter)->lying().spec);
  }
  return trained;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && (a.count() == 0 || std::memcmp(a.data(), b.data(), a.byte_size()) == 0);
}

void check_form(const Form& form, const Dims& sizes) {
  SCOPED_TRACE(std::string(form.name) + " on " + to_string(sizes));
  const Trained alone = train_alone();
  MeshGroup group(sizes);
  std::vector<Trained> all(group.size());
  group.run([&](Member& member) { all[static_cast<size_t>(member.position())] = train(member, form); });
  const layout::MeshShape& mesh = group.program(0).shape();
  for (size_t position = 0; position < all.size(); ++position) {
    const Trained& trained = all[position];
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(trained.losses[static_cast<size_t>(step)], alone.losses[static_cast<size_t>(step)], 1e-9);
    }
    for (size_t i = 0; i < alone.whole.size(); ++i) {
      const auto expected = values_of<double>(alone.whole[i]);
      const auto got = values_of<double>(trained.whole[i]);
      for (size_t k = 0; k < expected.size(); ++k) ASSERT_NEAR(got[k], expected[k], 1e-9) << "parameter " << i;
      for (size_t other = 0; other < position; ++other) {
        const auto box = [&](size_t of) {
          return box_of(mesh, trained.specs[i], trained.whole[i].shape(), static_cast<int64_t>(of));
        };
        if (box(position) == box(other)) {
          EXPECT_TRUE(same_bits(trained.shards[i], all[other].shards[i]));
        }
      }
    }
  }
}

TEST(Training, DataParallel) {
  for (int64_t members : {1, 2, 4, 8}) check_form(kDataParallel, {members});
}

TEST(Training, TensorParallel) {
  for (int64_t members : {1, 2, 4, 8}) check_form(kTensorParallel, {members});
}

TEST(Training, SequenceParallel) {
  for (int64_t members : {1, 2, 4, 8}) check_form(kSequenceParallel, {members});
}

TEST(Training, FullySharded) {
  for (int64_t members : {1, 2, 4, 8}) check_form(kFullySharded, {members});
}

TEST(Training, TwoDims) {
  for (const Dims& sizes : {Dims{1, 1}, Dims{2, 1}, Dims{1, 2}, Dims{2, 2}, Dims{4, 2}}) check_form(kTwoDims, sizes);
}

}  // namespace
}  // namespace distag::testing
