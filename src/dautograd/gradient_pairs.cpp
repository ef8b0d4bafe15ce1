#include "dautograd/gradient_pairs.h"

#include <utility>

#include "base/violation.h"
#include "dautograd/local_pass.h"
#include "dautograd/pairs.h"

namespace distag {
namespace {

std::vector<const Value*> pointers_to(const Values& values) {
  std::vector<const Value*> result;
  result.reserve(values.size());
  for (const Value& value : values) result.push_back(&value);
  return result;
}

// The pair of the gradients of the values that `half` received or sent.
PairInfo info_of_gradients(const Id& pair, const PairInfo& half) {
  PairInfo info;
  info.pair = pair;
  info.context = half.context;
  info.context_number = half.context_number;
  info.peer = half.peer;
  info.call = "the gradients of " + half.describe();
  info.is_gradient = true;
  return info;
}

}  // namespace

wire::AutogradMetadata GradientPairs::on_send(const PairInfo& recv, const Values& gradients) {
  assert_on_loop(shared_.environment.loop);
  wire::AutogradMetadata metadata;
  Tracked tracked = find_tracked(pointers_to(gradients));
  if (tracked.tensors.empty()) return metadata;
  if (context_.sends.size() + sends_.size() >= shared_.environment.max_sends) {
    fail(Status::kOverloaded,
         "create_graph: the context has {} calls, answers and gradients that require grad, and takes no more: run a "
         "backward pass without retain_graph, or release it",
         context_.sends.size() + sends_.size());
  }
  metadata.context = recv.context;
  metadata.creator_rank = static_cast<int32_t>(recv.context_number >> 48);
  metadata.pair = {shared_.self.incarnation, ++shared_.last_pair};
  metadata.tracked = std::move(tracked.marks);
  const auto send = make_send(info_of_gradients(metadata.pair, recv), tracked.tensors);
  metadata.lineage = context_.lineage.tell(shared_.lineage.limits, *send);
  sends_.emplace(metadata.pair, send);
  return metadata;
}

void GradientPairs::on_receive(const PairInfo& send, const wire::AutogradMetadata& metadata, const Values& gradients) {
  assert_on_loop(shared_.environment.loop);
  if (!metadata.pair) return;
  if (metadata.pair.maker != send.peer || metadata.context != send.context) {
    violation("gradients for {} came with a pair of another worker or context", send.describe());
  }
  make_recv(info_of_gradients(metadata.pair, send), metadata.tracked, pointers_to(gradients));
  ++recv_count_;
  for (const Lineage::Link& link : metadata.lineage) {
    if ((learned_.empty() || learned_.back() != link.pair) && !context_.lineage.has(link.pair)) {
      learned_.push_back(link.pair);
    }
  }
  context_.lineage.take(shared_.lineage, metadata.lineage, send.peer, shared_.self.incarnation);
}

void GradientPairs::prepare_commit() {
  assert_on_loop(shared_.environment.loop);
  context_.sends.reserve(context_.sends.size() + sends_.size());
}

void GradientPairs::commit() noexcept {
  assert_on_loop(shared_.environment.loop);
  context_.sends.merge(sends_);
  context_.recv_count += std::exchange(recv_count_, 0);
  learned_.clear();
}

GradientPairs::Sends GradientPairs::drop() {
  assert_on_loop(shared_.environment.loop);
  for (const Id& pair : learned_) context_.lineage.forget(shared_.lineage, pair);
  learned_.clear();
  recv_count_ = 0;
  return std::exchange(sends_, {});
}

std::shared_ptr<SendNode> find_send(const DistributedContext& context, const Id& pair) {
  const auto found = context.sends.find(pair);
  if (found != context.sends.end()) return found->second;
  for (const auto& [id, pass] : context.passes) {
    const GradientPairs* const pairs = pass.part == nullptr ? nullptr : pass.part->ready_pairs();
    if (pairs == nullptr) continue;
    const auto ready = pairs->sends().find(pair);
    if (ready != pairs->sends().end()) return ready->second;
  }
  return nullptr;
}

GradientPairs::Sends all_sends(const DistributedContext& context) {
  GradientPairs::Sends sends = context.sends;
  for (const auto& [id, pass] : context.passes) {
    const GradientPairs* const pairs = pass.part == nullptr ? nullptr : pass.part->ready_pairs();
    if (pairs != nullptr) sends.insert(pairs->sends().begin(), pairs->sends().end());
  }
  return sends;
}

void forget_send(DistributedContext& context, const Id& pair) {
  if (context.sends.erase(pair) != 0) return;
  for (const auto& [id, pass] : context.passes) {
    GradientPairs* const pairs = pass.part == nullptr ? nullptr : pass.part->ready_pairs();
    if (pairs != nullptr) pairs->forget(pair);
  }
}

}  // namespace distag
