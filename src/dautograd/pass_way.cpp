#include "dautograd/pass_way.h"

#include "base/violation.h"

namespace distag {

// The part of the graph that the pass has reached depends on its initiator too: a GRAD that does not fit need not be
// its sender's fault.
std::shared_ptr<SendNode> PassWay::find_send(const Peer& from, const Id& pair) {
  assert_on_loop(part_.shared.environment.loop);
  if (auto found = part_.reach.find(pair)) {
    if (found->info().peer == from.incarnation) return found;
    violation("gradients for {}, which went elsewhere", found->name());
  }
  const auto recorded = distag::find_send(part_.context, pair);
  const Error error = recorded != nullptr
                          ? unreached(*recorded)
                          : Error(Status::kGraphFreed,
                                  "the graph of a call was freed by an earlier backward pass; use retain_graph there "
                                  "to run another");
  part_.state.fail_by_grad(part_.shared.sign(error));
  return nullptr;
}

Error PassWay::unreached(const SendNode& recorded) const {
  return Error(Status::kProtocol,
               fmt::format("gradients came for {}, which the pass has not reached", recorded.name()));
}

void PassWay::on_discover(const Peer& from, const wire::Discover& discover) {
  assert_on_loop(part_.shared.environment.loop);
  if (part_.state.takes(from, discover.creates_graph)) fail(Status::kInvalidState, "the pass runs already");
}

Heard PassWay::on_discovered(const Peer&, const wire::Discovered&) {
  assert_on_loop(part_.shared.environment.loop);
  return Heard::kStale;
}

void PassWay::on_expect(const Peer& from, const wire::Expect& expect) {
  assert_on_loop(part_.shared.environment.loop);
  if (!part_.state.takes(from, expect.creates_graph)) return;  // the initiator knows
  violation("a second EXPECT of worker \"{}\" for a pass, or one for a pass that is searched", from.name);
}

}  // namespace distag
