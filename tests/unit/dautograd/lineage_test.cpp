// The origins of values, as ops record them, as workers tell them to each other, and as a pass is planned by them.
#include "dautograd/lineage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "autograd/autograd.h"
#include "dautograd/nodes.h"
#include "dautograd/pass_plan.h"
#include "ops/builtins.h"
#include "support/leaves.h"

namespace distag {
namespace {

using autograd::Origin;
using autograd::Origins;
using testing::apply;
using testing::scalar_leaf;
using Links = Lineage::Links;

constexpr Incarnation kA = 101, kB = 102, kC = 103;

// Values that came in by one message.
std::shared_ptr<RecvNode> receive(const Id& pair, const std::vector<Tensor>& tensors) {
  PairInfo info;
  info.pair = pair;
  auto recv = std::make_shared<RecvNode>(std::move(info), static_cast<uint32_t>(tensors.size()));
  for (uint32_t i = 0; i < tensors.size(); ++i) autograd::set_history(tensors[i], {recv, i});
  return recv;
}
Tensor number() { return Tensor::scalar(Dtype::kFloat64, 2); }
std::vector<Origin> origins_of(const Tensor& tensor) {
  const auto all = autograd::origins_of(autograd::gradient_edge(tensor));
  EXPECT_FALSE(all.is_open());
  return {all.all().begin(), all.all().end()};
}

TEST(OriginsTest, AreTheSlotsOfRecvsThatAValueDependsOn) {
  const Tensor a = number(), b = number(), c = number(), leaf = scalar_leaf(3);
  receive({kB, 1}, {a, b});
  receive({kC, 1}, {c});
  EXPECT_EQ(origins_of(leaf), (std::vector<Origin>{}));
  EXPECT_EQ(origins_of(apply(ops::kMul, {leaf, leaf})), (std::vector<Origin>{}));
  EXPECT_EQ(origins_of(b), (std::vector<Origin>{{{kB, 1}, 1}}));
  const Tensor with_leaf = apply(ops::kMul, {leaf, b});
  EXPECT_EQ(origins_of(with_leaf), (std::vector<Origin>{{{kB, 1}, 1}}));
  const Tensor both = apply(ops::kAdd, {c, with_leaf});
  EXPECT_EQ(origins_of(both), (std::vector<Origin>{{{kB, 1}, 1}, {{kC, 1}, 0}}));
  const Tensor all = apply(ops::kAdd, {apply(ops::kAdd, {both, c}), a});
  EXPECT_EQ(origins_of(all), (std::vector<Origin>{{{kB, 1}, 0}, {{kB, 1}, 1}, {{kC, 1}, 0}}));
}

TEST(OriginsTest, PassHooksAndStopAtDetach) {
  const Tensor a = number();
  receive({kB, 1}, {a});
  autograd::add_hook(a, [](const Tensor& gradient) { return gradient; });
  EXPECT_EQ(origins_of(apply(ops::kMul, {a, a})), (std::vector<Origin>{{{kB, 1}, 0}}));
  const Tensor detached = autograd::detach(a);
  autograd::set_requires_grad(detached, true);
  EXPECT_EQ(origins_of(apply(ops::kMul, {detached, detached})), (std::vector<Origin>{}));
}

TEST(OriginsTest, MoreThanAreKeptAreOpenAndStaySo) {
  Tensor sum = number();
  receive({kB, 1}, {sum});
  for (uint64_t i = 2; i <= Origins::kMost; ++i) {
    const Tensor next = number();
    receive({kB, i}, {next});
    sum = apply(ops::kAdd, {sum, next});
  }
  EXPECT_EQ(origins_of(sum).size(), Origins::kMost);
  const Tensor last = number();
  receive({kB, Origins::kMost + 1}, {last});
  sum = apply(ops::kAdd, {sum, last});
  EXPECT_TRUE(autograd::origins_of(autograd::gradient_edge(sum)).is_open());
  EXPECT_TRUE(autograd::origins_of(autograd::gradient_edge(apply(ops::kAdd, {last, sum}))).is_open());
}

// ---- records ----

class LineageTest : public ::testing::Test {
 protected:
  // A value that came in so.
  static Tensor from(const Id& pair, uint32_t slot) {
    std::vector<Tensor> tensors;
    for (uint32_t i = 0; i <= slot; ++i) tensors.push_back(number());
    receive(pair, tensors);
    return tensors[slot];
  }
  // The records in the message by which A sends these values.
  Links send(uint64_t counter, const std::vector<Tensor>& tensors, Incarnation to) {
    PairInfo info;
    info.pair = {kA, counter};
    info.peer = to;
    std::vector<autograd::Edge> next;
    std::vector<SendNode::Slot> slots;
    for (const Tensor& tensor : tensors) {
      next.push_back(autograd::gradient_edge(tensor));
      slots.push_back({tensor.shape(), tensor.dtype()});
    }
    auto node = std::make_shared<SendNode>(std::move(info), std::move(next), std::move(slots));
    sends_[node->info().pair] = node;
    return lineage_.tell(budget_.limits, *node);
  }
  Links find(const Id& pair) const {
    Links links;
    return lineage_.find(budget_.limits, pair, &links) ? links : Links();
  }
  static Tensor open() {
    Tensor sum = from({kB, 1000}, 0);
    for (uint64_t i = 1; i <= Origins::kMost; ++i) sum = apply(ops::kAdd, {sum, from({kB, 1000 + i}, 0)});
    return sum;
  }

