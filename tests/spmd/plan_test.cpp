// Plans as members of a mesh apply them: leaves of all kinds, and failures of one member.
#include "spmd/plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "spmd/mesh_group.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/tensors.h"
#include "tensor/deferred.h"

namespace distag::testing {
namespace {

using spmd::Plan;
using spmd::PlanSettings;
using spmd::Sharding;

// The elements of a vector of float64: 0, 1, ...; or it fails.
class Counting final : public Initialiser {
 public:
  explicit Counting(bool fails) : fails_(fails) {}
  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    if (fails_) fail(Status::kUser, "no such file");
    for (int64_t i = 0; i < extent[0]; ++i) {
      const auto number = static_cast<double>(offset[0] + i);
      std::memcpy(out + 8 * i, &number, 8);
    }
  }

 private:
  const bool fails_;
};

Tensor counting(int64_t size, bool fails = false) {
  return Tensor::deferred(Dtype::kFloat64, {size}, std::make_shared<Counting>(fails));
}

// A scalar, an empty one, one of bools, one of an odd size, a deferred one, one that requires grad.
PlanSettings leaves_of(int64_t position, bool fails = false) {
  const auto own = static_cast<double>(position);
  PlanSettings settings;
  settings.leaves = {{"scalar", Tensor::scalar(Dtype::kFloat64, own)},
                     {"empty", Tensor::empty(Dtype::kFloat32, {0, 3})},
                     {"mask", Tensor::empty(Dtype::kBool, {5})},
                     {"odd", tensor_of<float>({3}, {static_cast<float>(own), 1, 2})},
                     {"deferred", counting(7, fails)},
                     {"weight", tensor_of<double>({4, 2}, {own, 1, 2, 3, 4, 5, 6, 7})}};
  for (int64_t i = 0; i < 5; ++i) settings.leaves[2].tensor.mutable_data_as<uint8_t>()[i] = position == 1 && i % 2 == 0;
  autograd::set_requires_grad(settings.leaves[5].tensor, true);
  settings.rules = {{"empty", "('x', None)"},
                    {"mask", "('x',)"},
                    {"odd", "('x',)"},
                    {"deferred", "('x',)"},
                    {"weight", "('x', 'y')"}};
  settings.source = 1;
  return settings;
}

bool is_marked(const Tensor& tensor) { return Sharding::of(tensor) != nullptr; }

TEST(PlanApply, LeavesOfAllKindsLieAsPlannedWithTheValuesOfTheSource) {
  for (const bool together : {true, false}) {
    for (const Dims& sizes : {Dims{1, 1}, Dims{2, 1}, Dims{3, 1}, Dims{2, 2}}) {
      MeshGroup group(sizes);
      group.run([&](Member& member) {
        PlanSettings settings = leaves_of(member.position());
        if (group.size() == 1) settings.source = 0;
        Plan(member.mesh(), settings).apply(member.line, together);
        const double source = group.size() == 1 ? 0 : 1;
        for (const auto& leaf : settings.leaves) ASSERT_TRUE(is_marked(leaf.tensor)) << leaf.name;
        EXPECT_TRUE(autograd::requires_grad(settings.leaves[5].tensor));
        EXPECT_EQ(spmd::gather(settings.leaves[0].tensor, -1).item(), source);
        EXPECT_EQ(spmd::gather(settings.leaves[1].tensor, -1).count(), 0);
        const Tensor mask = spmd::gather(settings.leaves[2].tensor, -1);
        for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(mask.data_as<uint8_t>()[i], source == 1 && i % 2 == 0 ? 1 : 0);
        EXPECT_EQ(spmd::gather(settings.leaves[3].tensor, -1).data_as<float>()[0], static_cast<float>(source));
        const Tensor counted = spmd::gather(settings.leaves[4].tensor, -1);
        for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(counted.data_as<double>()[i], static_cast<double>(i));
        const Tensor weight = spmd::gather(settings.leaves[5].tensor, -1);
        EXPECT_EQ(weight.data_as<double>()[0], source);
        for (int64_t i = 1; i < 8; ++i) EXPECT_EQ(weight.data_as<double>()[i], static_cast<double>(i));
      });
    }
  }
}

// A single exchange sends everything, or one for each leaf with `together` off; deferred leaves send nothing.
TEST(PlanApply, AllThatIsSentGoesAtOnce) {
  for (const bool together : {true, false}) {
    MeshGroup group({2, 1});
    group.run([&](Member& member) { Plan(member.mesh(), leaves_of(member.position())).apply(member.line, together); });
    EXPECT_EQ(group.stats(0).broadcasts, together ? 1u : 4u);
  }
}

// The others learn of the failure before anything is marked, and the mesh goes on.
TEST(PlanApply, AMemberThatCannotMakeItsPartIsHeardByAll) {
  MeshGroup group({3, 1});
  const auto failures = group.try_run([](Member& member) {
    PlanSettings settings = leaves_of(member.position(), member.position() == 2);
    std::optional<Error> seen;
    try {
      Plan(member.mesh(), settings).apply(member.line, true);
    } catch (const Error& error) {
      seen = error;
    }
    for (const auto& leaf : settings.leaves) EXPECT_FALSE(is_marked(leaf.tensor)) << leaf.name;
    settings.leaves[4].tensor = counting(7);
    Plan(member.mesh(), settings).apply(member.line, true);
    ASSERT_TRUE(seen.has_value());
    throw Error(*seen);
  });
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->status(), Status::kUser);
    EXPECT_NE(failure->message().find("no such file"), std::string::npos) << failure->message();
    EXPECT_EQ(failure->origin_rank(), 2);
  }
}

