// Programs that fail: alike on all members, on a single member, or because members differ. All get the same named
// error, and the mesh ends only where it must.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <latch>
#include <thread>

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
#include "wire/codec.h"

namespace distag::testing {
namespace {

Tensor leaf(Member& member, const char* spec) {
  Tensor tensor = tensor_of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  spmd::mark_sharding(tensor, member.line, spec, -1);
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

template <typename Body>
Error expect_failure(Status status, const std::string& words, Body body) {
  try {
    body();
    ADD_FAILURE() << "it did not fail: " << words;
    return Error();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.message();
    EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    return error;
  }
}

BackwardOptions retaining() {
  BackwardOptions options;
  options.retain_graph = true;
  return options;
}

// Ops, passes and gatherings still work, on all members.
void expect_works(Member& member) {
  const Tensor x = leaf(member, "('x', None)");
  const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
  const Tensor loss = apply("sum", {apply("square", {x})});
  context->backward({loss}, {});
  EXPECT_EQ(spmd::gather(loss, -1).item(), 204);
  const auto gradient = values_of<double>(spmd::gather(*context->gradients()->find(x), -1));
  for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], 2.0 * static_cast<double>(i + 1));
}

TEST(Failures, WrongArgumentsEndNothing) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    expect_failure(Status::kInvalidArgument, "do not broadcast", [&] {
      apply("add", {x, tensor_of<double>({3}, {1, 2, 3})});
    });
    expect_failure(Status::kInvalidArgument, "", [&] { spmd::redistribute(x, "('z', None)", {}); });
    expect_failure(Status::kInvalidArgument, "", [&] { spmd::redistribute(x, "(None, None) sum('x')", {}); });
    expect_failure(Status::kInvalidArgument, "only from_local can make", [&] {
      spmd::mark_sharding(tensor_of<double>({2}, {1, 2}), member.line, "(None,) sum('x')", -1);
    });
    expect_failure(Status::kInvalidState, "already", [&] { spmd::mark_sharding(x, member.line, "(None, 'x')", -1); });
    spmd::mark_sharding(x, member.line, "('x', None)", -1);
    Tensor plain = tensor_of<double>({2}, {1, 2});
    autograd::set_requires_grad(plain, true);
    expect_failure(Status::kInvalidArgument, "mark its sharding first", [&] { apply("add", {x, plain}); });
    expect_failure(Status::kInvalidArgument, "to_local", [&] {
      autograd::CustomOp custom{"mine", [](std::span<const Tensor> in, size_t) { return Tensors{in[0]}; }, {}};
      const Tensors inputs{x};
      autograd::apply_custom(std::move(custom), inputs, 1);
    });
    expect_works(member);
  });
}

TEST(Failures, ShardsAreNoWholes) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    std::vector<double> out(8);
    expect_failure(Status::kInvalidState, "gather", [&] { x.copy_to(out.data()); });
    expect_failure(Status::kInvalidState, "to_local", [&] { static_cast<void>(x.data()); });
    expect_failure(Status::kInvalidState, "to_local", [&] { static_cast<void>(x.hold()); });
    expect_failure(Status::kInvalidState, "to_local", [&] { static_cast<void>(x.view({8}, {1}, 0)); });
    expect_failure(Status::kInvalidArgument, "does not travel", [&] { wire::prepare(Value(x)); });
    expect_failure(Status::kInvalidArgument, "context_create_joint",
                   [&] { make_local_context()->backward({apply("sum", {x})}, {}); });
    const Tensor repeated = spmd::redistribute(x, "(None, None)", {});
    repeated.copy_to(out.data());
    EXPECT_EQ(out[7], 8);
    EXPECT_EQ(values_of<double>(spmd::to_local(x, std::nullopt)).size(), 4u);
  });
}