  LineageBudget budget_;
  Lineage::Sends sends_;
  Lineage lineage_{sends_};
};

TEST_F(LineageTest, AMessageCarriesWhatItsPairDependsOn) {
  EXPECT_EQ(send(1, {scalar_leaf(1), scalar_leaf(2)}, kB), (Links{{{kA, 1}, {}, 0, 0}}));
  EXPECT_EQ(send(2, {open(), from({kB, 1}, 3)}, kB), (Links{{{kA, 2}, {}, 0, 1}, {{kA, 2}, {kB, 1}, 1, 3}}));
  EXPECT_EQ(find({kA, 2}), (Links{{{kA, 2}, {}, 0, 1}, {{kA, 2}, {kB, 1}, 1, 3}})) << "which this worker knows too";
  sends_.erase({kA, 2});
  EXPECT_EQ(find({kA, 2}), Links()) << "as long as its graph is there";
  EXPECT_EQ(budget_.records, 0u);
}

TEST_F(LineageTest, AndTheRecordsThatThisLeadsToOnce) {
  const Links told{{{kB, 2}, {kC, 1}, 0, 0}, {{kC, 1}, {kB, 1}, 0, 0}, {{kB, 1}, {}, 0, 0}};
  lineage_.take(budget_, told, kB, kA);
  EXPECT_EQ(budget_.records, 3u);
  const Tensor value = from({kB, 2}, 0);
  EXPECT_EQ(send(1, {value}, kB).size(), 1u) << "B has made or told all of it";
  EXPECT_EQ(send(2, {value}, kC), (Links{{{kA, 2}, {kB, 2}, 0, 0}, {{kB, 2}, {kC, 1}, 0, 0}}))
      << "C has made its own, and what is behind it";
  EXPECT_EQ(send(3, {value}, kC).size(), 1u);
  const Tensor own = from({kA, 1}, 0);
  EXPECT_EQ(send(4, {own}, kC).size(), 2u) << "of A too";
  EXPECT_EQ(send(5, {own}, kC).size(), 1u) << "once";
  EXPECT_EQ(send(6, {own}, kB).size(), 1u) << "and not to whom it went";
}

TEST_F(LineageTest, TheFirstRecordOfAPairStaysAndNobodyTellsOfOurs) {
  lineage_.take(budget_, {{{kB, 1}, {kC, 1}, 0, 0}, {{kB, 1}, {kC, 2}, 1, 0}}, kB, kA);
  lineage_.take(budget_, {{{kB, 1}, {}, 0, 0}, {{kA, 9}, {}, 0, 0}}, kC, kA);
  EXPECT_EQ(find({kB, 1}), (Links{{{kB, 1}, {kC, 1}, 0, 0}, {{kB, 1}, {kC, 2}, 1, 0}}));
  EXPECT_EQ(find({kA, 9}), Links());
}

TEST_F(LineageTest, BoundsAreKept) {
  budget_.limits = {1, 3, 2, 3};
  const Tensor two = apply(ops::kAdd, {from({kB, 1}, 0), from({kB, 2}, 0)});
  EXPECT_EQ(send(1, {two}, kB), (Links{{{kA, 1}, {}, 0, 1}}));
  EXPECT_TRUE(send(2, std::vector<Tensor>(4, from({kB, 1}, 0)), kB).empty()) << "more than a message may have";
  lineage_.take(budget_, {{{kB, 1}, {}, 0, 0}, {{kB, 2}, {}, 0, 0}, {{kB, 3}, {}, 0, 0}}, kB, kA);
  EXPECT_EQ(find({kB, 3}), Links()) << "two records are enough for a context";
  Lineage other(sends_);
  other.take(budget_, {{{kB, 1}, {}, 0, 0}, {{kB, 2}, {}, 0, 0}}, kB, kA);
  Links links;
  EXPECT_FALSE(other.find(budget_.limits, {kB, 2}, &links)) << "three for a worker";
  EXPECT_EQ(budget_.records, 3u);
  lineage_.forget(budget_, {kB, 1});
  lineage_.forget(budget_, {kB, 1});
  EXPECT_EQ(budget_.records, 2u);
  lineage_.clear(budget_);
  other.clear(budget_);
  EXPECT_EQ(budget_.records, 0u);
  budget_.limits.records_per_context = 0;
  EXPECT_TRUE(send(3, {two}, kB).empty());
}

// The rest that does not fit is told by the next message.
TEST_F(LineageTest, ARecordThatDoesNotFitComesLater) {
  budget_.limits.links_per_message = 2;
  lineage_.take(budget_, {{{kB, 1}, {}, 0, 0}, {{kB, 2}, {}, 0, 0}}, kB, kA);
  const Tensor first = from({kB, 1}, 0), second = from({kB, 2}, 0);
  EXPECT_EQ(send(1, {apply(ops::kAdd, {first, second})}, kC).size(), 2u);
  EXPECT_EQ(send(2, {first}, kC).size() + send(3, {second}, kC).size(), 4u);
  EXPECT_EQ(send(4, {first}, kC).size() + send(5, {second}, kC).size(), 2u);
}

TEST_F(LineageTest, SlotsThatNoMessageHasAreNotKept) {
  lineage_.take(budget_, {{{kB, 1}, {kB, 2}, 0, Lineage::kMaxSlots}, {{kB, 3}, {}, Lineage::kMaxSlots, 0}}, kB, kA);
  EXPECT_EQ(budget_.records, 0u);
}

// ---- plans ----

using Reached = std::vector<autograd::GraphWalk::Reached>;

Reached reached(const Id& pair, std::vector<bool> slots) {
  PairInfo info;
  info.pair = pair;
  return {{std::make_shared<RecvNode>(info, static_cast<uint32_t>(slots.size())), slots}};
}

TEST_F(LineageTest, APlanFollowsTheSlotsThatAreReached) {
  // A's root hangs on the second value of (B,2), that on a value that A sent and one of C; both on nothing.
  lineage_.take(budget_,
                {{{kB, 2}, {kA, 7}, 0, 0}, {{kB, 2}, {kA, 1}, 1, 2}, {{kB, 2}, {kC, 5}, 1, 0}, {{kC, 5}, {}, 0, 0}}, kB,
                kA);
  send(1, {scalar_leaf(1), open(), scalar_leaf(2)}, kB);
  const auto plan = make_pass_plan(lineage_, budget_.limits, kA, reached({kB, 2}, {false, true}));
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->parts.size(), 3u);
  const auto sends_of = [&plan](Incarnation worker) { return plan->parts.at(worker).sends; };
  ASSERT_EQ(sends_of(kA).size(), 1u);
  EXPECT_EQ(sends_of(kA)[0].bits, (std::vector<bool>{false, false, true}));
  EXPECT_EQ(sends_of(kB)[0].bits, (std::vector<bool>{false, true}));
  EXPECT_EQ(sends_of(kC)[0].bits, (std::vector<bool>{true}));
  EXPECT_EQ(plan->parts.at(kA).check, hash_of_slot({kB, 2}, 1));
  EXPECT_EQ(plan->parts.at(kB).check, hash_of_slot({kA, 1}, 2) + hash_of_slot({kC, 5}, 0));
  EXPECT_EQ(plan->parts.at(kC).check, 0u);
}

TEST_F(LineageTest, WithoutARecordOrBehindAnOpenSlotThereIsNone) {
  lineage_.take(budget_, {{{kB, 2}, {kC, 5}, 0, 0}, {{kB, 2}, {}, 1, 1}}, kB, kA);
  EXPECT_FALSE(make_pass_plan(lineage_, budget_.limits, kA, reached({kB, 2}, {true, false})));
  EXPECT_FALSE(make_pass_plan(lineage_, budget_.limits, kA, reached({kB, 2}, {false, true})));
  lineage_.take(budget_, {{{kC, 5}, {}, 0, 0}}, kB, kA);
  EXPECT_TRUE(make_pass_plan(lineage_, budget_.limits, kA, reached({kB, 2}, {true, false})));
}

// As the schema says it; both sides have to agree.
TEST_F(LineageTest, TheHashOfASlotIsThatOfTheProtocol) {
  uint64_t hash = 3 + 1;
  hash = (hash ^ 7) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  hash = (hash ^ 9) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  EXPECT_EQ(hash_of_slot({7, 9}, 3), hash);
}

}  // namespace
}  // namespace distag
