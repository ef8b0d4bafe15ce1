#include "dautograd/discovery.h"

#include <map>
#include <utility>

#include "autograd/joint.h"
#include "base/violation.h"

namespace distag {

using autograd::GraphWalk;

namespace {

// The pairs and entries to ask each peer for: one message each, or more if it would be too long.
class Questions {
 public:
  struct List {
    std::vector<wire::PairBits> pairs;
    std::vector<wire::EntryName> entries;
  };

  void add(const GraphWalk::Reached& item) {
    constexpr size_t kBytesPerPair = 64;
    const PairInfo& info = static_cast<const RecvNode&>(*item.recv).info();
    list_for(info.peer, kBytesPerPair + item.slots.size())
        .pairs.push_back({info.pair.counter, info.pair.maker, item.slots});
  }
  void add(const autograd::EntryNode& node) {
    const autograd::EntryName name = node.entry();
    for (const Incarnation other : node.others()) {
      list_for(other, sizeof(wire::EntryName)).entries.push_back({name.mesh, name.call, name.line});
    }
  }
  std::map<Incarnation, std::vector<List>>& by_peer() { return by_peer_; }

 private:
  List& list_for(Incarnation peer, size_t bytes) {
    constexpr size_t kMaxBytes = 32 << 10;
    auto& lists = by_peer_[peer];
    size_t& used = bytes_[peer];
    if (lists.empty() || used > kMaxBytes) {
      lists.emplace_back();
      used = 0;
    }
    used += bytes;
    return lists.back();
  }

  std::map<Incarnation, std::vector<List>> by_peer_;
  std::map<Incarnation, size_t> bytes_;
};

}  // namespace

void Discovery::open(const wire::Discover& discover) {
  assert_on_loop(shared_.environment.loop);
  const auto [request, is_new] = requests_.try_emplace(discover.request);
  if (!is_new) violation("a DISCOVER with an id that was used before");
  request->second.asker = discover.request.maker;
  request->second.participants.insert(shared_.self.incarnation);
  request->second.has_entries = !discover.entries.empty();
}

void Discovery::ask(const Id& id, const std::vector<GraphWalk::Reached>& reached,
                    const std::vector<std::shared_ptr<autograd::Node>>& entries) {
  assert_on_loop(shared_.environment.loop);
  const auto own = requests_.find(id);
  if (own == requests_.end()) return;  // failed already
  own->second.has_entries = own->second.has_entries || !entries.empty();
  Questions questions;
  for (const GraphWalk::Reached& item : reached) questions.add(item);
  for (const auto& entry : entries) questions.add(*entry->as_entry());
  for (auto& [peer, lists] : questions.by_peer()) {
    for (auto& [pairs, names] : lists) {
      const Id question = shared_.next_request();
      try {
        questions_.emplace(question, Question{id, peer});
        ++requests_.at(id).open;
        shared_.session->send(peer, wire::Discover{context_, pass_, question, kind_.retains_graph, std::move(pairs),
                                                   std::move(names), kind_.creates_graph});
      } catch (...) {
        fail(id, shared_.sign(current_error()));
        return;
      }
    }
  }
  if (requests_.at(id).open == 0) end(id);
}

Heard Discovery::on_discovered(const Peer& from, const wire::Discovered& discovered) {
  assert_on_loop(shared_.environment.loop);
  const auto question = questions_.find(discovered.request);
  if (question == questions_.end()) return Heard::kStale;
  if (question->second.to != from.incarnation) violation("worker \"{}\" answers a DISCOVER to another", from.name);
  const Id id = question->second.request;
  questions_.erase(question);
  const auto request = requests_.find(id);
  if (request == requests_.end()) return Heard::kStale;  // failed already
  if (discovered.failed) {
    fail(id, discovered.error);
    return Heard::kHandled;
  }
  request->second.participants.insert(discovered.participants.begin(), discovered.participants.end());
  request->second.has_entries = request->second.has_entries || discovered.has_entries;
  if (--request->second.open == 0) end(id);
  return Heard::kHandled;
}

// The owner may destroy this then.
void Discovery::end(const Id& id) {
  const auto node = requests_.extract(id);
  const Request& request = node.mapped();
  if (request.asker == 0) {
    owner_.on_planned(request.participants, request.has_entries);
    return;
  }
  wire::Discovered answer{context_, pass_, id, false, {}, {}, request.has_entries};
  answer.participants.assign(request.participants.begin(), request.participants.end());
  shared_.tell(request.asker, std::move(answer));
}

void Discovery::fail(const Id& id, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  const auto node = requests_.extract(id);
  if (node.empty()) return;
  if (node.mapped().asker == 0) {
    owner_.on_failed_search(error);
  } else {
    shared_.tell(node.mapped().asker, wire::Discovered{context_, pass_, id, true, error, {}, false});
  }
}

void Discovery::fail_all(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  while (!requests_.empty()) {
    const Id id = requests_.begin()->first;
    fail(id, error);
  }
}

std::vector<Incarnation> Discovery::asked() const {
  assert_on_loop(shared_.environment.loop);
  std::vector<Incarnation> result;
  result.reserve(questions_.size());
  for (const auto& [id, question] : questions_) result.push_back(question.to);
  return result;
}

}  // namespace distag