TEST(Failures, MembersThatDifferAllHearOfBothCalls) {
  MeshGroup group({3});
  const auto errors = group.try_run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const Tensor y = apply(member.position() == 1 ? "tanh" : "exp", {x});
    spmd::gather(y, -1);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kDiverged) << error->message();
    EXPECT_NE(error->message().find("tanh("), std::string::npos) << error->message();
    EXPECT_NE(error->message().find("exp("), std::string::npos) << error->message();
  }
  // The member's own parts can still be read; calls answer with the end.
  for (const auto& error : group.try_run([](Member& member) { leaf(member, "('x', None)"); })) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kDiverged);
  }
}

TEST(Failures, SameShapesButAnotherTensorIsSeen) {
  MeshGroup group({2});
  for (const auto& error : group.try_run([](Member& member) {
         const Tensor x = leaf(member, "('x', None)");
         const Tensor y = leaf(member, "('x', None)");
         spmd::gather(apply("exp", {member.position() == 0 ? x : y}), -1);
       })) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kDiverged) << error->message();
  }
}

TEST(Failures, HookOfOneMemberFailsThePassOfAll) {
  MeshGroup group({3});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    if (member.position() == 1) {
      autograd::add_hook(x, [](const Tensor&) -> Tensor { fail(Status::kUser, "no more of it"); });
    } else {
      autograd::add_hook(x, [](const Tensor&) { return Tensor(); });
    }
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    const Tensor loss = apply("sum", {apply("square", {x})});
    expect_failure(Status::kUser, "no more of it", [&] { context->backward({loss}, retaining()); });
    EXPECT_TRUE(context->gradients()->entries.empty());
    expect_works(member);
  });
}

TEST(Failures, HooksSeeShardedGradientsAndMayScaleThem) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    autograd::add_hook(x, [](const Tensor& gradient) {
      EXPECT_STREQ(spmd::Sharding::of(gradient)->spec_text(), "('x', None)");
      return apply("mul_scalar", {gradient}, ops::make_attributes({{"value", 10.0}}));
    });
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {apply("square", {x})})}, {});
    const auto gradient = values_of<double>(spmd::gather(*context->gradients()->find(x), -1));
    for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], 20.0 * static_cast<double>(i + 1));
  });
}

// Returns the same numbers, by code of this worker alone, whose backward fails on the second member.
Tensor apply_mine(Member& member, const Tensor& part) {
  const bool fails = member.position() == 1;
  autograd::CustomOp custom{"mine", [](std::span<const Tensor> in, size_t) { return Tensors{in[0].clone()}; },
                            [fails](Tensors gradients, size_t) {
                              if (fails) fail(Status::kUser, "not here");
                              return gradients;
                            }};
  const Tensors inputs{part};
  return autograd::apply_custom(std::move(custom), inputs, 1)[0];
}

TEST(Failures, OwnCodeOfOneMemberFailsThePassOfAll) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const Tensor part = spmd::to_local(x, std::nullopt);
    const Tensor own = apply_mine(member, part);
    const Tensor y = spmd::from_local(member.line, own, "('x', None)", Dims{4, 2}, std::nullopt);
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    expect_failure(Status::kUser, "backward of \"mine\": not here",
                   [&] { context->backward({apply("sum", {y})}, {}); });
    EXPECT_TRUE(context->gradients()->entries.empty());
    expect_works(member);
  });
}

// The calls of a hook are calls of the line, which the others make.
TEST(Failures, HooksRunAlsoWhereOwnCodeHasFailed) {
  MeshGroup group({2}, {}, 20 * kSecond);
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const Tensor middle = apply("square", {x});
    autograd::add_hook(middle, [](const Tensor& gradient) {
      return spmd::redistribute(spmd::redistribute(gradient, "(None, None)", {}), "('x', None)", {});
    });
    const Tensor own = apply_mine(member, spmd::to_local(middle, std::nullopt));
    const Tensor y = spmd::from_local(member.line, own, "('x', None)", Dims{4, 2}, std::nullopt);
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    expect_failure(Status::kUser, "backward of \"mine\": not here",
                   [&] { context->backward({apply("sum", {y})}, {}); });
    expect_works(member);
  });
}

