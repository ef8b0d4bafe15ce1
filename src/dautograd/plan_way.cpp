#include "dautograd/plan_way.h"

#include <algorithm>
#include <utility>

#include "base/violation.h"

namespace distag {

using autograd::GraphTask;

void PlanWay::follow(const std::vector<wire::PairBits>& sends, uint64_t check) {
  assert_on_loop(part_.shared.environment.loop);
  expectation_.tell(check);
  std::vector<std::pair<std::shared_ptr<SendNode>, autograd::Bits>> sources;
  for (const wire::PairBits& item : sends) {
    const Id pair{item.pair_maker, item.pair_counter};
    const std::shared_ptr<SendNode> send = distag::find_send(part_.context, pair);
    if (send == nullptr) return misplan("the graph of a call was freed by an earlier backward pass");
    autograd::Bits bits = item.bits;
    const bool is_empty = std::find(bits.begin(), bits.end(), true) == bits.end();
    if (is_empty || bits.size() > send->slots()) return misplan("there are other values than were announced");
    bits.resize(send->slots());
    if (std::find(bits.begin(), bits.end(), false) != bits.end()) part_.graph.note_partial();
    if (!expectation_.add(pair, bits)) return misplan("a call was announced twice");
    part_.reach.add(send);
    sources.emplace_back(send, std::move(bits));
  }
  part_.graph.work(Id(), [sources = std::move(sources)](GraphTask& task) {
    for (const auto& [send, bits] : sources) task.walk().add_source(send, bits);
  });
}

void PlanWay::on_expect(const Peer& from, const wire::Expect& expect) {
  assert_on_loop(part_.shared.environment.loop);
  if (expectation_.is_told()) return PassWay::on_expect(from, expect);
  if (part_.state.takes(from, expect.creates_graph)) follow(expect.sends, expect.check);  // else the initiator knows
}

void PlanWay::on_walked(const Id&, const Reached&, const Entries& entries) {
  assert_on_loop(part_.shared.environment.loop);
  if (!part_.state.is_running() || expectation_.is_checked()) return;
  if (!entries.empty()) return misplan("values come from a sharded tensor");
  if (!expectation_.agrees(part_.reach.checksum())) return misplan("values depend on others than was told");
  expectation_.set_checked();
  part_.state.observer().on_checked();
  for (auto& [pair, gradient] : expectation_.take_kept()) {
    if (!part_.state.is_running()) return;
    deliver(std::move(gradient));
  }
}

void PlanWay::on_walk_failed(const Id&, const Error& error) {
  assert_on_loop(part_.shared.environment.loop);
  misplan(error.message());
}

// The initiator then searches, and the result of that counts.
void PlanWay::misplan(const std::string& why) {
  if (part_.state.is_failed()) return;
  is_misplanned_ = true;
  part_.state.fail_by_grad(part_.shared.sign(Error(Status::kGraphFreed, "the plan of the pass does not hold: " + why)));
}

// Before EXPECT has come, any send may be meant.
std::shared_ptr<SendNode> PlanWay::find_send(const Peer& from, const Id& pair) {
  assert_on_loop(part_.shared.environment.loop);
  const std::shared_ptr<SendNode> reached = part_.reach.find(pair);
  const std::shared_ptr<SendNode> send = reached != nullptr ? reached : distag::find_send(part_.context, pair);
  if (send == nullptr) {
    misplan("the graph of a call was freed by an earlier backward pass");
    return nullptr;
  }
  if (send->info().peer != from.incarnation) violation("gradients for {}, which went elsewhere", send->name());
  if (reached == nullptr && expectation_.is_told()) {
    misplan(fmt::format("gradients came for {}, of which it says nothing", send->name()));
    return nullptr;
  }
  return send;
}

void PlanWay::take(PassGrads::Gradient gradient) {
  assert_on_loop(part_.shared.environment.loop);
  if (expectation_.is_checked()) return deliver(std::move(gradient));
  const std::shared_ptr<SendNode> send = gradient.send;
  if (expectation_.keep(std::move(gradient))) return;
  part_.state.fail_by_grad(part_.shared.sign(Error(Status::kProtocol, "gradients came twice for " + send->name())));
}

void PlanWay::deliver(PassGrads::Gradient gradient) {
  if (!expectation_.is_of(gradient.send->info().pair, gradient.live)) {
    return misplan("gradients came for other values than it says");
  }
  part_.grads.deliver(std::move(gradient));
}

std::vector<std::string> PlanWay::waits_for() const {
  assert_on_loop(part_.shared.environment.loop);
  std::vector<std::string> result;
  if (part_.state.is_running() && !expectation_.is_told()) result.emplace_back("the plan of what it has to do");
  return result;
}

}  // namespace distag
