// A transformer of one block, trained twenty steps by Adam in float64, in five ways to cut it: equal to one process
// within 1e-9, the same bits on all members that hold the same box, and no hidden move.
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

using ops::make_attributes;

constexpr int kSteps = 20;
constexpr int64_t kBatch = 4;
constexpr int64_t kLength = 4;
constexpr int64_t kWidth = 8;
constexpr int64_t kHeads = 4;
constexpr int64_t kWords = 10;  // uneven over four

Tensor words(const Dims& shape, int64_t seed) {
  Tensor tensor = Tensor::empty(Dtype::kInt64, shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    tensor.mutable_data_as<int64_t>()[i] = (i * i * 7 + i * 3 + seed * 13) % kWords;
  }
  return tensor;
}

// The specs of one way to cut the model. Activations between blocks are brought to `between`, and inputs of products to
// `into`, unless these are empty.
struct Form {
  const char* name;
  const char* batch;    // [batch, length]
  const char* targets;  // [batch * length]
  const char* table;    // [words, width]
  const char* norm;     // [width]
  const char* first;    // of pairs of products: [out, in]
  const char* second;
  const char* head;  // [words, width]
  const char* between;
  const char* into;
};

constexpr Form kDataParallel{"data parallel",
                             "('x', None)",
                             "('x',)",
                             "(None, None)",
                             "(None,)",
                             "(None, None)",
                             "(None, None)",
                             "(None, None)",
                             "",
                             ""};
constexpr Form kTensorParallel{"tensor parallel",
                               "(None, None)",
                               "(None,)",
                               "('x', None)",
                               "(None,)",
                               "('x', None)",
                               "(None, 'x')",
                               "('x', None)",
                               "",
                               ""};
constexpr Form kSequenceParallel{"sequence parallel", "(None, None)",      "(None,)",     "('x', None)",
                                 "(None,)",           "('x', None)",       "(None, 'x')", "('x', None)",
                                 "(None, 'x', None)", "(None, None, None)"};
// The width is cut between blocks as well, so that norms are merged.
constexpr Form kWidthParallel{
    "width parallel", "(None, None)", "(None,)",     "(None, 'x')",       "('x',)",
    "('x', None)",    "(None, 'x')",  "('x', None)", "(None, None, 'x')", "(None, None, None)"};
constexpr Form kFullySharded{"fully sharded",
                             "('x', None)",
                             "('x',)",
                             "('x', None)",
                             "('x',)",
                             "('x', None)",
                             "('x', None)",
                             "('x', None)",
                             "",
                             ""};
constexpr Form kTwoDims{"2-D",        "('x', None)", "('x',)",     "('y', 'x')", "(None,)",
                        "('y', 'x')", "('x', 'y')",  "('y', 'x')", "",           ""};

struct Model {
  Tensor table = numbers({kWords, kWidth}, 1);
  Tensor norm1 = numbers({kWidth}, 2);
  Tensor norm2 = numbers({kWidth}, 3);
  Tensor shift = numbers({kWidth}, 4);
  Tensor query = numbers({kWidth, kWidth}, 5);
  Tensor key = numbers({kWidth, kWidth}, 6);
  Tensor value = numbers({kWidth, kWidth}, 7);
  Tensor merge = numbers({kWidth, kWidth}, 8);
  Tensor up = numbers({2 * kWidth, kWidth}, 9);
  Tensor down = numbers({kWidth, 2 * kWidth}, 10);
  Tensor head = numbers({kWords, kWidth}, 11);

  Tensors parameters() const { return {table, norm1, norm2, shift, query, key, value, merge, up, down, head}; }
  static std::vector<const char*> specs(const Form& form) {
    return {form.table, form.norm,   form.norm,  form.norm,   form.first, form.first,
            form.first, form.second, form.first, form.second, form.head};
  }

  static Tensor heads(const Tensor& x) {
    const Dims split{kBatch, kLength, kHeads, kWidth / kHeads};
    return apply("permute", {apply("reshape", {x}, make_attributes({{"shape", split}}))},
                 make_attributes({{"dims", Dims{0, 2, 1, 3}}}));
  }
  static Tensor brought(const Tensor& x, const char* spec) {
    return *spec == '\0' ? x : spmd::redistribute(x, spec, {});
  }
  static Tensor dropout(const Tensor& x, int64_t seed) {
    return apply("dropout", {x}, make_attributes({{"p", 0.25}, {"seed", seed}}));
  }

  Tensor attention(const Tensor& x, int64_t seed) const {
    const Tensor q = heads(apply("linear", {x, query}));
    const Tensor k =
        apply("transpose", {heads(apply("linear", {x, key}))}, make_attributes({{"dim0", 2}, {"dim1", 3}}));
    const Tensor scores = apply("mul_scalar", {apply("matmul", {q, k})}, make_attributes({{"value", 0.7}}));
    const Tensor shares = dropout(apply("softmax", {scores}), seed);
    const Tensor mixed = apply("matmul", {shares, heads(apply("linear", {x, value}))});
    const Tensor together = apply("reshape", {apply("permute", {mixed}, make_attributes({{"dims", Dims{0, 2, 1, 3}}}))},
                                  make_attributes({{"shape", Dims{kBatch, kLength, kWidth}}}));
    return apply("linear", {together, merge});
  }

