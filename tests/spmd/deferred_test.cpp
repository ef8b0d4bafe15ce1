// Deferred tensors on meshes: each member makes its own box of them and no more, with the values of the whole.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "autograd/autograd.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "ops/initialisers.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/programs.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/expect.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

using ops::Distribution;

std::string bytes_of(const Tensor& x) {
  std::string bytes(x.byte_size(), '\0');
  x.copy_to(bytes.data());
  return bytes;
}

// Copies boxes of a plain tensor, and remembers which were wanted. Fails as long as `fails` is set.
class Source final : public Initialiser {
 public:
  explicit Source(Tensor whole, bool is_broken = false) : fails(is_broken), whole_(std::move(whole)) {}
  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      boxes_.push_back({offset, extent});
    }
    if (fails) fail(Status::kNotFound, "no file of weights");
    int64_t first = 0;
    for (size_t d = 0; d < offset.size(); ++d) first += offset[d] * whole_.strides()[d];
    whole_.view(extent, whole_.strides(), first).copy_to(out);
  }
  std::vector<layout::Box> boxes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return boxes_;
  }

  std::atomic<bool> fails;

 private:
  const Tensor whole_;
  mutable std::mutex mutex_;
  mutable std::vector<layout::Box> boxes_;
};

// A plain tensor, and the initialiser of a deferred one with the same values.
struct Pair {
  Tensor plain;
  std::shared_ptr<const Initialiser> initialiser;
};

std::vector<Pair> pairs_of(Dtype dtype, const Dims& shape) {
  std::vector<Pair> pairs;
  for (const auto distribution : {Distribution::kUniform, Distribution::kNormal}) {
    const char* op = distribution == Distribution::kUniform ? "rand" : "randn";
    pairs.push_back({apply(op, {}, ops::make_attributes({{"seed", int64_t{11}}, {"shape", shape}, {"dtype", dtype}})),
                     ops::random_initialiser(dtype, shape, {distribution, 11, 1, 0})});
  }
  pairs.push_back({apply("full", {}, ops::make_attributes({{"value", 2.5}, {"shape", shape}, {"dtype", dtype}})),
                   ops::full_initialiser(dtype, 2.5)});
  const Tensor numbers =
      apply("rand", {}, ops::make_attributes({{"seed", int64_t{3}}, {"shape", shape}, {"dtype", dtype}}));
  pairs.push_back({numbers, std::make_shared<Source>(numbers)});
  return pairs;
}

// Boxes that are whole, uneven and empty.
struct Case {
  Dims shape;
  const char* spec;
};
const std::vector<Case> kCases = {
    {{12, 4}, "('x', 'y')"},         {{7, 5}, "('y', 'x')"},  {{5, 3}, "(('x', 'y'), None)"},
    {{1, 9}, "('x', 'y')"},          {{4, 2}, "(None, 'y')"}, {{3, 4}, "(None, None)"},
    {{2, 3, 5}, "('y', None, 'x')"}, {{0, 3}, "('x', None)"}, {{}, "()"},
    {{8}, "(('y', 'x'),)"}};

TEST(Deferred, ShardsAreThoseOfThePlainTensor) {
  for (const Dims& sizes : {Dims{2, 3}, Dims{4, 1}}) {
    MeshGroup group(sizes);
    for (const Case& test : kCases) {
      for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
        for (const Pair& pair : pairs_of(dtype, test.shape)) {
          group.run([&](Member& member) {
            const Tensor plain = pair.plain.clone();
            const Tensor x = Tensor::deferred(dtype, test.shape, pair.initialiser);
            autograd::set_requires_grad(x, true);
            const uint64_t id = x.id();
            spmd::mark_sharding(plain, member.line, test.spec, -1);
            spmd::mark_sharding(x, member.line, test.spec, -1);
            spmd::mark_sharding(x, member.line, test.spec, -1);  // the same again
            const Tensor expected = shard_of(plain);
            EXPECT_EQ(shard_of(x).shape(), expected.shape());
            EXPECT_EQ(bytes_of(shard_of(x)), bytes_of(expected)) << to_string(test.shape) << test.spec;
            EXPECT_EQ(x.id(), id);
            EXPECT_TRUE(autograd::requires_grad(x));
            EXPECT_EQ(x.initialiser(), nullptr);
          });
        }
      }
    }
  }
}

TEST(Deferred, SourceIsCalledOnceWithTheOwnBox) {
  MeshGroup group({2, 3});
  for (const Case& test : kCases) {
    const Tensor numbers = apply("rand", {}, ops::make_attributes({{"seed", int64_t{3}}, {"shape", test.shape}}));
    group.run([&](Member& member) {
      const auto source = std::make_shared<Source>(numbers);
      const Tensor x = Tensor::deferred(Dtype::kFloat32, test.shape, source);
      spmd::mark_sharding(x, member.line, test.spec, -1);
      const layout::Spec spec = parse_spec(member.mesh(), test.spec, test.shape.size());
      const layout::Box own = box_of(member.mesh(), spec, test.shape, member.position());
      const auto boxes = source->boxes();
      EXPECT_EQ(boxes.size(), own.empty() ? 0u : 1u);
      EXPECT_TRUE(boxes.empty() || boxes[0] == own);
      EXPECT_EQ(source.use_count(), 1);  // no longer needed
    });
  }
}

