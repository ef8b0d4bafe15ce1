#include "session/obstacle.h"

#include <algorithm>

#include "base/each_step.h"

namespace distag {

// A deaf worker may still hear a peer over an older connection: a healthy peer speaks within half a lease.
Obstacle obstacle_between(const PeerRecord& record, const StreamShared& shared) {
  if (!record.is_member()) return {};
  const Nanos now = shared.loop.now();
  const Lack& own = record.outgoing.lack();
  if (own.is_there(now)) return {&own, "cannot be reached from here", own.last() - own.since(), true};
  if (record.lack.is_there(now)) {
    return {&record.lack, "cannot answer, as it says", record.lack.last() - record.lack.since(), false};
  }
  const Lack& deafness = shared.deafness;
  const Nanos silent_since = std::max({deafness.since(), record.last.spoken, record.last.part});
  if (!deafness.is_there(now) || deafness.last() <= silent_since) return {};
  if (shared.transport.reports_every_loss()) return {};  // peers are not asked for signs of life then
  return {&deafness, "may not be heard from here", deafness.last() - silent_since, false};
}

std::string text_of(const Obstacle& obstacle, const Peer& peer) {
  return fmt::format("{} {}: {}", describe_peer(peer), obstacle.effect, obstacle.lack->error().message());
}

Error loss_error(const Peer& peer, const StreamShared& shared, Nanos heard_at, Status status, const std::string& why) {
  std::string heard = "never heard";
  if (heard_at >= 0) {
    heard = fmt::format("last heard {:.2f} s ago", static_cast<double>(shared.loop.now() - heard_at) / kSecond);
  }
  return Error(status, fmt::format("{} is lost: {}; {}", describe_peer(peer), why, heard));
}

Error loss_error(const PeerRecord& record, const StreamShared& shared, Status status, const std::string& why) {
  const Nanos lately = shared.loop.now() - shared.config.lease;
  const Lack* lack = nullptr;
  const char* effect = "";
  if (record.outgoing.lack().was_there_since(lately)) {
    lack = &record.outgoing.lack();
    effect = "this worker could not reach it";
  } else if (record.lack.was_there_since(lately)) {
    lack = &record.lack;
    effect = "it could not answer, as it said,";
  } else if (shared.deafness.was_there_since(std::max(lately, record.last.spoken))) {
    lack = &shared.deafness;
    effect = "this worker could not hear others";
  }
  std::string words;
  EachStep each;  // without memory for the text the loss is reported without it
  each([&] {
    if (lack == nullptr) return;
    words = fmt::format("; {} for {:.2f} s: {}", effect, static_cast<double>(lack->last() - lack->since()) / kSecond,
                        lack->error().message());
  });
  return loss_error(record.peer, shared, record.last.heard, status, why + words);
}

}  // namespace distag