// The failed member has no gradient of its copy, but that is not the failure.
TEST(Failures, AFailureOfOneMemberIsNotTakenForOtherCopies) {
  MeshGroup group({2}, {}, 20 * kSecond);
  group.run([](Member& member) {
    const Tensor x = leaf(member, "(None, None)");
    const Tensor own = apply_mine(member, spmd::to_local(apply("square", {x}), std::nullopt));
    const Tensor y = spmd::from_local(member.line, own, "(None, None)", Dims{4, 2}, std::nullopt);
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    expect_failure(Status::kUser, "backward of \"mine\": not here",
                   [&] { context->backward({apply("sum", {y})}, {}); });
    expect_works(member);
  });
}

// The graph behind the parts is the same on all members; the others have zeros there.
TEST(Failures, PartThatOneMemberUsesAloneReachesTheGraphOfAll) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "(None, None)");
    const Tensor part = spmd::to_local(apply("square", {x}), "(None, None) sum('x')");
    const bool uses = member.position() == 1;
    const Tensor own = uses ? apply("mul_scalar", {part}, ops::make_attributes({{"value", 3.0}}))
                            : apply("mul_scalar", {autograd::detach(part)}, ops::make_attributes({{"value", 0.0}}));
    Tensor plain = Tensor::scalar(Dtype::kFloat64, 1);
    autograd::set_requires_grad(plain, true);
    const Tensor sum = apply("mul", {apply("sum", {own}), plain});
    const Tensor loss = spmd::from_local(member.line, sum, "() sum('x')", Dims(), std::nullopt);
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({loss}, {});
    const auto gradient = values_of<double>(spmd::gather(*context->gradients()->find(x), -1));
    for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], 6.0 * static_cast<double>(i + 1));
    expect_works(member);
  });
}

// All members get the same error, and every later call repeats it, also a call that sends nothing.
void expect_ended(Member& member, const std::string& words) {
  const Tensor plain = Tensor::scalar(Dtype::kFloat64, 1);
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const std::vector<std::function<void()>> calls = {
        [&] { spmd::from_local(member.line, plain, "()", Dims(), std::nullopt); },
        [&] { spmd::make_joint_context(member.line, member.worker.dautograd()); },
        [&] { spmd::mark_sharding(Tensor::scalar(Dtype::kFloat64, 1), member.line, "()", -1); },
    };
    try {
      calls[static_cast<size_t>(i)]();
      ADD_FAILURE() << "call " << i << " goes on";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kDiverged) << error.message();
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
      if (first.empty()) first = error.message();
      EXPECT_EQ(error.message(), first);
    }
  }
}

// The gradient_spec claims that all copies get the same gradient: a sum of them, or a single one, would be wrong.
TEST(Failures, CopiesThatMembersGoOnWithInTheirOwnWaysAreTold) {
  for (const bool is_used_by_all : {true, false}) {
    MeshGroup group({2, 2}, {}, 20 * kSecond);
    group.run([is_used_by_all](Member& member) {
      const Tensor x = leaf(member, "('x', None)");
      Tensors parts;  // kept here, whether they are used or not
      const auto loss_by = [&](double factor, bool uses) {
        const Tensor part = spmd::to_local(apply("square", {x}), std::nullopt);
        parts.push_back(part);
        const Tensor used = is_used_by_all || uses ? part : autograd::detach(part);
        const Tensor own = apply("mul_scalar", {used}, ops::make_attributes({{"value", factor}}));
        const Tensor plain = Tensor::scalar(Dtype::kFloat64, 1);
        autograd::set_requires_grad(plain, true);
        const Tensor sum = apply("mul", {apply("sum", {own}), plain});
        return spmd::from_local(member.line, sum, "() sum('x')", Dims(), std::nullopt);
      };
      const auto right = spmd::make_joint_context(member.line, member.worker.dautograd());
      // Copies along x may differ, and do here.
      right->backward({loss_by(member.position() < 2 ? 2.0 : 3.0, true)}, {});
      EXPECT_NE(right->gradients()->find(x), nullptr);
      const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
      const bool is_other = member.position() == 3;
      const Error error = expect_failure(Status::kDiverged, "rank 2 and rank 3 of mesh",
                                         [&] { context->backward({loss_by(is_other ? 2.0 : 3.0, !is_other)}, {}); });
      EXPECT_EQ(error.origin_rank(), 2);
      expect_ended(member, "rank 2 and rank 3 of mesh");
      EXPECT_EQ(context->gradients()->find(x), nullptr);
    });
  }
}

