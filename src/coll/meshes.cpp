#include "coll/meshes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/error.h"
#include "base/named_future.h"
#include "base/violation.h"

namespace distag {
namespace {

// Early messages, for each sender.
constexpr size_t kMostEarlyBytes = size_t{256} << 20;
constexpr size_t kMostEarlyMessages = 4096;  // each costs a look at all
constexpr size_t kNoteBytes = 256;           // of a message that was refused
constexpr size_t kMostNotesBytes = size_t{1} << 20;
constexpr size_t kMostEnded = 64;

std::string text_of(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

// The text that members must agree on.
std::string describe(const layout::MeshRequest& request, const MeshPolicy& policy) {
  std::string axes;
  for (const std::string& name : request.axis_names) axes += (axes.empty() ? "" : ", ") + name;
  std::string text = fmt::format("mesh_create(\"{}\", {}, ({}), ranks {}, outer shape {}, granules {}", request.name,
                                 to_string(request.shape), axes, text_of({request.ranks.begin(), request.ranks.end()}),
                                 to_string(request.outer_shape), text_of(request.granules));
  const MeshPolicy usual;
  if (policy.hidden_moves != usual.hidden_moves) {
    text += fmt::format(", hidden_moves {}", static_cast<int32_t>(policy.hidden_moves));
  }
  if (policy.keep_gathered) text += ", keep_gathered 1";
  if (policy.check_replicas) text += ", check_replicas 1";
  if (policy.bucket_bytes != usual.bucket_bytes) text += fmt::format(", bucket_bytes {}", policy.bucket_bytes);
  return text + ")";
}

// All that can be refused before the hosts of the members are known.
void check_request(const layout::MeshRequest& request) {
  layout::MeshRequest alone = request;
  alone.outer_shape = {};
  if (!request.outer_shape.empty() && request.granules.empty()) {
    for (int64_t& size : alone.shape) size = 1;
    alone.shape[0] = -1;
  } else {
    alone.outer_shape = request.outer_shape;
  }
  layout::MeshShape::make(alone);
}

// Hosts are numbered from 0, in the order of their lowest rank.
std::vector<int64_t> granules_of(const std::vector<int32_t>& ranks, const std::vector<std::string>& hosts) {
  std::map<std::string, int32_t> lowest;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto [entry, is_new] = lowest.emplace(hosts[i], ranks[i]);
    if (!is_new) entry->second = std::min(entry->second, ranks[i]);
  }
  std::vector<int64_t> granules;
  for (const std::string& host : hosts) {
    granules.push_back(std::count_if(lowest.begin(), lowest.end(),
                                     [own = lowest.at(host)](const auto& other) { return other.second < own; }));
  }
  return granules;
}

Id mesh_of(const wire::Body& body) {
  if (const auto* part = std::get_if<wire::Part>(&body)) return part->mesh;
  if (const auto* calls = std::get_if<wire::Calls>(&body)) return calls->mesh;
  if (const auto* where = std::get_if<wire::Where>(&body)) return where->mesh;
  if (const auto* here = std::get_if<wire::Here>(&body)) return here->mesh;
  return std::get<wire::MeshEnd>(body).mesh;
}

size_t bytes_of(const wire::Body& body) {
  if (const auto* part = std::get_if<wire::Part>(&body)) return held_by(*part);
  size_t bytes = 256;
  if (const auto* calls = std::get_if<wire::Calls>(&body)) {
    for (const auto& call : calls->calls) bytes += 64 + call.text.size();
  }
  return bytes;
}

// The request of one member as it is gathered: its text, the counter it proposes, its incarnation, its machine.
struct Proposal {
  std::string request;
  uint64_t counter;
  Incarnation member;
  std::string host;