TEST(Deferred, OnlyTheSourceMakesWhatItSends) {
  MeshGroup group({2, 2});
  group.run([](Member& member) {
    const Tensor numbers =
        apply("rand", {}, ops::make_attributes({{"seed", member.position()}, {"shape", Dims{5, 2}}}));
    const Tensor sent = apply("rand", {}, ops::make_attributes({{"seed", int64_t{2}}, {"shape", Dims{5, 2}}}));
    const auto source = std::make_shared<Source>(numbers);
    const Tensor x = Tensor::deferred(Dtype::kFloat32, {5, 2}, source);
    spmd::mark_sharding(x, member.line, "(x, y)", 2);
    EXPECT_EQ(source->boxes().size(), member.position() == 2 ? 1u : 0u);
    EXPECT_EQ(source.use_count(), 1);
    EXPECT_EQ(bytes_of(spmd::gather(x, -1)), bytes_of(sent));
  });
}

TEST(Deferred, PlainOneInAnOpWithShardedOnesIsMadeWhole) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = tensor_of<double>({4}, {1, 2, 3, 4});
    spmd::mark_sharding(x, member.line, "('x',)", -1);
    const Tensor y = Tensor::deferred(Dtype::kFloat64, {4}, ops::full_initialiser(Dtype::kFloat64, 10));
    EXPECT_EQ(values_of<double>(spmd::gather(apply("mul", {x, y}), -1)), (std::vector<double>{10, 20, 30, 40}));
    EXPECT_TRUE(y.storage().is_made());
  });
}

TEST(Deferred, TrainsLikeThePlainOne) {
  MeshGroup group({3});
  group.run([](Member& member) {
    std::vector<std::string> results;
    for (const Pair& pair : pairs_of(Dtype::kFloat64, {5, 4})) {
      for (const bool is_deferred : {false, true}) {
        const Tensor w = is_deferred ? Tensor::deferred(Dtype::kFloat64, {5, 4}, pair.initialiser) : pair.plain.clone();
        autograd::set_requires_grad(w, true);
        spmd::mark_sharding(w, member.line, "('x', None)", -1);
        const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
        context->backward({apply("sum", {apply("square", {w})})}, {});
        results.push_back(bytes_of(spmd::gather(*context->gradients()->find(w), -1)));
      }
      EXPECT_EQ(results[results.size() - 2], results.back());
    }
  });
}

// Others cannot know it: the mesh ends with that error on all. The tensor stays deferred, also for the next mesh.
TEST(Deferred, FailingSourceEndsTheMeshAndLosesNothing) {
  for (const int64_t from : {-1, 1}) {
    const Tensor numbers = apply("rand", {}, ops::make_attributes({{"seed", int64_t{3}}, {"shape", Dims{4, 2}}}));
    const auto source = std::make_shared<Source>(numbers, true);
    const Tensor failing = Tensor::deferred(Dtype::kFloat32, {4, 2}, source);
    {
      MeshGroup group({3});
      const auto errors = group.try_run([&](Member& member) {
        const Tensor x = member.position() == 1 ? failing : numbers.clone();
        spmd::mark_sharding(x, member.line, "('x', None)", from);
        spmd::gather(x, -1);
      });
      for (const auto& error : errors) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->status(), Status::kNotFound) << error->message();
        EXPECT_NE(error->message().find("no file of weights"), std::string::npos) << error->message();
      }
    }
    EXPECT_EQ(failing.initialiser(), source);
    EXPECT_EQ(failing.shard_slot(), nullptr);
    source->fails = false;
    MeshGroup next({2});
    next.run([&](Member& member) {
      const Tensor x = member.position() == 1 ? failing : numbers.clone();
      spmd::mark_sharding(x, member.line, "('x', None)", from);
      EXPECT_EQ(bytes_of(spmd::gather(x, -1)), bytes_of(numbers));
    });
  }
}

TEST(Deferred, PartIsMadeWhereItBecomesOne) {
  for (const bool fails : {false, true}) {
    MeshGroup group({2});
    const auto errors = group.try_run([fails](Member& member) {
      const auto source = std::make_shared<Source>(tensor_of<float>({2}, {1, 2}), fails && member.position() == 0);
      const Tensor local = Tensor::deferred(Dtype::kFloat32, {2}, source);
      const Tensor x = spmd::from_local(member.line, local, "('x',)", Dims{4}, std::nullopt);
      EXPECT_EQ(values_of<float>(spmd::gather(x, -1)), (std::vector<float>{1, 2, 1, 2}));
    });
    for (const auto& error : errors) {
      ASSERT_EQ(error.has_value(), fails);
      EXPECT_TRUE(!fails || error->status() == Status::kNotFound) << error->message();
    }
  }
}

TEST(Deferred, FailingSourceInAnOpEndsTheMesh) {
  MeshGroup group({3});
  const auto errors = group.try_run([](Member& member) {
    const Tensor x = tensor_of<float>({3}, {1, 2, 3});
    spmd::mark_sharding(x, member.line, "('x',)", -1);
    const auto source = std::make_shared<Source>(tensor_of<float>({3}, {1, 1, 1}), member.position() == 2);
    const Tensor y = apply("mul", {x, Tensor::deferred(Dtype::kFloat32, {3}, source)});
    spmd::gather(y, -1);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kNotFound) << error->message();
  }
}

// A refusal that is the same on all members leaves the tensor deferred, and the mesh as it was.
TEST(Deferred, RefusedMarkLeavesItDeferred) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const auto source = std::make_shared<Source>(tensor_of<float>({2}, {1, 2}));
    const Tensor x = Tensor::deferred(Dtype::kFloat32, {2}, source);
    for (const char* spec : {"('z',)", "('x', None)", "(None,) sum('x')"}) {
      EXPECT_EQ(status_of([&] { spmd::mark_sharding(x, member.line, spec, -1); }), Status::kInvalidArgument);
    }
    EXPECT_EQ(x.initialiser(), source);
    EXPECT_TRUE(source->boxes().empty());
    spmd::mark_sharding(x, member.line, "('x',)", -1);
    EXPECT_EQ(source->boxes().size(), 1u);
  });
}

}  // namespace
}  // namespace distag::testing