// The first member has all of the gradient, and the others zeros: as a sum it counts once.
TEST(Failures, WholeGradientThatIsWantedAsASumIsThereOnce) {
  MeshGroup group({3});
  group.run([](Member& member) {
    const Tensor part = tensor_of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    autograd::set_requires_grad(part, true);
    const Tensor x = spmd::from_local(member.line, part, "(None, None)", Dims{4, 2}, "(None, None) sum('x')");
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {apply("square", {x})})}, {});
    const auto gradient = values_of<double>(*context->gradients()->find(part));
    for (size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_EQ(gradient[i], member.position() == 0 ? 2.0 * static_cast<double>(i + 1) : 0);
    }
  });
}

// Gradients of these leaves travel together, one after the other: in one order, even if other steps wait on some
// members alone.
TEST(Failures, LeavesOfOneNameKeepTheirOrder) {
  MeshGroup group({2});
  group.run([](Member& member) {
    for (int parts = 0; parts < 8; ++parts) {
      const Tensor x = leaf(member, "('x', None)");
      const Tensor w = tensor_of<double>({2}, {1, 2});
      spmd::mark_sharding(w, member.line, "(None,)", -1);
      Tensors leaves;
      for (int i = 0; i < 6; ++i) {
        leaves.push_back(autograd::detach(w));
        autograd::set_requires_grad(leaves.back(), true);
      }
      Tensor loss;
      const auto add = [&loss](const Tensor& term) { loss = loss ? apply("add", {loss, term}) : term; };
      Tensors kept;
      for (int i = 0; i < parts; ++i) {
        const Tensor part = spmd::to_local(apply("square", {x}), std::nullopt);
        kept.push_back(part);
        const Tensor own = apply("sum", {member.position() == 1 ? part : autograd::detach(part)});
        Tensor plain = Tensor::scalar(Dtype::kFloat64, 1);
        autograd::set_requires_grad(plain, true);
        const Tensor sum = apply("mul", {own, plain});
        add(spmd::from_local(member.line, sum, "() sum('x')", Dims(), std::nullopt));
      }
      for (size_t i = 0; i < 6; i += 2) {
        const Tensor normal = apply("sum", {apply("layer_norm", {x, leaves[i], leaves[i + 1]})});
        const Tensor term =
            apply("mul_scalar", {normal}, ops::make_attributes({{"value", 1.0 + static_cast<double>(i)}}));
        loss = loss ? apply("add", {loss, term}) : term;
      }
      const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
      context->backward({loss}, {});
      const auto gradients = context->gradients();
      for (size_t i = 0; i < 6; i += 2) {
        const auto of_weight = values_of<double>(spmd::gather(*gradients->find(leaves[i]), -1));
        const auto of_bias = values_of<double>(spmd::gather(*gradients->find(leaves[i + 1]), -1));
        const double four = 4 * (1.0 + static_cast<double>(i));
        // Each row is (-1, 1) once it is normal, except for the small number that layer_norm adds.
        EXPECT_NEAR(of_weight[0], -four, 1e-2) << parts;
        EXPECT_NEAR(of_weight[1], four, 1e-2) << parts;
        EXPECT_EQ(of_bias, (std::vector<double>{four, four})) << parts;
      }
    }
  });
}

