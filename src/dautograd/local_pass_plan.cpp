// The part of a pass that was planned: what it expects, and whether that holds.
#include <algorithm>
#include <utility>

#include "base/violation.h"
#include "dautograd/local_pass.h"

namespace distag {

using autograd::GraphTask;

void LocalPass::search_or_plan(const std::vector<GraphTask::Reached>& reached,
                               const std::vector<std::shared_ptr<autograd::Node>>& entries) {
  if (entries.empty() && state_.observer().on_walked(reached)) return;
  discovery_->ask(Id(), reached, entries);
}

void LocalPass::follow_plan(const std::vector<wire::PairBits>& sends, uint64_t check) {
  assert_on_loop(shared_.environment.loop);
  discovery_.reset();
  if (expectation_ == nullptr) expectation_ = std::make_unique<Expectation>();
  expectation_->tell(check);
  std::vector<std::pair<std::shared_ptr<SendNode>, autograd::Bits>> sources;
  for (const wire::PairBits& item : sends) {
    const Id pair{item.pair_maker, item.pair_counter};
    const std::shared_ptr<SendNode> send = find_send(*context_, pair);
    if (send == nullptr) return misplan("the graph of a call was freed by an earlier backward pass");
    autograd::Bits bits = item.bits;
    const bool is_empty = std::find(bits.begin(), bits.end(), true) == bits.end();
    if (is_empty || bits.size() > send->slots()) return misplan("there are other values than were announced");
    bits.resize(send->slots());
    if (std::find(bits.begin(), bits.end(), false) != bits.end()) graph_->note_partial();
    if (!expectation_->add(pair, bits)) return misplan("a call was announced twice");
    reach_.add(send);
    sources.emplace_back(send, std::move(bits));
  }
  graph_->work(Id(), [sources = std::move(sources)](GraphTask& task) {
    for (const auto& [send, bits] : sources) task.add_source(send, bits);
  });
}

void LocalPass::on_expect(const Peer& from, const wire::Expect& expect) {
  assert_on_loop(shared_.environment.loop);
  if (!state_.takes(from, expect.creates_graph)) return;  // the initiator knows
  if (expectation_ == nullptr || expectation_->is_told()) {
    violation("a second EXPECT of worker \"{}\" for a pass, or one for a pass that is searched", from.name);
  }
  follow_plan(expect.sends, expect.check);
}

void LocalPass::check_plan(bool has_entries) {
  if (!state_.is_running() || expectation_->is_checked()) return;
  if (has_entries) return misplan("values come from a sharded tensor");
  if (!expectation_->agrees(reach_.checksum())) return misplan("values depend on others than was told");
  expectation_->set_checked();
  state_.observer().on_checked();
  for (auto& [pair, gradient] : expectation_->take_kept()) {
    if (!state_.is_running()) return;
    deliver(std::move(gradient));
  }
}

// The initiator searches; what it finds counts.
void LocalPass::misplan(const std::string& why) {
  if (state_.is_failed()) return;
  is_misplanned_ = true;
  state_.fail_by_grad(shared_.sign(Error(Status::kGraphFreed, "the plan of the pass does not hold: " + why)));
}

// Before EXPECT has come any may be meant.
std::shared_ptr<SendNode> LocalPass::find_planned_send(const Peer& from, const Id& pair) {
  const auto reached = reach_.find(pair);
  const bool is_expected = reached != nullptr;
  const std::shared_ptr<SendNode> send = is_expected ? reached : find_send(*context_, pair);
  if (send == nullptr) {
    misplan("the graph of a call was freed by an earlier backward pass");
    return nullptr;
  }
  if (send->info().peer != from.incarnation) violation("gradients for {}, which went elsewhere", send->name());
  if (!is_expected && expectation_->is_told()) {
    misplan(fmt::format("gradients came for {}, of which it says nothing", send->name()));
    return nullptr;
  }
  return send;
}

}  // namespace distag
