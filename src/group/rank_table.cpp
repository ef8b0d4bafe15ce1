#include "group/rank_table.h"

#include <algorithm>
#include <utility>

#include "base/cut_text.h"
#include "group/rendezvous.h"
#include "wire/encoder.h"

namespace distag {

namespace {

std::string describe_world(int32_t size) {
  return size < 0 ? std::string("an open world") : fmt::format("a world of {}", size);
}

std::string list_ranks(const std::vector<int32_t>& ranks) {
  constexpr size_t kNamed = 16;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text;
}

}  // namespace

RankTable::RankTable(std::string where, std::string job, int32_t world_size)
    : RankTable(std::move(where), std::move(job), world_size, Book()) {}

RankTable::RankTable(std::string where, std::string job, int32_t world_size, Book book)
    : where_(std::move(where)), job_(std::move(job)), world_size_(world_size), book_(std::move(book)) {}

void RankTable::check(const wire::Join& join) {
  const wire::Member& member = join.member;
  if (join.protocol != wire::kProtocolVersion) {
    fail(Status::kProtocol, "rendezvous \"{}\": worker \"{}\" speaks version {} of the protocol, the group version {}",
         where_, member.name, join.protocol, wire::kProtocolVersion);
  }
  if (join.job != job_) {
    fail(Status::kDenied, "rendezvous \"{}\" is that of job \"{}\", worker \"{}\" belongs to job \"{}\"", where_, job_,
         member.name, join.job);
  }
  if (!join.proof.empty()) {
    fail(Status::kProtocol,
         "rendezvous \"{}\": worker \"{}\" proves that it knows the key of a group, and the group has none", where_,
         member.name);
  }
  check_world(join);
  const Peer* rival = find_rival(member);
  if (rival == nullptr) return check_place(member);
  if (rival->name == member.name) {
    fail(Status::kInvalidState, "rendezvous \"{}\": the name \"{}\" is in use by rank {}", where_, member.name,
         rival->rank);
  }
  if (!is_open() && book_.has_met) {
    fail(Status::kInvalidState, "rendezvous \"{}\": the group of {} is complete, worker \"{}\" comes too late", where_,
         world_size_, member.name);
  }
  fail(Status::kInvalidState, "rendezvous \"{}\": rank {} is in use by worker \"{}\"", where_, member.rank,
       rival->name);
}

void RankTable::check_world(const wire::Join& join) {
  const wire::Member& member = join.member;
  if (join.world_size != world_size_) {
    book_.misled = {member.name, join.world_size};
    fail(Status::kInvalidArgument, "rendezvous \"{}\": worker \"{}\" expects {}, the others {}; give all the same size",
         where_, member.name, describe_world(join.world_size), describe_world(world_size_));
  }
  const int32_t first = is_open() ? -1 : 0;
  const int32_t last = (is_open() ? kRanks : world_size_) - 1;
  if (member.rank < first || member.rank > last) {
    fail(Status::kInvalidArgument, "rendezvous \"{}\": rank {} of worker \"{}\" is not in {} .. {}", where_,
         member.rank, member.name, first, last);
  }
}

// Checks a joiner whose place has no holder.
void RankTable::check_place(const wire::Member& member) const {
  if (member.rank < 0 && rank_for(member.name) >= kRanks) {
    fail(Status::kOverloaded, "rendezvous \"{}\": all {} ranks have been given", where_, kRanks);
  }
  const Seat* old = seat_of(member.name);
  if (old != nullptr && member.rank >= 0 && old->peer.rank != member.rank) {
    fail(Status::kInvalidState, "rendezvous \"{}\": worker \"{}\" had rank {} in this group and can have no other",
         where_, member.name, old->peer.rank);
  }
  const auto seat = book_.seats.find(member.rank);
  if (seat != book_.seats.end() && seat->second.peer.name != member.name) {
    fail(Status::kInvalidState,
         "rendezvous \"{}\": rank {} is that of worker \"{}\", which is gone; only a worker of that name can have it, "
         "not \"{}\"",
         where_, member.rank, seat->second.peer.name, member.name);
  }
}

const RankTable::Seat* RankTable::seat_of(const std::string& name) const {
  for (const auto& [rank, seat] : book_.seats) {
    if (seat.peer.name == name) return &seat;
  }
  return nullptr;
}

// The rank that the name had, else the lowest rank without a member so far. kRanks or more: no rank is left.
int32_t RankTable::rank_for(const std::string& name) const {
  if (const Seat* old = seat_of(name)) return old->peer.rank;
  int32_t rank = 0;
  while (book_.seats.contains(rank) || (name.empty() && seat_of(default_name(rank)) != nullptr)) ++rank;
  return rank;
}

const Peer* RankTable::find_rival(const wire::Member& member) const {
  for (const auto& [rank, seat] : book_.seats) {
    const bool is_same_place = rank == member.rank || seat.peer.name == member.name;
    if (is_same_place && !seat.is_gone && seat.peer.incarnation != member.incarnation) return &seat.peer;
  }
  return nullptr;
}

std::optional<Peer> RankTable::find(Incarnation incarnation) const {
  for (const auto& [rank, seat] : book_.seats) {
    if (seat.peer.incarnation == incarnation && !seat.is_gone) return seat.peer;
  }
  return std::nullopt;
}

void RankTable::add(const wire::Member& member) {
  if (has(member.incarnation)) return;
  Peer peer = to_peer(member);
  if (peer.rank < 0) peer.rank = rank_for(peer.name);
  if (peer.name.empty()) peer.name = default_name(peer.rank);
  std::erase_if(book_.refused, [&peer](const Refused& refused) { return refused.name == peer.name; });
  peer.generation = ++book_.generations[peer.name];
  book_.withdrawn.erase(peer.rank);
  book_.seats[peer.rank] = Seat{std::move(peer), false};
  if (is_open() || !std::cmp_equal(book_.seats.size(), world_size_)) return;
  book_.has_met = true;
  book_.refused.clear();
  book_.forgotten = 0;
}

void RankTable::remove(Incarnation incarnation) {
  if (has_met()) {
    for (auto& [rank, seat] : book_.seats) seat.is_gone = seat.is_gone || seat.peer.incarnation == incarnation;
  } else {
    std::erase_if(book_.seats, [this, incarnation](const auto& entry) {
      const bool is_it = entry.second.peer.incarnation == incarnation;
      if (is_it) book_.withdrawn.insert(entry.first);
      return is_it;
    });
  }
}

bool RankTable::is_deserted() const {
  return std::all_of(book_.seats.begin(), book_.seats.end(), [](const auto& entry) { return entry.second.is_gone; });
}

std::vector<int32_t> RankTable::missing() const {
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < world_size_; ++rank) {
    if (!book_.seats.contains(rank) && !book_.withdrawn.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::vector<Peer> RankTable::members() const {
  std::vector<Peer> members;
  members.reserve(book_.seats.size());
  for (const auto& [rank, seat] : book_.seats) {
    if (!seat.is_gone || !is_open()) members.push_back(seat.peer);
  }
  return members;
}

namespace {

const Peer* find_place(const RankTable::Book& book, const Peer& peer) {
  for (const auto& [rank, seat] : book.seats) {
    if (rank == peer.rank || seat.peer.name == peer.name) return &seat.peer;
  }
  return nullptr;
}

}  // namespace

Restored restore(const RankTable::Book& known, const RankTable::Book& found, const std::set<Incarnation>& here) {
  Restored restored{known};
  RankTable::Book& book = restored.book;
  for (const auto& [rank, seat] : found.seats) {
    const Peer* const before = find_place(known, seat.peer);
    if (before != nullptr && before->incarnation == seat.peer.incarnation) continue;
    const bool is_same_place = before != nullptr && before->rank == rank && before->name == seat.peer.name;
    if (before == nullptr || (is_same_place && before->generation < seat.peer.generation)) {
      book.seats[rank] = seat;
    } else if (here.contains(seat.peer.incarnation)) {
      restored.is_contested = true;
    }
  }
  for (const auto& [name, generation] : found.generations) {
    uint64_t& last = book.generations[name];
    last = std::max(last, generation);
  }
  book.misled = found.misled;
  const auto is_as_found = [&found](const auto& entry) {
    const auto same = found.seats.find(entry.first);
    return same != found.seats.end() && same->second.peer.incarnation == entry.second.peer.incarnation;
  };
  restored.has_news = !std::all_of(book.seats.begin(), book.seats.end(), is_as_found);
  return restored;
}

wire::Member to_member(const Peer& peer) {
  return {peer.rank, peer.name, peer.endpoint, peer.incarnation, peer.generation, peer.max_message_bytes};
}

Peer to_peer(const wire::Member& member) {
  return {member.rank, member.name, member.endpoint, member.incarnation, member.generation, member.max_message_bytes};
}

void RankTable::note_refused(Refused refused) {
  if (const std::string where = fmt::format("rendezvous \"{}\": ", where_); refused.text.starts_with(where)) {
    refused.text.erase(0, where.size());
  }
  // Records are UTF-8.
  refused.text = wire::mend_text(cut_middle(refused.text, kLongestRefusal), kLongestRefusal);
  refused.place = wire::mend_text(cut_middle(refused.place, kLongestRefusal), kLongestRefusal);
  std::erase_if(book_.refused, [&refused](const Refused& other) { return other.text == refused.text; });
  if (book_.refused.size() == kMostRefused) {
    book_.refused.pop_front();
    ++book_.forgotten;
  }
  book_.refused.push_back(std::move(refused));
}

void RankTable::note_refused(const std::string& name, std::string text) {
  note_refused(Refused{name, std::move(text), {}});
}

// The place is named only if the joiner sent it.
void RankTable::note_refused(const wire::Join& join, const Error& error) {
  Refused refused{join.member.name, error.message(), {}};
  if (!join.member.endpoint.empty()) refused.text += fmt::format(" (at {})", join.member.endpoint);
  if (!join.host.empty() && join.process != 0) {
    refused.place = fmt::format(" (process {} of host {})", join.process, join.host);
  }
  note_refused(std::move(refused));
}

std::string RankTable::list_refused() const {
  std::string text;
  for (const Refused& refused : book_.refused) {
    text += fmt::format("{}{}{}", text.empty() ? "" : "; ", refused.text, refused.place);
  }
  if (!text.empty() && book_.forgotten > 0) text += fmt::format("; and {} more", book_.forgotten);
  return text;
}

Error RankTable::missing_error() const {
  const Error error = error_of_ranks();
  if (!book_.refused.empty()) {
    return Error(error.status(), fmt::format("{}; refused meanwhile: {}", error.message(), list_refused()));
  }
  const Misled& misled = book_.misled;
  if (misled.world_size == 0) return error;
  if (seat_of(misled.name) != nullptr) return error;  // the worker came again, with the right size
  return Error(error.status(), fmt::format("{}; worker \"{}\" expects {}, and was refused", error.message(),
                                           misled.name, describe_world(misled.world_size)));
}

Error RankTable::error_of_ranks() const {
  const std::vector<int32_t> never = missing();
  if (book_.withdrawn.empty()) return distag::missing_error(where_, never, world_size_);
  const std::string gone = list_ranks({book_.withdrawn.begin(), book_.withdrawn.end()});
  if (never.empty()) {
    return Error(Status::kDeadline, fmt::format("rendezvous \"{}\": rank {} of a world of {} came and went before all "
                                                "were there; start all within the timeout of each",
                                                where_, gone, world_size_));
  }
  return Error(Status::kDeadline,
               fmt::format("rendezvous \"{}\": rank {} of a world of {} did not come in time; rank {} came and went "
                           "before",
                           where_, list_ranks(never), world_size_, gone));
}

Error missing_error(const std::string& where, const std::vector<int32_t>& missing, int32_t world_size) {
  if (missing.empty()) {
    return Error(Status::kDeadline,
                 fmt::format("rendezvous \"{}\": time was up before the group could meet; give it more", where));
  }
  return Error(Status::kDeadline, fmt::format("rendezvous \"{}\": rank {} of a world of {} did not come in time", where,
                                              list_ranks(missing), world_size));
}

}  // namespace distag