  Tensor loss(const Tensor& index, const Tensor& targets, const Form& form, int64_t step) const {
    Tensor x = brought(apply("embedding", {index, table}), form.between);
    Tensor n = brought(apply("layer_norm", {x, norm1, shift}), form.into);
    x = apply("add", {x, dropout(brought(attention(n, 3 * step), form.between), 3 * step + 1)});
    n = brought(apply("layer_norm", {x, norm2, shift}), form.into);
    const Tensor hidden = apply("gelu", {apply("linear", {n, up})});
    x = apply("add", {x, dropout(brought(apply("linear", {hidden, down}), form.between), 3 * step + 2)});
    const Tensor rows =
        apply("reshape", {brought(x, form.into)}, make_attributes({{"shape", Dims{kBatch * kLength, kWidth}}}));
    return apply("cross_entropy", {apply("linear", {rows, head}), targets}, make_attributes({{"ignore_index", 3}}));
  }
};

struct Trained {
  std::vector<double> losses;
  Tensors whole;
  Tensors shards;
  std::vector<layout::Spec> specs;
};

Tensor batch_of(int step) { return words({kBatch, kLength}, step); }
Tensor targets_of(int step) { return words({kBatch * kLength}, 100 + step); }

Trained train_alone() {
  const Model model;
  for (const Tensor& parameter : model.parameters()) autograd::set_requires_grad(parameter, true);
  const auto adam = optim::make_in_process_optimizer(optim::find_rule("adam"), model.parameters());
  Trained trained;
  Form form = kDataParallel;
  for (int step = 0; step < kSteps; ++step) {
    const auto context = make_local_context();
    const Tensor loss = model.loss(batch_of(step), targets_of(step), form, step);
    trained.losses.push_back(loss.item());
    context->backward({loss}, {});
    adam->step(context, {});
  }
  trained.whole = model.parameters();
  return trained;
}

Trained train(Member& member, const Form& form) {
  const Model model;
  const std::vector<const char*> specs = Model::specs(form);
  const Tensors parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    spmd::mark_sharding(parameters[i], member.line, specs[i], -1);
    autograd::set_requires_grad(parameters[i], true);
  }
  const auto adam = optim::make_in_process_optimizer(optim::find_rule("adam"), parameters);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    const Tensor index = batch_of(step);
    const Tensor targets = targets_of(step);
    spmd::mark_sharding(index, member.line, form.batch, -1);
    spmd::mark_sharding(targets, member.line, form.targets, -1);
    const Tensor loss = model.loss(index, targets, form, step);
    context->backward({loss}, {});
    adam->step(context, {});
    trained.losses.push_back(spmd::gather(loss, -1).item());
  }
  EXPECT_EQ(member.line.program->mesh().stats().hidden_moves, 0u);
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
  static const Trained alone = train_alone();
  MeshPolicy policy;
  policy.hidden_moves = MeshPolicy::HiddenMoves::kRefuse;
  MeshGroup group(sizes, policy);
  std::vector<Trained> all(group.size());
  group.run([&](Member& member) { all[static_cast<size_t>(member.position())] = train(member, form); });
  const layout::MeshShape& mesh = group.program(0).shape();
  for (size_t position = 0; position < all.size(); ++position) {
    const Trained& trained = all[position];
    for (size_t step = 0; step < kSteps; ++step) EXPECT_NEAR(trained.losses[step], alone.losses[step], 1e-9);
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
  EXPECT_LT(alone.losses.back(), 0.7 * alone.losses.front());  // it does learn
}

TEST(Transformer, DataParallel) {
  for (int64_t members : {1, 2, 4}) check_form(kDataParallel, {members});
}

TEST(Transformer, TensorParallel) {
  for (int64_t members : {1, 2, 4}) check_form(kTensorParallel, {members});
}

TEST(Transformer, SequenceParallel) {
  for (int64_t members : {1, 2, 4}) check_form(kSequenceParallel, {members});
}

TEST(Transformer, WidthParallel) {
  for (int64_t members : {1, 2, 4}) check_form(kWidthParallel, {members});
}

TEST(Transformer, FullySharded) {
  for (int64_t members : {1, 2, 4}) check_form(kFullySharded, {members});
}

TEST(Transformer, TwoDims) {
  for (const Dims& sizes : {Dims{1, 1}, Dims{2, 1}, Dims{1, 2}, Dims{2, 2}, Dims{4, 2}}) check_form(kTwoDims, sizes);
}

}  // namespace
}  // namespace distag::testing