// The roots are part of the call: other ones, in another order, fewer, or none of the mesh.
TEST(Failures, PassesFromOtherRootsEndTheMesh) {
  for (int difference = 0; difference < 5; ++difference) {
    MeshGroup group({3}, {}, 20 * kSecond);
    std::latch made(3);  // a member that is in the pass may end the earlier calls of the others
    group.run([&made, difference](Member& member) {
      const Tensor x = leaf(member, "('x', None)");
      const Tensor a = apply("sum", {apply("square", {x})});
      const Tensor b = apply("mean", {apply("exp", {x})});
      const Tensor like_a = apply("sum", {apply("square", {x})});
      const bool is_other = member.position() == 1;
      Tensors roots = {a, b};
      if (is_other && difference == 0) roots = {b, a};
      if (is_other && difference == 1) roots = {a};
      if (is_other && difference == 2) roots = {like_a, b};
      if (is_other && difference == 3) roots = {a, Tensor::scalar(Dtype::kFloat64, 1)};
      if (is_other && difference == 4) roots = {};
      const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
      made.arrive_and_wait();
      expect_failure(Status::kDiverged, "(rank 1) calls backward(", [&] { context->backward(roots, {}); });
      expect_ended(member, "calls backward(() sum('x') float64[] of sum, () sum('x') float64[] of sum)");
      EXPECT_EQ(context->gradients()->find(x), nullptr);
    });
  }
}

// A call of the host names the member that does not come to one of its steps.
TEST(Failures, AWaitIsNamedByTheCallOfTheHost) {
  const std::vector<std::pair<const char*, std::function<void(Member&, const Tensor&)>>> calls = {
      {"gather: redistribute(", [](Member&, const Tensor& x) { spmd::gather(x, -1); }},
      {"exp: redistribute(", [](Member&, const Tensor& x) { apply("exp", {apply("sum", {x})}); }},
      {"backward: all_gather(",
       [](Member& member, const Tensor& x) {
         spmd::make_joint_context(member.line, member.worker.dautograd())->backward({apply("sum", {x})}, {});
       }},
      {"softmax: all_reduce(",
       [](Member&, const Tensor& x) {
         apply("softmax", {x}, ops::make_attributes({{"dim", int64_t{0}}}));
       }},
      {"clip: redistribute(",
       [](Member& member, const Tensor& x) {
         const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
         optim::make_in_process_optimizer(optim::find_rule("sgd"), {x})->clip(context, 1.0, {});
       }},
  };
  std::vector<std::future<void>> side_by_side;  // each waits for the timeout of its mesh
  for (const auto& [words, call] : calls) {
    side_by_side.push_back(std::async(std::launch::async, [words = words, &call = call] {
      MeshGroup group({2}, {}, 3 * kSecond);
      std::latch over(2);
      group.run([&](Member& member) {
        const Tensor x = leaf(member, "('x', None)");
        if (member.position() == 0) expect_failure(Status::kDeadline, words, [&] { call(member, x); });
        over.arrive_and_wait();
      });
    }));
  }
  for (std::future<void>& one : side_by_side) one.get();
}

// The roots are the same, but not the graph: only one member has a hook.
TEST(Failures, PassesWithOtherStepsEndTheMesh) {
  MeshGroup group({2}, {}, 20 * kSecond);
  std::latch made(2);
  group.run([&made](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const Tensor square = apply("square", {x});
    if (member.position() == 1) autograd::add_hook(square, [](const Tensor&) { return Tensor(); });
    const Tensor loss = apply("sum", {square});
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    made.arrive_and_wait();
    expect_failure(Status::kDiverged, "(rank 1) calls the 4 steps of backward(",
                   [&] { context->backward({loss}, {}); });
    expect_ended(member, "(rank 0) calls the 3 steps of backward(");
    EXPECT_EQ(context->gradients()->find(x), nullptr);
  });
}

