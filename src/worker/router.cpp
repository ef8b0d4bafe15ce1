#include "worker/router.h"

#include <algorithm>

#include "base/violation.h"
#include "group/shared.h"

namespace distag {

namespace {

// The pass in which a message asks this worker to take part; null: it asks for nothing new.
Id pass_of(const wire::Body& body) {
  if (const auto* discover = std::get_if<wire::Discover>(&body)) return discover->pass;
  if (const auto* start = std::get_if<wire::Start>(&body)) return start->pass;
  if (const auto* expect = std::get_if<wire::Expect>(&body)) return expect->pass;
  if (const auto* grad = std::get_if<wire::Grad>(&body)) return grad->fast || grad->planned ? grad->pass : Id();
  return {};
}

}  // namespace

Heard Router::lead(const Peer& from, wire::Message& message) {
  const Route& route = route_of(message.body);  // a handler may leave the message empty
  try {
    if (!initiators_.empty() && deny(from, message)) return Heard::kRefused;
    return lead(route.taker, from, message);
  } catch (const Violation&) {
    throw;
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kOutOfMemory && route.memory == Without::kWaits) throw;  // the message comes again
    refuse(from, message, error);
    return Heard::kHandled;
  }
}

Heard Router::lead(Taker taker, const Peer& from, wire::Message& message) {
  switch (taker) {
    case Taker::kGroup:
      return lead_to_group(from, message);
    case Taker::kCalls:
      return layers_.rpc.handle(from, message);
    case Taker::kReferences:
      return layers_.rrefs.handle(from, message);
    case Taker::kMeshes:
      return layers_.meshes.handle(from, message);
    case Taker::kAutograd:
      return layers_.dautograd.handle(from, message);
    case Taker::kNobody:
      break;
  }
  violation("{} is no message that a started worker gets", wire::body_name(message.body));
}

Heard Router::lead_to_group(const Peer& from, wire::Message& message) {
  const Heard heard = layers_.group.handle(from, message);
  if (heard == Heard::kRefused) note_refusal(fmt::format("{} asks for a vote that others lead", describe_peer(from)));
  return heard;
}

void Router::refuse(const Peer& from, wire::Message& outline, const Error& why) {
  log_.write(LogLevel::kInfo, fmt::format("{} of worker \"{}\" was refused: {}", wire::body_name(outline.body),
                                          from.name, why.message()));
  switch (route_of(outline.body).taker) {
    case Taker::kCalls:
      return layers_.rpc.refuse(from, outline, why);
    case Taker::kMeshes:
      return layers_.meshes.refuse(from, outline, why);
    case Taker::kAutograd:
      return layers_.dautograd.refuse(from, outline, why);
    case Taker::kGroup:
    case Taker::kReferences:
    case Taker::kNobody:
      break;
  }
}

// Whether `initiators` excludes the pass of this message, whichever worker has sent that on.
bool Router::deny(const Peer& from, wire::Message& message) {
  const Id pass = pass_of(message.body);
  const Peer& self = layers_.group.shared()->self;
  if (!pass || pass.maker == self.incarnation) return false;
  const std::shared_ptr<const Peer> initiator = layers_.group.find_peer(pass.maker);
  const bool may = initiator && std::find(initiators_.begin(), initiators_.end(), initiator->name) != initiators_.end();
  if (may) return false;
  const Error denial(Status::kDenied,
                     fmt::format("worker \"{}\" may not begin backward passes in which worker \"{}\" takes part",
                                 initiator ? initiator->name : "that is not known", self.name));
  note_refusal(denial.message());
  refuse(from, message, denial);
  return true;
}

void Router::note_refusal(const std::string& text) { refusals_.write(log_, LogLevel::kWarning, clock_.now(), text); }

}  // namespace distag
