// The rights of members, where names are bound to keys.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker/worker_state.h"

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

// Of a pass that another may not begin: a worker that passes it on is no better.
std::optional<Error> Worker::State::denial_of(const wire::Message& message) const {
  const std::vector<std::string>& initiators = options.initiators;
  if (initiators.empty()) return std::nullopt;
  const Id pass = pass_of(message.body);
  if (!pass || pass.maker == links.session->self().incarnation) return std::nullopt;
  const std::shared_ptr<const Peer> initiator = layers.group.find_peer(pass.maker);
  const bool may = initiator && std::find(initiators.begin(), initiators.end(), initiator->name) != initiators.end();
  if (may) return std::nullopt;
  return Error(Status::kDenied,
               fmt::format("worker \"{}\" may not begin backward passes in which worker \"{}\" takes part",
                           initiator ? initiator->name : "that is not known", links.session->self().name));
}

void Worker::State::note_refusal(const std::string& text) {
  refusal_log.write(environment.log, LogLevel::kWarning, environment.loop.now(), text);
}

void Worker::lose_members(std::vector<std::string> names, const Error& why) {
  state_->environment.loop.post_or_drop([state = state_, names = std::move(names), why] {
    if (state->links.session == nullptr) return;
    for (const std::string& name : names) {
      const std::shared_ptr<const Peer> peer = state->layers.group.membership().peer_named(name);
      if (peer == nullptr || state->links.session->gone(peer->incarnation) != nullptr) continue;
      state->links.session->fence(
          peer->incarnation, Error(why.status(), fmt::format("{} is lost: {}", describe_peer(*peer), why.message())));
    }
  });
}

}  // namespace distag