TEST(Failures, GraphThatWasFreedIsToldOfByAll) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const Tensor loss = apply("sum", {apply("square", {x})});
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({loss}, retaining());
    context->backward({loss}, {});
    EXPECT_EQ(values_of<double>(spmd::gather(*context->gradients()->find(x), -1))[7], 32);
    expect_failure(Status::kGraphFreed, "retain_graph", [&] { context->backward({loss}, {}); });
    expect_works(member);
  });
}

TEST(Failures, MemberThatLeavesIsNamedToTheOthers) {
  MeshGroup group({3}, {}, 20 * kSecond);
  const auto errors = group.try_run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    if (member.position() == 1) {
      member.line.program->mesh().leave();
      return;
    }
    spmd::gather(x, -1);
  });
  for (size_t i : {size_t{0}, size_t{2}}) {
    ASSERT_TRUE(errors[i]);
    EXPECT_EQ(errors[i]->status(), Status::kDisconnected) << errors[i]->message();
    EXPECT_EQ(errors[i]->origin_rank(), 1);
  }
}

TEST(Failures, WrongPartOfOneMemberEndsTheMesh) {
  MeshGroup group({2});
  const auto errors = group.try_run([](Member& member) {
    const Tensor part = Tensor::empty(Dtype::kFloat64, {member.position() == 0 ? 2 : 3, 2});
    const Tensor x = spmd::from_local(member.line, part, "('x', None)", Dims{4, 2}, std::nullopt);
    spmd::gather(x, -1);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kInvalidArgument) << error->message();
  }
}

TEST(Failures, HiddenMovesAreRefusedWhereTheMeshSaysSo) {
  MeshGroup group({2}, refusing());
  group.run([](Member& member) {
    const Tensor x = apply("exp", {leaf(member, "('x', None)")});
    const Tensor y = apply("exp", {leaf(member, "(None, 'x')")});
    expect_failure(Status::kInvalidState, "redistribute the tensor where it is meant to move", [&] {
      apply("mul", {x, y});
    });
    apply("mul", {x, spmd::redistribute(y, "('x', None)", {})});
    EXPECT_EQ(member.line.program->mesh().stats().hidden_moves, 0u);
  });
}

TEST(Failures, LineMakesOneCallAtATime) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const spmd::CallOnLine call(member.line, "one");
    expect_failure(Status::kInvalidState, "in a call of one", [&] { leaf(member, "('x', None)"); });
    // Another line is free.
    Tensor x = tensor_of<double>({2}, {1, 2});
    spmd::mark_sharding(x, {member.line.program, "b"}, "('x',)", -1);
    EXPECT_EQ(spmd::gather(apply("neg", {x}), -1).data_as<double>()[1], -2);
  });
}

TEST(Failures, TensorsOfTwoLinesDoNotMeet) {
  MeshGroup group({2});
  group.run([](Member& member) {
    auto on = [&](const char* line) {
      Tensor x = tensor_of<double>({2}, {1, 2});
      spmd::mark_sharding(x, {member.line.program, line}, "('x',)", -1);
      return x;
    };
    const Tensor a = on("a");
    const Tensor b = on("b");
    const Tensor plain = on("");
    expect_failure(Status::kInvalidArgument, "two lines", [&] { apply("add", {a, b}); });
    EXPECT_EQ(spmd::Sharding::of(apply("add", {a, plain}))->line().name, "a");
    EXPECT_EQ(spmd::Sharding::of(apply("add", {plain, b}))->line().name, "b");
  });
}

// While a hook runs, its line is free for the thread of the pass alone.
TEST(Failures, AnotherThreadIsRefusedWhileAHookRuns) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    autograd::add_hook(x, [&x](const Tensor& gradient) {
      std::thread([&x] { expect_failure(Status::kInvalidState, "by one thread", [&] { apply("neg", {x}); }); }).join();
      return apply("neg", {gradient});
    });
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {apply("square", {x})})}, {});
    EXPECT_EQ(values_of<double>(spmd::gather(*context->gradients()->find(x), -1))[7], -16);
  });
}

