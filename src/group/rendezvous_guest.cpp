#include "group/rendezvous_guest.h"

#include <algorithm>
#include <utility>

#include "wire/codec.h"

namespace distag {
namespace {

constexpr Nanos kFirstPause = 10 * kMillisecond;
constexpr Nanos kLongestPause = 200 * kMillisecond;
constexpr Nanos kLongestPauseOfMember = 5 * kSecond;
constexpr Nanos kRepeat = 500 * kMillisecond;
constexpr size_t kMostAsked = 4096;

}  // namespace

RendezvousGuest::RendezvousGuest(const std::string& uri, Loop& loop, Transport& transport, Log& log)
    : JoiningElsewhere(loop, log, uri), transport_(transport) {}

void RendezvousGuest::begin() {
  self_ = join_message().member;
  dial();
}

Error RendezvousGuest::awaited() {
  if (was_answered_) return missing_error(uri(), missing_, request().world_size);
  return Error(
      Status::kDisconnected,
      fmt::format("rendezvous \"{}\": rank 0 did not answer there in time: {}; start rank 0 with this address, "
                  "on the host that has it; once rank 0 has ended, no worker can join",
                  uri(), found()));
}

// An attempt that has only just begun has found nothing yet.
std::string RendezvousGuest::found() const {
  std::string text = found_;
  if (connection_ != nullptr && (text.empty() || loop_.now() - dialled_at_ >= kRepeat)) text = connection_->found();
  return text.empty() ? "no word came from there" : text;
}

void RendezvousGuest::dial() {
  if (is_done()) return;
  ConnectionEvents events;
  events.on_connected = [this] { say_join(); };
  events.on_writable = [this] { say_join(); };
  events.on_message = [this](Frames frames) { on_message(frames); };
  events.on_denied = [this] { on_denied(); };
  events.on_dropped = [this](bool) {
    found_ = connection_->found();
    redial();
  };
  dialled_at_ = loop_.now();
  try {
    connection_ = transport_.dial(uri(), std::move(events));
  } catch (...) {
    // Descriptors or memory were short, which may be over by the next attempt; a member has a place to keep.
    if (is_member_) return redial();
    give_up(current_error().add_context(fmt::format("rendezvous \"{}\"", uri())));
  }
}

void RendezvousGuest::say_join() {
  if (is_done() || connection_ == nullptr) return;
  if (!say(0)) return;  // on_writable sends it again
  for (const auto& [incarnation, answer] : asked_) {
    if (!say(incarnation)) return;
  }
  if (is_member_) return;
  set_timer(deadline_after(loop_.now(), kRepeat), [this] { say_join(); });
}

bool RendezvousGuest::say(Incarnation asked) {
  wire::Join join = join_message();
  join.member = self_;
  join.asked = asked;
  return connection_->send(wire::pack({0, 0, {}, std::move(join)}, wire::Limits(), transport_));
}

void RendezvousGuest::look_up(Incarnation incarnation, Answer answer) {
  assert_on_loop(loop_);
  if (!is_member_) return answer(std::nullopt);
  if (asked_.size() >= kMostAsked && !asked_.contains(incarnation)) return;
  asked_[incarnation] = std::move(answer);
  if (connection_ != nullptr) say(incarnation);  // otherwise it is sent when the connection takes messages again
}

void RendezvousGuest::on_message(const Frames& frames) {
  assert_on_loop(loop_);
  if (is_done()) return;
  try {
    const wire::Message message = wire::unpack(frames, wire::Limits(), transport_);
    if (const auto* refuse = std::get_if<wire::Refuse>(&message.body)) {
      if (refuse->reason == wire::RefuseReason::kDamaged) return redial();
    }
    const auto* roster = std::get_if<wire::Roster>(&message.body);
    if (roster == nullptr) fail(Status::kProtocol, "{} instead of ROSTER", wire::body_name(message.body));
    on_roster(*roster);
  } catch (const wire::Damaged&) {
    redial();
  } catch (...) {
    give_up(current_error().add_context(fmt::format("rendezvous \"{}\"", uri())));
  }
}

void RendezvousGuest::on_roster(const wire::Roster& roster) {
  if (!roster.proof.empty()) {
    fail(Status::kProtocol, "who serves there proves that it knows the key of a group, and this worker has none");
  }
  was_answered_ = true;
  if (roster.asked != 0) return on_answer(roster);
  if (is_member_) return on_word_to_member(roster);
  if (roster.refused) {
    give_up(roster.error);
    return;
  }
  missing_ = roster.missing;
  if (roster.members.empty()) return;
  if (roster.offset == 0) roster_.clear();
  if (roster.offset != roster_.size()) return;  // the next JOIN gets all pages again
  roster_.insert(roster_.end(), roster.members.begin(), roster.members.end());
  if (roster_.size() == roster.total) on_whole_roster(std::exchange(roster_, {}));
}

void RendezvousGuest::on_whole_roster(const std::vector<wire::Member>& roster) {
  std::vector<Peer> members;
  members.reserve(roster.size());
  for (const wire::Member& member : roster) members.push_back(to_peer(member));
  check_members(members);
  self_ = *std::find_if(roster.begin(), roster.end(), [this](const wire::Member& member) {
    return member.incarnation == request().self.incarnation;
  });
  is_member_ = true;
  pause_ = 0;
  cancel_timer();
  succeed(std::move(members));
}

// The connection of a member was made again. Another worker may serve there now.
void RendezvousGuest::on_word_to_member(const wire::Roster& roster) {
  pause_ = 0;
  if (!roster.refused) return;
  is_member_ = false;
  set_timer(loop_.now(), [this] { connection_.reset(); });
}

void RendezvousGuest::on_answer(const wire::Roster& roster) {
  std::optional<Peer> found;
  if (!roster.members.empty() && roster.members[0].incarnation == roster.asked) found = to_peer(roster.members[0]);
  if (auto asked = asked_.extract(roster.asked)) asked.mapped()(found);
}

// A member goes on dialling: the worker that serves there now may belong to another group.
void RendezvousGuest::on_denied() {
  if (is_over()) return;
  give_up(
      Error(Status::kDenied, fmt::format("rendezvous \"{}\": the worker that serves there does not let this one in: {}",
                                         uri(), transport_.explain_denial())));
}

void RendezvousGuest::redial() {
  if (is_done()) return;
  pause_ = next_pause(pause_, kFirstPause, is_member_ ? kLongestPauseOfMember : kLongestPause);
  set_timer(deadline_after(loop_.now(), pause_), [this] {
    connection_.reset();
    dial();
  });
}

}  // namespace distag