// Names, shapes, specs, the source, which leaves are deferred, require grad, or are marked already.
TEST(PlanApply, MembersWithOtherPlansDiverge) {
  const std::vector<std::function<void(PlanSettings&, Member&)>> differences = {
      [](PlanSettings& s, Member&) { s.leaves[0].name = "other"; },
      [](PlanSettings& s, Member&) { s.leaves.pop_back(), s.rules.pop_back(); },
      [](PlanSettings& s, Member&) { s.rules[4].spec = "('x', None)"; },
      [](PlanSettings& s, Member&) { s.source = 0; },
      [](PlanSettings& s, Member&) { s.leaves[4].tensor = s.leaves[4].tensor.clone(); },
      [](PlanSettings& s, Member&) { autograd::set_requires_grad(s.leaves[5].tensor, false); }};
  for (size_t i = 0; i < differences.size(); ++i) {
    MeshGroup group({2, 2});
    const auto failures = group.try_run([&](Member& member) {
      PlanSettings settings = leaves_of(member.position());
      if (member.position() == 3) differences[i](settings, member);
      const auto leaves = settings.leaves;
      try {
        Plan(member.mesh(), settings).apply(member.line, true);
      } catch (...) {
        for (const auto& leaf : leaves) EXPECT_FALSE(is_marked(leaf.tensor)) << i << " " << leaf.name;
        throw;
      }
    });
    for (const auto& failure : failures) {
      ASSERT_TRUE(failure.has_value()) << i;
      EXPECT_EQ(failure->status(), Status::kDiverged) << i << ": " << failure->message();
    }
  }
}

TEST(PlanApply, ALeafThatLiesOtherwiseLeavesAllAsTheyWere) {
  MeshGroup group({2, 1});
  group.run([](Member& member) {
    PlanSettings settings = leaves_of(member.position());
    PlanSettings first = settings;
    first.leaves = {settings.leaves[5]};
    first.rules = {{"weight", "(None, 'x')"}};
    Plan(member.mesh(), first).apply(member.line, true);
    const Plan plan(member.mesh(), settings);
    try {
      plan.apply(member.line, true);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidState);
      EXPECT_NE(error.message().find("leaf \"weight\""), std::string::npos) << error.message();
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_FALSE(is_marked(settings.leaves[i].tensor)) << i;
    settings.leaves[5].tensor = tensor_of<double>({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
    autograd::set_requires_grad(settings.leaves[5].tensor, true);
    const Plan again(member.mesh(), settings);
    again.apply(member.line, true);
    again.apply(member.line, true);
    for (const auto& leaf : settings.leaves) EXPECT_TRUE(is_marked(leaf.tensor)) << leaf.name;
  });
}

TEST(PlanApply, AnotherMeshIsRefused) {
  MeshGroup group({2, 1});
  MeshGroup other({1, 2});
  group.run([&](Member& member) {
    PlanSettings settings = leaves_of(member.position());
    const Plan plan(other.program(0).shape(), settings);
    try {
      plan.apply(member.line, true);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
    }
    EXPECT_FALSE(is_marked(settings.leaves[0].tensor));
  });
}

}  // namespace
}  // namespace distag::testing