// A reader on its own line may sum it at any time: elsewhere it is unknown which of both forms a tensor has.
TEST(Failures, SumOfPartsOfAnotherLineIsRefused) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor partial = apply("sum", {leaf(member, "('x', None)")});
    Tensor a = tensor_of<double>({2}, {1, 2});
    spmd::mark_sharding(a, {member.line.program, "a"}, "('x',)", -1);
    expect_failure(Status::kInvalidArgument, "was made a sum of parts on the mesh itself", [&] {
      apply("mul", {a, partial});
    });
    const Tensor product = apply("mul", {a, spmd::redistribute(partial, "()", {})});
    EXPECT_EQ(values_of<double>(spmd::gather(product, -1))[1], 72);
  });
}

TEST(Failures, StepOnASumOfPartsIsRefused) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor part = tensor_of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor x = spmd::from_local(member.line, part, "(None, None) sum('x')", Dims{4, 2}, std::nullopt);
    autograd::set_requires_grad(x, true);
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {x})}, {});
    const auto sgd = optim::make_in_process_optimizer(optim::find_rule("sgd"), {x});
    expect_failure(Status::kInvalidState, "is a sum of parts", [&] { sgd->step(context, {}); });
    EXPECT_EQ(values_of<double>(spmd::to_local(x, std::nullopt))[7], 8);
  });
}

TEST(Failures, DifferentAttributesAreShown) {
  MeshGroup group({2});
  for (const auto& error : group.try_run([](Member& member) {
         const Tensor x = leaf(member, "('x', None)");
         const Dims dims{member.position()};
         spmd::gather(apply("sum", {x}, ops::make_attributes({{"dims", dims}})), -1);
       })) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kDiverged) << error->message();
    EXPECT_NE(error->message().find("dims = [0]"), std::string::npos) << error->message();
    EXPECT_NE(error->message().find("dims = [1]"), std::string::npos) << error->message();
  }
}

TEST(Failures, CallsThatReadAlikeDifferInMore) {
  MeshGroup group({2});
  for (const auto& error : group.try_run([](Member& member) {
         const Tensor part = tensor_of<double>({2}, {1, 2});
         if (member.position() == 1) autograd::set_requires_grad(part, true);
         spmd::gather(spmd::from_local(member.line, part, "('x',)", Dims{4}, std::nullopt), -1);
       })) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kDiverged) << error->message();
    EXPECT_NE(error->message().find("one requires a gradient"), std::string::npos) << error->message();
  }
}

// The first member calls and the second never comes: DEADLINE names it long before the ten minutes of the mesh.
template <typename Call>
void expect_deadline_of_a_call(Call call) {
  MeshGroup group({2}, {}, 600 * kSecond);
  const auto begun = std::chrono::steady_clock::now();
  const auto errors = group.try_run(call);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(100));
  ASSERT_TRUE(errors[0]);
  EXPECT_EQ(errors[0]->status(), Status::kDeadline) << errors[0]->message();
  EXPECT_NE(errors[0]->message().find("rank 1"), std::string::npos) << errors[0]->message();
}

TEST(Failures, PassWaitsForAMemberAsLongAsItsTimeout) {
  expect_deadline_of_a_call([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    const Tensor loss = apply("sum", {apply("square", {x})});
    BackwardOptions options;
    options.timeout = 200 * kMillisecond;
    if (member.position() == 0) context->backward({loss}, options);
  });
}

TEST(Failures, ClipWaitsForAMemberAsLongAsItsTimeout) {
  expect_deadline_of_a_call([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {apply("square", {x})})}, {});
    const auto sgd = optim::make_in_process_optimizer(optim::find_rule("sgd"), {x});
    optim::OptimizerCall call;
    call.timeout = 200 * kMillisecond;
    if (member.position() == 0) sgd->clip(context, 1.0, call);
  });
}

