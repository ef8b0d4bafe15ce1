#include "dautograd/pass_grads.h"

#include <algorithm>
#include <utility>

#include "base/violation.h"

namespace distag {

using autograd::GraphTask;

PassGrads::PassGrads(DautogradShared& shared, PassGraph& graph, PartState& state, DistributedContext& context,
                     const PassInfo& info)
    : shared_(shared),
      graph_(graph),
      state_(state),
      context_(context.id()),
      info_(info),
      pairs_(info.creates_graph ? std::make_unique<GradientPairs>(shared, context) : nullptr) {}

void PassGrads::send(std::vector<GraphTask::Leaving> leaving, bool is_planned, const std::shared_ptr<Owner>& owner) {
  assert_on_loop(shared_.environment.loop);
  if (!info_.fast) {
    std::stable_partition(leaving.begin(), leaving.end(), [this](const GraphTask::Leaving& item) {
      return static_cast<const RecvNode&>(*item.recv).info().peer != info_.pass.maker;
    });
  }
  unnumbered_ += leaving.size();
  for (GraphTask::Leaving& item : leaving) send(std::move(item), is_planned, owner);
}

void PassGrads::send(GraphTask::Leaving leaving, bool is_planned, const std::shared_ptr<Owner>& owner) {
  if (!state_.is_running()) return;
  const PairInfo& info = static_cast<const RecvNode&>(*leaving.recv).info();
  wire::Grad grad{context_, info_.pass, info.pair, info_.retain_graph, info_.fast, std::move(leaving.live), {}};
  for (Tensor& gradient : leaving.gradients) {
    grad.gradients.push_back(gradient ? Value(std::move(gradient)) : Value());
  }
  grad.planned = is_planned;
  grad.creates_graph = info_.creates_graph;
  ++sent_;
  receivers_.insert(info.peer);
  const bool may_ride = !info_.fast && info.peer == info_.pass.maker;
  SendOptions options;
  options.on_number = [this, owner, may_ride](wire::Message& message) {
    --unnumbered_;
    owner->report_if_done(may_ride ? std::get_if<wire::Grad>(&message.body) : nullptr);
  };
  try {
    if (pairs_ != nullptr) grad.recording = pairs_->on_send(info, grad.gradients);
    shared_.session->send(info.peer, std::move(grad), std::move(options));
  } catch (...) {
    state_.fail(shared_.sign(current_error()));
  }
}

PassGrads::Gradient PassGrads::take(const std::shared_ptr<SendNode>& node, wire::Grad& grad) {
  assert_on_loop(shared_.environment.loop);
  const SendNode& send = *node;
  if (pairs_ != nullptr) pairs_->on_receive(send.info(), grad.recording, grad.gradients);
  if (grad.live.size() != send.slots()) violation("gradients for {} of {} values", grad.live.size(), send.slots());
  Tensors gradients(send.slots());
  auto next = grad.gradients.begin();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!grad.live[i]) continue;
    if (next == grad.gradients.end()) violation("too few gradients came for {}", send.name());
    const Value& value = *next++;
    if (value.is_null()) continue;
    const SendNode::Slot& slot = send.metadata()[i];
    const Tensor& gradient = value.as_tensor();
    if (gradient.shape() != slot.shape || gradient.dtype() != slot.dtype) {
      violation("{} is no gradient of {}{}", describe(gradient), dtype_name(slot.dtype), to_string(slot.shape));
    }
    gradients[i] = gradient;
  }
  if (next != grad.gradients.end()) violation("too many gradients came for {}", send.name());
  grad.gradients.clear();  // leaves each gradient a single holder
  return {node, std::move(grad.live), std::move(gradients)};
}

void PassGrads::deliver(Gradient gradient) {
  assert_on_loop(shared_.environment.loop);
  ++received_;
  gradient.send->note_fired();
  graph_.work(std::nullopt, [send = gradient.send, tensors = std::move(gradient.tensors)](GraphTask& task) mutable {
    task.deliver_source(*send, std::move(tensors));
  });
}

}  // namespace distag
