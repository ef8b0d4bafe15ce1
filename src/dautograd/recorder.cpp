#include "dautograd/recorder.h"

#include <utility>

#include "base/violation.h"
#include "dautograd/pairs.h"

namespace distag {
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
    context->sends.erase(kept);  // no peer will learn of it
    throw;
  }
  context->note_counts();
  return metadata;
}

void Recorder::on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from) {
  assert_on_loop(shared_.environment.loop);
  if (const auto context = contexts_.find(metadata.context)) keep_told(*context, metadata, from);
}

// Kept in any case: the sender does not send it again.
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
  PairInfo info;
  info.pair = metadata.pair;
  info.context = metadata.context;
  info.context_number = context->record->number();
  info.peer = from.incarnation;
  info.call = call;
  info.is_answer = is_answer;
  make_recv(std::move(info), metadata.tracked, values);
  ++context->recv_count;
  context->note_counts();
}

}  // namespace distag
