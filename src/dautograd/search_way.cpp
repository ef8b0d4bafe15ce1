#include "dautograd/search_way.h"

#include <algorithm>

#include "base/violation.h"

namespace distag {

using autograd::GraphTask;

SearchWay::SearchWay(Part part)
    : PassWay(part),
      discovery_(part.shared, static_cast<Discovery::Owner&>(*this), part.context.id(), part.info.pass,
                 {part.info.retain_graph, part.info.creates_graph}) {}

void SearchWay::begin(std::vector<autograd::Edge> roots, Reached reached, Entries entries) {
  assert_on_loop(part_.shared.environment.loop);
  discovery_.open_root();
  if (reached.empty() && entries.empty()) {
    part_.graph.work(Id(), [roots = std::move(roots)](GraphTask& task) { task.walk().expand(roots); });
    return;
  }
  part_.reach.add(reached);
  on_walked(Id(), reached, part_.joint.add(std::move(entries)));
}

// If what lies behind the roots is known, a plan has taken the place of this.
void SearchWay::on_walked(const Id& walk, const Reached& reached, const Entries& entries) {
  assert_on_loop(part_.shared.environment.loop);
  if (is_over_) return;
  if (!walk && entries.empty() && part_.state.observer().on_walked(reached)) return;
  discovery_.ask(walk, reached, entries);
}

void SearchWay::on_walk_failed(const Id& walk, const Error& error) {
  assert_on_loop(part_.shared.environment.loop);
  is_over_ ? part_.state.fail(error) : discovery_.fail(walk, error);
}

void SearchWay::on_planned(const std::set<Incarnation>& participants, bool has_entries) {
  assert_on_loop(part_.shared.environment.loop);
  part_.state.observer().on_planned(participants, has_entries);
}

void SearchWay::on_failed_search(const Error& error) {
  assert_on_loop(part_.shared.environment.loop);
  part_.state.fail(error);
}

// False while it searches: no part may run yet.
bool SearchWay::end_search() {
  assert_on_loop(part_.shared.environment.loop);
  if (is_searching()) return false;
  is_over_ = true;
  return true;
}

void SearchWay::take(PassGrads::Gradient gradient) {
  assert_on_loop(part_.shared.environment.loop);
  if (end_search()) return part_.grads.deliver(std::move(gradient));
  part_.state.fail(part_.shared.sign(Error(Status::kProtocol, "the pass was run before its discovery had ended here")));
}

std::vector<std::string> SearchWay::waits_for() const {
  assert_on_loop(part_.shared.environment.loop);
  std::vector<std::string> result;
  if (is_over_) return result;
  for (const Incarnation asked : discovery_.asked()) {
    result.push_back(part_.shared.describe(asked) + ", to search on from what came from it");
  }
  return result;
}

// ---- messages ----

void SearchWay::on_discover(const Peer& from, const wire::Discover& discover) {
  assert_on_loop(part_.shared.environment.loop);
  if (is_over_) return PassWay::on_discover(from, discover);
  if (!part_.state.takes(from, discover.creates_graph)) return;  // the initiator knows
  part_.reach.need(from.incarnation);
  discovery_.open(discover);
  Sources sources;
  Entries entries;
  if (!add_sources(from, discover, sources) || !add_entries(from, discover, entries)) return;
  part_.graph.work(discover.request, [sources = std::move(sources), entries = std::move(entries)](GraphTask& task) {
    for (const auto& [send, bits] : sources) task.walk().add_source(send, bits);
    for (const auto& entry : entries) task.walk().add_entry(entry);
  });
}

bool SearchWay::add_sources(const Peer& from, const wire::Discover& discover, Sources& sources) {
  for (const wire::PairBits& item : discover.pairs) {
    const auto found = distag::find_send(part_.context, {item.pair_maker, item.pair_counter});
    if (found == nullptr) {
      discovery_.fail(discover.request,
                      part_.shared.sign(Error(Status::kGraphFreed,
                                              "the graph of a call was freed by an earlier backward pass; use "
                                              "retain_graph there to run another")));
      return false;
    }
    const SendNode& send = *found;
    if (send.info().peer != from.incarnation || item.bits.size() != send.slots()) {
      violation("a DISCOVER for {}, which has {} values and went elsewhere", send.name(), send.slots());
    }
    if (std::find(item.bits.begin(), item.bits.end(), false) != item.bits.end()) part_.graph.note_partial();
    part_.reach.add(found);
    sources.emplace_back(found, item.bits);
  }
  return true;
}

bool SearchWay::add_entries(const Peer& from, const wire::Discover& discover, Entries& entries) {
  for (const wire::EntryName& name : discover.entries) {
    auto entry = part_.joint.find(from, name);
    if (entry == nullptr) {
      discovery_.fail(discover.request,
                      part_.shared.sign(Error(Status::kInvalidState,
                                              fmt::format("nothing is left of call {}, to_local: its function must "
                                                          "return its part, or keep it",
                                                          name.call))));
      return false;
    }
    entries.push_back(std::move(entry));
  }
  entries = part_.joint.add(std::move(entries));
  return true;
}

Heard SearchWay::on_discovered(const Peer& from, const wire::Discovered& discovered) {
  assert_on_loop(part_.shared.environment.loop);
  if (is_over_ || part_.state.is_failed() || part_.state.is_over()) return Heard::kStale;
  return discovery_.on_discovered(from, discovered);
}

void SearchWay::on_initiator_lost(const Error& error) {
  assert_on_loop(part_.shared.environment.loop);
  if (!is_over_) discovery_.fail_all(part_.shared.sign(error));
}

}  // namespace distag