  // A member that has gathered something else has made another call.
  static Proposal decode(const Value& value) {
    const Proposal other{"all_gather", 0, 0, ""};
    if (value.kind() != ValueKind::kList || value.as_list().size() != 4) return other;
    const Value::List& items = value.as_list();
    const bool fits = items[0].kind() == ValueKind::kText && items[1].kind() == ValueKind::kInt64 &&
                      items[2].kind() == ValueKind::kInt64 && items[3].kind() == ValueKind::kText;
    if (!fits) return other;
    return Proposal{items[0].as_text(), static_cast<uint64_t>(items[1].as_int64()),
                    static_cast<Incarnation>(items[2].as_int64()), items[3].as_text()};
  }
};

}  // namespace

Meshes::Meshes(Environment environment, Group& group)
    : environment_(environment), group_(group), gate_(std::make_shared<LoopGate>(environment.loop)) {}

Meshes::~Meshes() { gate_->close(); }

Meshes::Made Meshes::create(layout::MeshRequest request, Nanos timeout, const MeshPolicy& policy) {
  if (request.ranks.empty()) {
    for (const MemberRecord& member : group_.membership().all()) {
      if (member.state == Standing::kMember) request.ranks.push_back(member.peer.rank);
    }
    std::sort(request.ranks.begin(), request.ranks.end());
  }
  if (request.shape.empty()) request.shape = {-1, 1};
  check_request(request);
  if (timeout == 0) timeout = environment_.call_timeout;
  auto creation = std::make_shared<Creation>();
  creation->text = describe(request, policy);
  creation->request = std::move(request);
  creation->timeout = timeout;
  creation->policy = policy;
  creation->made = make_named<std::shared_ptr<Mesh>>(describe_creation(creation->request.name));
  creation->made->set_canceller([gate = gate_, weak = std::weak_ptr(creation)] {
    const auto cancelled = weak.lock();
    if (cancelled == nullptr) return;
    gate->run(cancelled->cancelled, [cancelled] {
      if (const auto gathered = cancelled->gathered.lock()) gathered->cancel();
    });
  });
  if (!gate_->run([this, creation] { gather(creation); })) fail_dropped(*creation->made);
  return creation->made;
}

std::string Meshes::describe_creation(const std::string& mesh) const {
  return fmt::format("mesh \"{}\": mesh_create by {}", mesh, describe_peer(self_));
}

void Meshes::gather(const std::shared_ptr<Creation>& creation) {
  if (creation->made->is_done()) return;  // cancelled
  try {
    creation->proposed = ++last_mesh_;
    const Value proposal =
        Value::list({Value::text(creation->text), Value(static_cast<int64_t>(creation->proposed)),
                     Value(static_cast<int64_t>(self_.incarnation)), Value::text(environment_.host)});
    creations_.insert(creation->proposed);
    const auto gathered = group_.all_gather(proposal, creation->request.ranks, creation->timeout);
    creation->gathered = gathered;
    gathered->on_done([this, gate = gate_, creation, raw = gathered.get()] {
      try {
        std::optional<Value> requests;
        if (raw->error() == nullptr) requests = raw->value();
        Error error = raw->error() == nullptr ? Error() : *raw->error();
        const bool runs = gate->run([this, creation, requests, error]() mutable {
          try {
            if (!requests) throw error.add_context(fmt::format("mesh \"{}\"", creation->request.name));
            on_agreed(*creation, *requests);
          } catch (...) {
            creation->made->fail(current_error());
          }
        });
        if (!runs) fail_dropped(*creation->made);
      } catch (...) {
        creation->made->fail(current_error());
      }
      gate->run([this, proposed = creation->proposed] { end_creation(proposed); });  // needs no memory
    });
  } catch (...) {
    end_creation(creation->proposed);
    creation->made->fail(current_error());
  }
}

void Meshes::on_agreed(Creation& creation, const Value& requests) {
  layout::MeshRequest& request = creation.request;
  std::map<int32_t, Proposal> proposals;
  std::vector<std::string> hosts;
  for (size_t i = 0; i < request.ranks.size(); ++i) {
    const int32_t rank = request.ranks[i];
    const Proposal proposal = Proposal::decode(requests.as_list().at(i));
    hosts.push_back(proposal.host);
    proposals.emplace(rank, proposal);
  }
  const auto& [lowest_rank, lowest] = *proposals.begin();
  for (const auto& [rank, proposal] : proposals) {
    if (proposal.request == lowest.request) continue;
    throw Error(Status::kDiverged, fmt::format("mesh \"{}\": members differ: rank {} calls {}, rank {} calls {}",
                                               request.name, lowest_rank, lowest.request, rank, proposal.request))
        .set_origin_rank(lowest_rank);
  }
  if (request.granules.empty()) request.granules = granules_of(request.ranks, hosts);
  const layout::MeshShape shape = layout::MeshShape::make(request);
  std::vector<std::shared_ptr<const Peer>> members;
  std::vector<uint64_t> proposed;
  for (const int32_t rank : shape.ranks()) {
    const Proposal& proposal = proposals.at(rank);
    members.push_back(rank == self_.rank ? std::make_shared<const Peer>(self_) : group_.find_peer(proposal.member));
    if (members.back() == nullptr || (rank != self_.rank && group_.is_gone(proposal.member))) {
      throw Error(Status::kDisconnected, fmt::format("mesh \"{}\": rank {} is gone", shape.name(), rank))
          .set_origin_rank(rank);
    }
    proposed.push_back(proposal.counter);
  }
  forget_ended();
  auto mesh =
      std::make_shared<Mesh>(MeshPlace{{environment_.loop, environment_.compute, group_, environment_.max_early},
                                       gate_,
                                       {lowest.member, lowest.counter},
                                       shape,
                                       *shape.position_of(self_.rank),
                                       std::move(members),
                                       creation.timeout,
                                       creation.policy,
                                       std::move(proposed)});
  meshes_.emplace(mesh->id(), mesh);
  try {
    lead_early(mesh);
  } catch (...) {
    meshes_.erase(mesh->id());
    throw;
  }
  if (!creation.made->complete(mesh)) mesh->leave();  // cancelled
}

void Meshes::stop() {
  assert_on_loop(environment_.loop);
  EachStep each;
  for (const auto& [id, mesh] : std::exchange(meshes_, {})) each([&mesh = mesh] { mesh->parts().end.stop(); });
  early_.clear();
  each.check();
}

// Keeps some of the meshes that have ended, so that late messages for them are recognised.
void Meshes::forget_ended() {
  const auto is_over = [](const auto& entry) {
    const MeshEnd& end = entry.second->parts().end;
    return end.ended() && !end.owes_word();
  };
  auto over = std::count_if(meshes_.begin(), meshes_.end(), is_over);
  std::erase_if(meshes_,
                [&](const auto& entry) { return is_over(entry) && over-- > static_cast<decltype(over)>(kMostEnded); });
}

// ---- messages ----

Heard Meshes::handle(const Peer& from, const wire::Message& message) {
  assert_on_loop(environment_.loop);
  const Id id = mesh_of(message.body);
  const auto mesh = meshes_.find(id);
  const Heard heard =
      mesh == meshes_.end() ? keep(id, from, message.body) : lead(*std::shared_ptr(mesh->second), from, message.body);
  group_.count_received(from);  // a failure on the way leads to refuse(), which counts it
  return heard;
}

Heard Meshes::lead(Mesh& mesh, const Peer& from, const wire::Body& body) {
  const std::optional<int64_t> position = mesh.place().position_of(from.incarnation);
  if (!position)
    violation("{} of a worker that is no member of mesh \"{}\"", wire::body_name(body), mesh.shape().name());
  if (const auto* part = std::get_if<wire::Part>(&body)) return mesh.parts().matching.on_part(*position, *part);
  if (const auto* calls = std::get_if<wire::Calls>(&body)) return mesh.parts().matching.on_calls(*position, *calls);
  if (const auto* where = std::get_if<wire::Where>(&body)) return mesh.parts().waiting.on_where(*position, *where);
  if (const auto* here = std::get_if<wire::Here>(&body)) return mesh.parts().waiting.on_here(*position, *here);
  return mesh.parts().end.on_end(*position, std::get<wire::MeshEnd>(body));
}

Heard Meshes::keep(const Id& mesh, const Peer& from, const wire::Body& body) {
  if (const auto* where = std::get_if<wire::Where>(&body)) {
    const bool is_being_made = where->proposed == 0 ? !creations_.empty() : creations_.contains(where->proposed);
    if (!is_being_made) {
      // The peer waits for a member that never had the mesh, as its creation failed here alone, or has it no more.
      Error error(Status::kDisconnected,
                  fmt::format("{} does not have this mesh; it ended there or was never created: create a new one",
                              describe_peer(self_)));
      error.set_origin_rank(self_.rank);
      group_.send(from, wire::MeshEnd{mesh, std::move(error), true}, nullptr);
      std::erase_if(early_, [&mesh, &from](const Early& early) {
        return early.mesh == mesh && early.from.incarnation == from.incarnation;
      });
      return Heard::kHandled;
    }
  }
  return keep_early({mesh, from, body, std::nullopt, 0, sizeof(Early) + bytes_of(body)});
}

// A mesh is made only after its creation has begun on all members: once those that were under way here when a message
// came are over, its mesh is known or never will be.
void Meshes::end_creation(uint64_t proposed) noexcept {
  creations_.erase(proposed);
  std::erase_if(early_,
                [this](const Early& early) { return creations_.empty() || *creations_.begin() > early.last_creation; });
}

// The others may have learned before this worker that the mesh is made, and be in its first calls.
Heard Meshes::keep_early(Early early) {
  if (creations_.empty()) return Heard::kStale;
  uint64_t bytes = early.bytes;
  size_t messages = 0;
  for (const Early& kept : early_) {
    if (kept.from.incarnation != early.from.incarnation) continue;
    bytes += kept.bytes;
    ++messages;
    if (kept.mesh == early.mesh && kept.refused) return Heard::kRefused;
  }
  const uint64_t most = std::min<uint64_t>(kMostEarlyBytes, environment_.max_early);
  if (bytes > most || messages >= kMostEarlyMessages) {
    if (bytes - early.bytes > most + kMostNotesBytes || messages >= 2 * kMostEarlyMessages) return Heard::kStale;
    early.refused = Error(
        Status::kOverloaded,
        fmt::format("{} sent {} messages of {} bytes before {} had this mesh; at most {} messages, of {} bytes, are "
                    "kept until then: begin with a call for which all members wait, such as an all_reduce",
                    describe_peer(early.from), messages + 1, bytes, describe_peer(self_), kMostEarlyMessages, most));
    early.body = wire::Body();
    early.bytes = kNoteBytes;
  }
  early.last_creation = last_mesh_;
  early_.push_back(std::move(early));
  return early_.back().refused ? Heard::kRefused : Heard::kHandled;
}

void Meshes::lead_early(const std::shared_ptr<Mesh>& mesh) {
  std::list<Early> own;
  for (auto next = early_.begin(); next != early_.end();) {
    const auto early = next++;
    if (early->mesh == mesh->id()) own.splice(own.end(), early_, early);
  }
  for (const Early& early : own) {
    try {
      if (!early.refused) {
        lead(*mesh, early.from, early.body);
      } else if (mesh->place().position_of(early.from.incarnation)) {
        mesh->parts().end.end_alone(*early.refused, "");
      }
    } catch (const Violation& error) {
      group_.fence(early.from.incarnation, error);
    }
  }
}

void Meshes::refuse(const Peer& from, const wire::Message& outline, const Error& why) {
  assert_on_loop(environment_.loop);
  const auto mesh = meshes_.find(mesh_of(outline.body));
  if (mesh != meshes_.end()) {
    const std::shared_ptr<Mesh> known = mesh->second;
    if (!known->place().position_of(from.incarnation))
      violation("{} of no member of a mesh", wire::body_name(outline.body));
    known->parts().end.end_now(why, true);
  } else {
    keep_early({mesh_of(outline.body), from, {}, why, 0, kNoteBytes});
  }
  group_.count_received(from);  // once, also when this is tried again
}

void Meshes::on_lost(const Peer& peer, const Error& error) {
  assert_on_loop(environment_.loop);
  for (const auto& [id, mesh] : std::map(meshes_)) {
    if (const auto position = mesh->place().position_of(peer.incarnation)) mesh->parts().end.on_lost(*position, error);
  }
  std::erase_if(early_, [&peer](const Early& early) { return early.from.incarnation == peer.incarnation; });
}

void Meshes::on_left(const Peer& peer) {
  assert_on_loop(environment_.loop);
  for (const auto& [id, mesh] : std::map(meshes_)) {
    if (const auto position = mesh->place().position_of(peer.incarnation)) mesh->parts().end.on_left(*position);
  }
}

void Meshes::on_long_lack(const Peer& peer, const Error& lack) {
  assert_on_loop(environment_.loop);
  for (const auto& [id, mesh] : std::map(meshes_)) {
    const bool is_member = mesh->place().position_of(peer.incarnation).has_value();
    if (mesh->stats().open != 0 && is_member) mesh->parts().end.end_now(lack, true);
  }
}

bool Meshes::may_be_used(const Id& id) const {
  assert_on_loop(environment_.loop);
  const auto mesh = meshes_.find(id);
  if (mesh != meshes_.end()) return !mesh->second->parts().end.ended() && !mesh->second->parts().end.is_leaving();
  // The others may have learned before this worker that it is made.
  return creations_.contains(id.counter);
}

std::vector<WaitingCollective> Meshes::waiting(size_t most) const {
  assert_on_loop(environment_.loop);
  std::vector<WaitingCollective> waiting;
  for (const auto& [id, mesh] : meshes_) mesh->parts().waiting.describe(waiting, most);
  return waiting;
}

bool Meshes::is_idle() const {
  assert_on_loop(environment_.loop);
  return std::all_of(meshes_.begin(), meshes_.end(),
                     [](const auto& entry) { return entry.second->parts().end.is_idle(); });
}

}  // namespace distag
