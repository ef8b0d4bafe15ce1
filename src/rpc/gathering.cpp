#include "rpc/gathering.h"

#include <utility>

namespace distag {

Gathering::Gathering(std::string where, std::string job, int32_t world_size)
    : where_(std::move(where)), job_(std::move(job)), world_size_(world_size) {}

bool Gathering::is_other_world(const wire::Join& join) const {
  return join.protocol == wire::kProtocolVersion && join.job == job_ && join.world_size != world_size_;
}

void Gathering::check(const wire::Join& join) const {
  const wire::Member& member = join.member;
  if (join.protocol != wire::kProtocolVersion) {
    fail(Status::kProtocol, "rendezvous \"{}\": worker \"{}\" speaks version {} of the protocol, the group version {}",
         where_, member.name, join.protocol, wire::kProtocolVersion);
  }
  if (join.job != job_) {
    fail(Status::kDenied, "rendezvous \"{}\" is that of job \"{}\", worker \"{}\" belongs to job \"{}\"", where_, job_,
         member.name, join.job);
  }
  if (join.world_size != world_size_) {
    fail(Status::kInvalidArgument,
         "rendezvous \"{}\": worker \"{}\" expects a world of {}, the others one of {}; give all the same size", where_,
         member.name, join.world_size, world_size_);
  }
  if (member.rank < 0 || member.rank >= world_size_) {
    fail(Status::kInvalidArgument, "rendezvous \"{}\": rank {} of worker \"{}\" is not in 0 .. {}", where_, member.rank,
         member.name, world_size_ - 1);
  }
  const Peer* rival = find_rival(member);
  if (rival == nullptr) return;
  if (rival->name == member.name) {
    fail(Status::kInvalidState, "rendezvous \"{}\": the name \"{}\" is in use by rank {}", where_, member.name,
         rival->rank);
  }
  fail(Status::kInvalidState, "rendezvous \"{}\": rank {} is in use by worker \"{}\"", where_, member.rank,
       rival->name);
}

const Peer* Gathering::find_rival(const wire::Member& member) const {
  for (const auto& [rank, peer] : members_) {
    if (peer.incarnation != member.incarnation && (rank == member.rank || peer.name == member.name)) return &peer;
  }
  return nullptr;
}

bool Gathering::has(Incarnation incarnation) const {
  for (const auto& [rank, peer] : members_) {
    if (peer.incarnation == incarnation) return true;
  }
  return false;
}

void Gathering::add(const wire::Member& member) {
  if (has(member.incarnation)) return;
  Peer peer = to_peer(member);
  peer.generation = ++generations_[member.name];
  members_.emplace(member.rank, std::move(peer));
}

void Gathering::remove(Incarnation incarnation) {
  std::erase_if(members_, [incarnation](const auto& entry) { return entry.second.incarnation == incarnation; });
}

std::vector<int32_t> Gathering::missing() const {
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < world_size_; ++rank) {
    if (!members_.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::vector<Peer> Gathering::members() const {
  std::vector<Peer> members;
  members.reserve(members_.size());
  for (const auto& [rank, peer] : members_) members.push_back(peer);
  return members;
}

wire::Member to_member(const Peer& peer) {
  return {peer.rank, peer.name, peer.endpoint, peer.incarnation, peer.generation};
}

Peer to_peer(const wire::Member& member) {
  return {member.rank, member.name, member.endpoint, member.incarnation, member.generation};
}

Error missing_error(const std::string& where, const std::vector<int32_t>& missing, int32_t world_size) {
  if (missing.empty()) {
    return Error(Status::kDeadline,
                 fmt::format("rendezvous \"{}\": time was up before the group could meet; give it more", where));
  }
  constexpr size_t kNamed = 16;
  std::string ranks;
  for (size_t i = 0; i < missing.size() && i < kNamed; ++i)
    ranks += fmt::format("{}{}", i == 0 ? "" : ", ", missing[i]);
  if (missing.size() > kNamed) ranks += fmt::format(" and {} more", missing.size() - kNamed);
  return Error(Status::kDeadline, fmt::format("rendezvous \"{}\": rank {} of a world of {} did not come in time", where,
                                              ranks, world_size));
}

}  // namespace distag
