#include "rpc/rendezvous_host.h"

#include <algorithm>
#include <utility>

#include "wire/codec.h"

namespace distag {
namespace {

// A failure is told to the guests this long before it is told here, since the socket closes with it.
constexpr Nanos kFarewell = 100 * kMillisecond;

}  // namespace

RendezvousHost::RendezvousHost(const std::string& uri, Loop& loop, Transport& transport, Log& log)
    : Joining(loop, log, uri), transport_(transport) {}

void RendezvousHost::begin() {
  gathering_.emplace(uri(), request().job, request().world_size);
  AcceptorEvents events;
  events.on_message = [this](const ConnectionToken& from, Frames frames) { on_message(from, frames); };
  try {
    acceptor_ = transport_.listen(uri(), std::move(events));
  } catch (...) {
    throw current_error().add_context(fmt::format("rendezvous \"{}\"", uri()));
  }
  gathering_->add(join_message().member);
  if (gathering_->is_complete()) {
    complete();
    return;
  }
  if (request().deadline == kNever) return;
  const Nanos time = request().deadline - loop_.now();
  set_timer(request().deadline - std::min(kFarewell, time / 10), [this] {
    if (stage_ == Stage::kGathering) fail_all(missing_error(uri(), gathering_->missing(), request().world_size));
  });
}

Error RendezvousHost::on_deadline() {
  return stage_ == Stage::kFailed ? failure_ : missing_error(uri(), gathering_->missing(), request().world_size);
}

void RendezvousHost::on_message(const ConnectionToken& from, const Frames& frames) {
  try {
    if (frames.empty()) fail(Status::kProtocol, "an empty message");
    const wire::Message message =
        wire::decode(frames.front(), Frames(frames.begin() + 1, frames.end()), wire::Limits());
    const auto* join = std::get_if<wire::Join>(&message.body);
    if (join == nullptr) fail(Status::kProtocol, "{} instead of JOIN", wire::body_name(message.body));
    on_join(from, *join);
  } catch (...) {
    Error error = current_error();
    log_.write(LogLevel::kWarning, fmt::format("rendezvous \"{}\": refused: {}", uri(), error.message()));
    wire::Roster refusal;
    refusal.refused = true;
    refusal.error = std::move(error);
    answer(from, std::move(refusal));
  }
}

void RendezvousHost::on_join(const ConnectionToken& from, const wire::Join& join) {
  if (stage_ == Stage::kFailed) throw failure_;
  const bool is_known = gathering_->has(join.member.incarnation);
  if (stage_ == Stage::kComplete && !is_known) {
    Gathering(uri(), request().job, request().world_size).check(join);
    fail(Status::kInvalidState, "rendezvous \"{}\": the group of {} is complete, worker \"{}\" comes too late", uri(),
         request().world_size, join.member.name);
  }
  if (!is_known) admit(from, join);
  guests_[join.member.incarnation] = from;
  if (stage_ == Stage::kGathering && gathering_->is_complete()) {
    complete();
  } else {
    answer(from, roster());
  }
}

void RendezvousHost::admit(const ConnectionToken& from, const wire::Join& join) {
  if (const Peer* rival = gathering_->find_rival(join.member)) {
    const Incarnation incarnation = rival->incarnation;
    const auto guest = guests_.find(incarnation);
    if (guest != guests_.end() && !answer(guest->second, roster())) {
      gathering_->remove(incarnation);
      guests_.erase(guest);
    }
  }
  try {
    gathering_->check(join);
  } catch (const Error& error) {
    if (gathering_->is_other_world(join)) {
      guests_[join.member.incarnation] = from;
      fail_all(error);
    }
    throw;
  }
  gathering_->add(join.member);
}

void RendezvousHost::complete() {
  stage_ = Stage::kComplete;
  for (const auto& [incarnation, guest] : guests_) answer(guest, roster());
  succeed(gathering_->members());
}

void RendezvousHost::fail_all(const Error& error) {
  stage_ = Stage::kFailed;
  failure_ = error;
  for (const auto& [incarnation, guest] : guests_) {
    wire::Roster refusal;
    refusal.refused = true;
    refusal.error = error;
    answer(guest, std::move(refusal));
  }
  set_timer(std::min(deadline_after(loop_.now(), kFarewell), request().deadline), [this] { give_up(failure_); });
}

wire::Roster RendezvousHost::roster() const {
  wire::Roster roster;
  if (stage_ == Stage::kComplete) {
    for (const Peer& peer : gathering_->members()) roster.members.push_back(to_member(peer));
  } else {
    roster.missing = gathering_->missing();
  }
  return roster;
}

bool RendezvousHost::answer(const ConnectionToken& to, wire::Roster roster) {
  wire::Message message;
  message.body = std::move(roster);
  wire::Encoded encoded = wire::encode(message, wire::Limits());
  Frames frames;
  frames.push_back(std::move(encoded.header));
  for (Frame& frame : encoded.payload) frames.push_back(std::move(frame));
  return acceptor_->reply(to, std::move(frames));
}

}  // namespace distag
