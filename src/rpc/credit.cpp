#include "rpc/credit.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/payload_bytes.h"

namespace distag {
namespace {

// The cost of a request without arguments, here and at the peer, and of its answer.
constexpr uint64_t kOfEach = 1024;

}  // namespace

uint64_t cost_of(const Values& args, const wire::Packed* packed, const std::string& label) {
  uint64_t cost = kOfEach + label.size();
  if (packed != nullptr) return cost + packed->header_bytes() + packed->frame_bytes();
  for (const Value& arg : args) cost += payload_bytes(arg);
  return cost;
}

uint64_t cost_of(const Value& answer, const wire::Packed* packed) {
  return kOfEach + (packed == nullptr ? payload_bytes(answer) : packed->header_bytes() + packed->frame_bytes());
}

// If a peer has reported a wrong total, more may be taken than was sent once some cost is given back.
uint64_t Credit::not_taken(const Line& line) { return line.sent > line.taken ? line.sent - line.taken : 0; }

bool Credit::fits(const Line& line, uint64_t cost) const {
  const uint64_t open = not_taken(line);
  return open == 0 || (open <= budget_ && cost <= budget_ - open);
}

bool Credit::admit(const std::shared_ptr<OutgoingCall>& call) {
  if (call->claim.cost == 0) return true;
  Line& line = lines_[call->to];
  if (line.open >= most_open_) {
    fail(Status::kOverloaded,
         "{} calls to it are open, and no more may be: wait for the futures of earlier calls first", line.open);
  }
  if (line.waiting.empty() && fits(line, call->claim.cost)) {
    line.sent += call->claim.cost;
    call->claim.state = CreditClaim::State::kCounted;
    count_open(line, *call);
    return true;
  }
  if (!call->claim.has_time && line.waiting_bytes >= budget_) {
    fail(Status::kOverloaded,
         "requests of {} bytes that it has not begun are on their way to it, and {} more wait, for which "
         "max_in_flight_bytes is {}: wait for the futures of earlier calls first, or raise it",
         not_taken(line), line.waiting_bytes, budget_);
  }
  line.waiting.emplace(call->id.counter, call);
  line.waiting_bytes += call->claim.cost;
  call->claim.state = CreditClaim::State::kWaiting;
  count_open(line, *call);
  return false;
}

void Credit::count_open(Line& line, OutgoingCall& call) {
  ++line.open;
  call.claim.is_open = true;
}

void Credit::end(OutgoingCall& call) {
  if (!std::exchange(call.claim.is_open, false)) return;
  const auto found = lines_.find(call.to);
  if (found != lines_.end()) --found->second.open;
}

void Credit::give_back(OutgoingCall& call) {
  const CreditClaim::State before = std::exchange(call.claim.state, CreditClaim::State::kNone);
  const bool was_counted = before == CreditClaim::State::kCounted;
  const bool was_waiting = before == CreditClaim::State::kWaiting;
  const auto found = lines_.find(call.to);
  if (found == lines_.end() || !(was_counted || was_waiting)) return;
  Line& line = found->second;
  line.asked = 0;  // for less, now
  if (was_counted) line.sent -= call.claim.cost;
  if (!was_waiting) return;
  line.waiting_bytes -= call.claim.cost;
  line.waiting.erase(call.id.counter);
}

bool Credit::on_taken(Incarnation peer, uint64_t total) {
  const auto found = lines_.find(peer);
  if (found == lines_.end()) return false;
  Line& line = found->second;
  line.taken = std::min(std::max(line.taken, total), line.sent);
  return !line.waiting.empty();
}

bool Credit::has_next(Incarnation peer) const {
  const auto found = lines_.find(peer);
  if (found == lines_.end()) return false;
  const Line& line = found->second;
  return !line.waiting.empty() && fits(line, line.waiting.begin()->second->claim.cost);
}

std::shared_ptr<OutgoingCall> Credit::next(Incarnation peer) {
  if (!has_next(peer)) return nullptr;
  Line& line = lines_.at(peer);
  const std::shared_ptr<OutgoingCall> call = std::move(line.waiting.begin()->second);
  line.waiting.erase(line.waiting.begin());
  line.waiting_bytes -= call->claim.cost;
  line.sent += call->claim.cost;
  call->claim.state = CreditClaim::State::kCounted;
  return call;
}

uint64_t Credit::to_ask(Incarnation peer) const {
  const auto found = lines_.find(peer);
  if (found == lines_.end()) return 0;
  const Line& line = found->second;
  if (line.waiting.empty() || line.taken < line.asked) return 0;
  // With room for more than one request, so that not each of them needs a message.
  const uint64_t wanted = line.waiting.begin()->second->claim.cost + budget_ / 8;
  return wanted >= budget_ ? line.sent : line.sent - std::min(line.sent, budget_ - wanted);
}

void Credit::note_asked(Incarnation peer, uint64_t taken) {
  const auto found = lines_.find(peer);
  if (found != lines_.end()) found->second.asked = taken;
}

std::vector<Incarnation> Credit::peers_with_waiting() const {
  std::vector<Incarnation> peers;
  for (const auto& [peer, line] : lines_) {
    if (!line.waiting.empty()) peers.push_back(peer);
  }
  return peers;
}

RequestBytes Credit::bytes() const {
  RequestBytes bytes;
  for (const auto& [peer, line] : lines_) {
    bytes.open += not_taken(line);
    bytes.waiting += line.waiting_bytes;
  }
  return bytes;
}

}  // namespace distag
