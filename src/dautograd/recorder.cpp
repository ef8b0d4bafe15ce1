#include "dautograd/recorder.h"

#include "autograd/autograd.h"
#include "base/violation.h"
#include "dautograd/nodes.h"

namespace distag {
namespace {

// The tensors of a message that require grad, and which of all of them those are.
struct Tracked {
  Tensors tensors;
  std::vector<bool> marks;
};

Tracked find_tracked(const std::vector<const Value*>& values) {
  Tracked result;
  for (const Value* value : values) {
    value->for_each_tensor([&result](const Tensor& tensor) {
      result.marks.push_back(autograd::requires_grad(tensor));
      if (result.marks.back()) result.tensors.push_back(tensor);
    });
  }
  return result;
}

std::shared_ptr<SendNode> make_send(PairInfo info, const Tensors& tensors) {
  std::vector<autograd::Edge> next;
  std::vector<SendNode::Slot> slots;
  next.reserve(tensors.size());
  slots.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    next.push_back(autograd::gradient_edge(tensor));
    slots.push_back({tensor.shape(), tensor.dtype()});
  }
  return std::make_shared<SendNode>(std::move(info), std::move(next), std::move(slots));
}

// The marked tensors of a message that came. Throws PROTOCOL when the marks do not fit.
Tensors take_marked(const wire::AutogradMetadata& metadata, const std::vector<const Value*>& values) {
  Tensors result;
  size_t count = 0;
  for (const Value* value : values) {
    value->for_each_tensor([&](const Tensor& tensor) {
      if (count < metadata.tracked.size() && metadata.tracked[count]) result.push_back(tensor);
      ++count;
    });
  }
  if (count != metadata.tracked.size() || result.empty()) {
    violation("{} tensors came, {} are said to, of which {} require grad", count, metadata.tracked.size(),
              result.size());
  }
  for (const Tensor& tensor : result) {
    if (!is_floating(tensor.dtype())) violation("{} cannot require grad", describe(tensor));
  }
  return result;
}

}  // namespace

wire::AutogradMetadata Recorder::on_send(const Id& id, const Peer& to, const std::vector<const Value*>& values,
                                         const std::string& call, bool is_answer) {
  assert_on_loop(shared_.environment.loop);
  wire::AutogradMetadata metadata;
  metadata.context = id;
  auto context = contexts_.find(id);
  if (context == nullptr) return metadata;
  metadata.creator_rank = static_cast<int32_t>(context->record->number() >> 48);
  context->record->add_known(to.rank);
  if (is_answer) {
    metadata.joined = contexts_.holders_to_tell(*context, to.incarnation);
  } else if (context->is_own && to.incarnation != shared_.self.incarnation) {
    context->holders.insert(to.incarnation);
  }
  Tracked tracked = find_tracked(values);
  if (tracked.tensors.empty()) {
    contexts_.note_told(*context, to.incarnation, metadata.joined);
    return metadata;
  }
  if (context->sends.size() >= shared_.environment.max_sends) {
    fail(Status::kOverloaded,
         "the context has {} calls and answers whose tensors require grad, and takes no more: run a backward pass "
         "without retain_graph, or release it",
         context->sends.size());
  }
  PairInfo info;
  info.pair = {shared_.self.incarnation, ++shared_.last_pair};
  info.context = id;
  info.context_number = context->record->number();
  info.peer = to.incarnation;
  info.call = call;
  info.is_answer = is_answer;
  metadata.pair = info.pair;
  metadata.tracked = std::move(tracked.marks);
  auto send = make_send(std::move(info), tracked.tensors);
  const auto kept = context->sends.emplace(metadata.pair, std::move(send)).first;
  try {
    contexts_.note_told(*context, to.incarnation, metadata.joined);
    metadata.lineage = context->lineage.tell(shared_.lineage.limits, *kept->second);
  } catch (...) {
    context->sends.erase(kept);  // nobody hears of it
    throw;
  }
  context->note_counts();
  return metadata;
}

void Recorder::on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from) {
  assert_on_loop(shared_.environment.loop);
  if (const auto context = contexts_.find(metadata.context)) keep_told(*context, metadata, from);
}

// The sender does not tell it again.
void Recorder::keep_told(DistributedContext& context, const wire::AutogradMetadata& metadata, const Peer& from) {
  contexts_.note_holders(context, metadata.joined);
  context.lineage.take(shared_.lineage, metadata.lineage, from.incarnation, shared_.self.incarnation);
}

void Recorder::on_receive(const wire::AutogradMetadata& metadata, const Peer& from,
                          const std::vector<const Value*>& values, const std::string& call, bool is_answer) {
  assert_on_loop(shared_.environment.loop);
  if (!metadata.context) return;
  const std::shared_ptr<DistributedContext> context =
      is_answer ? contexts_.find(metadata.context) : contexts_.find_or_make(metadata, from);
  if (context == nullptr) return;  // over: the answer comes without history
  keep_told(*context, metadata, from);
  context->record->add_known(from.rank);
  if (!metadata.pair) return;
  if (metadata.pair.maker != from.incarnation) {
    violation("worker \"{}\" sent a pair that is not its own", from.name);
  }
  const Tensors tensors = take_marked(metadata, values);
  PairInfo info;
  info.pair = metadata.pair;
  info.context = metadata.context;
  info.context_number = context->record->number();
  info.peer = from.incarnation;
  info.call = call;
  info.is_answer = is_answer;
  auto recv = std::make_shared<RecvNode>(std::move(info), static_cast<uint32_t>(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    autograd::set_history(tensors[i], autograd::Edge{recv, static_cast<uint32_t>(i)});
  }
  ++context->recv_count;
  context->note_counts();
}

}  // namespace distag
