#include "dautograd/take_snapshot.h"

#include <algorithm>
#include <utility>

#include "dautograd/local_pass.h"
#include "dautograd/pass_initiator.h"

namespace distag {

PassSnapshot take_snapshot(const Id& id, const DistributedContext::Pass& pass) {
  PassSnapshot snapshot;
  snapshot.pass = id;
  snapshot.is_initiator = pass.initiator != nullptr;
  snapshot.is_fast = pass.part->info().fast;
  const bool is_searching = snapshot.is_initiator ? !pass.initiator->is_planned() : pass.part->way().is_searching();
  snapshot.stage = is_searching ? "searching" : pass.part->state().is_done() ? "done" : "running";
  snapshot.waits_for = pass.part->waits_for();
  snapshot.age = pass.part->state().age();
  if (!snapshot.is_initiator) {
    if (pass.part->state().is_done()) snapshot.waits_for.emplace_back("the verdict of the worker that began it");
    return snapshot;
  }
  for (std::string& worker : pass.initiator->waits_for()) snapshot.waits_for.push_back(std::move(worker));
  return snapshot;
}

ContextSnapshot take_snapshot(const DautogradShared& shared, const DistributedContext& context) {
  assert_on_loop(shared.environment.loop);
  ContextSnapshot snapshot;
  snapshot.record = context.record;
  snapshot.creator = shared.describe(context.id().maker);
  snapshot.is_own = context.is_own;
  snapshot.known_ranks = context.record->known_ranks();
  for (const auto& [id, pass] : context.passes) snapshot.passes.push_back(take_snapshot(id, pass));
  return snapshot;
}

void add_sends(ContextSnapshot& snapshot, const DautogradShared& shared, const DistributedContext& context) {
  assert_on_loop(shared.environment.loop);
  std::vector<std::shared_ptr<SendNode>> sends;
  for (const auto& [pair, send] : context.sends) sends.push_back(send);
  std::sort(sends.begin(), sends.end(),
            [](const auto& a, const auto& b) { return a->info().pair.counter < b->info().pair.counter; });
  for (const auto& send : sends) {
    const PairInfo& info = send->info();
    snapshot.sends.push_back({info.call, info.is_answer, shared.describe(info.peer), send->has_fired(), send});
  }
}

}  // namespace distag
