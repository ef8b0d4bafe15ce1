#include "group/rendezvous_host.h"

#include <algorithm>
#include <utility>

#include "wire/codec.h"

namespace distag {
namespace {

// Guests get a failure this long before it is reported here, since the socket closes with the report.
constexpr Nanos kFarewell = 100 * kMillisecond;
// Members in a page of a roster, and missing ranks in a roster: these fit a message with names and endpoints of any
// length.
constexpr size_t kPageMembers = 40;
constexpr size_t kMostMissing = 8192;

// The text of a refusal without the port of the dialler, which is another one for each of its attempts.
std::string without_port(std::string text) {
  const size_t host = text.find("://");
  const size_t end = text.find(" was refused: ");
  if (host == std::string::npos || end == std::string::npos || end < host) return text;
  const size_t colon = text.rfind(':', end);
  const bool is_of_port = text[colon - 1] == ']' || text.find(':', host + 3) == colon;  // not one within an address
  if (is_of_port) text.erase(colon, end - colon);
  return text;
}

}  // namespace

RendezvousHost::RendezvousHost(const std::string& uri, Loop& loop, Transport& transport, Log& log)
    : Joining(loop, log, uri), transport_(transport) {}

void RendezvousHost::begin() {
  rank_table_.emplace(uri(), request().job, request().world_size);
  AcceptorEvents events;
  events.on_message = [this](const ConnectionToken& from, Frames frames) { on_message(from, frames); };
  events.on_denied = [this](const std::string& why) {
    note_refusal(why);
    rank_table_->note_refused("", without_port(why));
  };
  try {
    acceptor_ = transport_.listen(uri(), std::move(events));
  } catch (...) {
    throw current_error().add_context(fmt::format("rendezvous \"{}\"", uri()));
  }
  rank_table_->add(join_message().member);
  if (rank_table_->has_met()) return succeed(rank_table_->members());
  if (request().deadline == kNever) return;
  const Nanos time = request().deadline - loop_.now();
  set_timer(request().deadline - std::min(kFarewell, time / 10), [this] {
    if (!rank_table_->has_met() && !failure_) {
      fail_all(rank_table_->missing_error());
    }
  });
}

Error RendezvousHost::awaited() { return failure_ ? *failure_ : rank_table_->missing_error(); }

void RendezvousHost::on_message(const ConnectionToken& from, const Frames& frames) {
  assert_on_loop(loop_);
  try {
    const wire::Message message = wire::unpack(frames, wire::Limits(), transport_);
    const auto* join = std::get_if<wire::Join>(&message.body);
    if (join == nullptr) fail(Status::kProtocol, "{} instead of JOIN", wire::body_name(message.body));
    take_join(from, *join);
  } catch (const wire::Damaged& damage) {
    answer(from, wire::Refuse{wire::RefuseReason::kDamaged, 0, damage.message()});
  } catch (...) {
    refuse(from, current_error(), wire::Join());
  }
}

void RendezvousHost::refuse(const ConnectionToken& from, Error error, const wire::Join& join) {
  note_refusal("refused: " + error.message());
  if (!failure_) rank_table_->note_refused(join, error);
  wire::Roster refusal;
  refusal.refused = true;
  refusal.error = std::move(error);
  answer(from, std::move(refusal));
}

void RendezvousHost::take_join(const ConnectionToken& from, const wire::Join& join) {
  try {
    on_join(from, with_name_of_key(from, join));
  } catch (...) {
    refuse(from, current_error(), join);
  }
}

// A key belongs to a name; a worker without a name gets that of its key.
wire::Join RendezvousHost::with_name_of_key(const ConnectionToken& from, wire::Join join) const {
  const std::string owner = acceptor_->name_of(from);
  if (owner.empty() || owner == join.member.name) return join;
  if (!join.member.name.empty()) {
    fail(Status::kDenied, "rendezvous \"{}\": a worker takes the name \"{}\", but its key is that of \"{}\"", uri(),
         join.member.name, owner);
  }
  join.member.name = owner;
  return join;
}

void RendezvousHost::note_refusal(const std::string& text) {
  ++refused_;
  refusal_log_.write(log_, LogLevel::kWarning, loop_.now(), fmt::format("rendezvous \"{}\": {}", uri(), text));
}

void RendezvousHost::on_join(const ConnectionToken& from, const wire::Join& join) {
  if (failure_) throw *failure_;
  const bool had_met = rank_table_->has_met();
  const std::optional<Peer> known = rank_table_->find(join.member.incarnation);
  if (known) {
    check_is_the_same(*known, join.member);
  } else if (!admit(from, join)) {
    return;
  }
  guests_[join.member.incarnation] = from;
  if (known && join.asked != 0) {
    answer_who_it_is(from, join.asked);
    return;
  }
  if (rank_table_->has_met() && !had_met) {
    complete();
  } else {
    answer_with_roster(from);
  }
}

// Otherwise the connection of an impostor would count as that of the member.
void RendezvousHost::check_is_the_same(const Peer& known, const wire::Member& member) const {
  const bool is_host = known.incarnation == request().self.incarnation;
  if (!is_host && (member.name.empty() || member.name == known.name)) return;
  fail(Status::kInvalidState, "rendezvous \"{}\": worker \"{}\" says that it is the incarnation of worker \"{}\"",
       uri(), member.name, known.name);
}

bool RendezvousHost::admit(const ConnectionToken& from, const wire::Join& join) {
  if (join.member.generation != 0) {
    fail(Status::kInvalidState, "rendezvous \"{}\": worker \"{}\" was given up here, or is of an earlier group", uri(),
         join.member.name);
  }
  try {
    transport_.check_endpoint(join.member.endpoint);
  } catch (...) {
    throw current_error().add_context(
        fmt::format("rendezvous \"{}\": worker \"{}\" cannot be dialled", uri(), join.member.name));
  }
  if (waits_for_rival(from, join)) return false;
  rank_table_->check(join);
  rank_table_->add(join.member);
  return true;
}

// The place of a member is free once the member is lost. It lives while its connection here is open; otherwise the
// stream to it has to show that. Before the group has met there are no streams, and no member that could miss it.
bool RendezvousHost::waits_for_rival(const ConnectionToken& from, const wire::Join& join) {
  const Peer* const rival = rank_table_->find_rival(join.member);
  if (rival == nullptr) return false;
  const Incarnation incarnation = rival->incarnation;
  const auto guest = guests_.find(incarnation);
  if (guest == guests_.end() || answer(guest->second, roster_of_missing())) return false;
  if (!rank_table_->has_met() || !request().probe) {
    on_gone(incarnation);
    return false;
  }
  const bool is_asked = probes_.contains(incarnation);
  probes_[incarnation] = {from, join};
  if (is_asked) return true;
  request().probe(incarnation, [this, incarnation, alive = alive()] {
    if (!alive.expired()) on_probed(incarnation, true);
  });
  return true;
}

// The JOIN of the claimant is handled again, or refused because its rival lives.
void RendezvousHost::on_probed(Incarnation rival, bool is_alive) {
  assert_on_loop(loop_);
  const auto probe = probes_.extract(rival);
  if (probe.empty()) return;
  const auto& [connection, join] = probe.mapped();
  try {
    if (is_alive) rank_table_->check(join);
  } catch (...) {
    return refuse(connection, current_error(), join);
  }
  take_join(connection, join);
}

void RendezvousHost::on_gone(Incarnation incarnation) {
  assert_on_loop(loop_);
  rank_table_->remove(incarnation);
  guests_.erase(incarnation);
  on_probed(incarnation, false);
}

void RendezvousHost::look_up(Incarnation incarnation, Answer answer) { answer(rank_table_->find(incarnation)); }

void RendezvousHost::complete() {
  for (const auto& [incarnation, guest] : guests_) answer_with_roster(guest);
  succeed(rank_table_->members());
}

void RendezvousHost::fail_all(const Error& error) {
  failure_ = error;
  for (const auto& [incarnation, guest] : guests_) {
    wire::Roster refusal;
    refusal.refused = true;
    refusal.error = error;
    answer(guest, std::move(refusal));
  }
  set_timer(std::min(deadline_after(loop_.now(), kFarewell), request().deadline), [this] { give_up(*failure_); });
}

wire::Roster RendezvousHost::roster_of_missing() const {
  wire::Roster roster;
  roster.missing = rank_table_->missing();
  roster.missing.resize(std::min(roster.missing.size(), kMostMissing));
  return roster;
}

// Sends the roster in pages. Returns false if the guest is gone. A guest that cannot take all of it now asks again.
bool RendezvousHost::answer_with_roster(const ConnectionToken& to) {
  if (!rank_table_->has_met()) return answer(to, roster_of_missing());
  wire::Roster roster;
  const std::vector<Peer> members = rank_table_->members();
  roster.total = static_cast<uint32_t>(members.size());
  for (const Peer& peer : members) {
    roster.members.push_back(to_member(peer));
    if (roster.members.size() < kPageMembers && roster.offset + roster.members.size() < members.size()) continue;
    if (!answer(to, roster)) return false;
    roster.offset += static_cast<uint32_t>(roster.members.size());
    roster.members.clear();
  }
  return true;
}

void RendezvousHost::answer_who_it_is(const ConnectionToken& to, Incarnation asked) {
  wire::Roster roster;
  roster.asked = asked;
  if (const std::optional<Peer> found = rank_table_->find(asked)) roster.members.push_back(to_member(*found));
  roster.total = static_cast<uint32_t>(roster.members.size());
  answer(to, std::move(roster));
}

bool RendezvousHost::answer(const ConnectionToken& to, wire::Body body) {
  return acceptor_->reply(to, wire::pack({0, 0, {}, std::move(body)}, wire::Limits(), transport_));
}

}  // namespace distag