TEST(Failures, ClipCountsWhatIsRepeatedOnce) {
  MeshGroup group({2, 2});
  group.run([](Member& member) {
    const Tensor a = leaf(member, "('x', None)");
    const Tensor b = leaf(member, "(None, ('x', 'y'))");
    const Tensor c = leaf(member, "(None, None)");
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    Tensor loss = apply("sum", {apply("square", {a})});
    loss = apply("add", {loss, apply("sum", {apply("square", {b})})});
    loss = apply("add", {loss, apply("sum", {apply("square", {c})})});
    context->backward({loss}, {});
    const auto sgd = optim::make_in_process_optimizer(optim::find_rule("sgd"), {a, b, c});
    const double norm = std::sqrt(3 * 4.0 * 204);
    EXPECT_NEAR(sgd->clip(context, 1.0, {}), norm, 1e-12);
    const auto clipped = values_of<double>(spmd::gather(*context->gradients()->find(b), -1));
    for (size_t i = 0; i < clipped.size(); ++i) EXPECT_NEAR(clipped[i], 2.0 * static_cast<double>(i + 1) / norm, 1e-12);
  });
}

TEST(Failures, ClipMeasuresGradientsWhoseSquaresOverflow) {
  MeshGroup group({2, 2});
  group.run([](Member& member) {
    const Tensor a = leaf(member, "('x', 'y')");
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {apply("mul_scalar", {a}, ops::make_attributes({{"value", 1e200}}))})}, {});
    const auto sgd = optim::make_in_process_optimizer(optim::find_rule("sgd"), {a});
    EXPECT_NEAR(sgd->clip(context, 1.0, {}) / 1e200, std::sqrt(8.0), 1e-12);
    EXPECT_NEAR(sgd->clip(context, 1.0, {}), 1.0, 1e-12);
  });
}

// Members sum once. A second sum is for squares that overflow: it cannot help a NaN of any member.
TEST(Failures, ClipMeasuresOnceWhereAGradientIsNaN) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const auto sums = [&member] { return uint64_t{member.line.program->mesh().stats().all_reduces}; };
    for (const double factor : {1.0, 1e200, static_cast<double>(NAN)}) {
      const Tensor a = leaf(member, "('x', None)");
      const Tensor factors = tensor_of<double>({4, 2}, {factor, 1, 1, 1, 1, 1, 1, 1});
      spmd::mark_sharding(factors, member.line, "('x', None)", -1);
      const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
      context->backward({apply("sum", {apply("mul", {a, factors})})}, {});
      const auto sgd = optim::make_in_process_optimizer(optim::find_rule("sgd"), {a});
      const uint64_t before = sums();
      if (std::isnan(factor)) {
        EXPECT_THROW(sgd->clip(context, 1.0, {}), Error);
      } else {
        sgd->clip(context, 1.0, {});
      }
      EXPECT_EQ(sums() - before, factor == 1e200 ? 2u : 1u) << factor;
    }
  });
}

TEST(Failures, StateOfOptimizersLiesLikeTheParameters) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor x = leaf(member, "('x', None)");
    const auto adam = optim::make_in_process_optimizer(optim::find_rule("adam"), {x});
    auto step = [&](optim::Optimizer& optimizer) {
      const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
      context->backward({apply("sum", {apply("square", {x})})}, {});
      optimizer.step(context, {});
    };
    step(*adam);
    const Value saved = adam->save({});
    const Tensor before = spmd::to_local(x, std::nullopt).clone();
    step(*adam);
    const Tensor after = spmd::to_local(x, std::nullopt).clone();
    // The same step again, from the saved state.
    Tensor part = spmd::to_local(apply("detach", {x}), std::nullopt);
    Tensor target = spmd::Sharding::of(x)->lying().shard;
    ops::assign(target, before);
    const auto other = optim::make_in_process_optimizer(optim::find_rule("adam"), {x});
    other->load(saved, {});
    step(*other);
    EXPECT_EQ(values_of<double>(spmd::to_local(x, std::nullopt)), values_of<double>(after));
  });
}

}  // namespace
}  // namespace distag::testing
