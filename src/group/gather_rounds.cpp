#include "group/gather_rounds.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/each_step.h"
#include "tensor/payload_bytes.h"
#include "wire/encoder.h"
#include "wire/format.h"

namespace distag {

std::string describe_ranks(const Ranks& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return text;
}

Value encode_row(const std::vector<int64_t>& numbers) {
  Tensor tensor = Tensor::empty(Dtype::kInt64, {static_cast<int64_t>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_as<int64_t>());
  return Value(std::move(tensor));
}

std::vector<int64_t> decode_row(const Value& value) {
  const Tensor& tensor = value.as_tensor();
  if (tensor.dtype() != Dtype::kInt64 || tensor.shape().size() != 1 || !tensor.is_contiguous()) {
    fail(Status::kInvalidArgument, "all_gather: ranks and turns are rows of int64");
  }
  const int64_t* const given = tensor.data_as<int64_t>();
  return {given, given + tensor.count()};
}

Value encode_ranks(const Ranks& ranks) { return encode_row({ranks.begin(), ranks.end()}); }

Ranks decode_ranks(const Value& value) {
  const std::vector<int64_t> given = decode_row(value);
  Ranks ranks;
  ranks.reserve(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0 || given[i] > std::numeric_limits<int32_t>::max() || (i > 0 && given[i] <= given[i - 1])) {
      fail(Status::kInvalidArgument, "all_gather: {} is no rank there, they ascend", given[i]);
    }
    ranks.push_back(static_cast<int32_t>(given[i]));
  }
  return ranks;
}

Values GatherRequest::encode() && {
  Values args = {encode_ranks(ranks), Value(static_cast<int64_t>(time_left)), Value(turn), std::move(value)};
  if (failure) {
    args.push_back(Value::list({Value(static_cast<int64_t>(failure->status())),
                                Value::text(wire::mend_text(failure->message(), wire::kMaxErrorBytes))}));
  }
  return args;
}

namespace {

Error decode_failure(const Value& value) {
  const Value::List& parts = value.as_list();
  if (parts.size() != 2) fail(Status::kInvalidArgument, "all_gather: {} parts describe a failure, not 2", parts.size());
  const int64_t status = parts[0].as_int64();
  if (status <= 0 || status > std::numeric_limits<int32_t>::max()) {
    fail(Status::kInvalidArgument, "all_gather: a failure has status {}", status);
  }
  const std::string& text = parts[1].as_text();
  if (text.size() > wire::kMaxErrorBytes) {
    fail(Status::kInvalidArgument, "all_gather: the text of a failure has {} bytes, above the limit of {}", text.size(),
         wire::kMaxErrorBytes);
  }
  return {static_cast<Status>(status), text};  // the replies that tell it make REMOTE of one that is unknown
}

}  // namespace

GatherRequest GatherRequest::decode(const Values& args) {
  if (args.size() != 4 && args.size() != 5) {
    fail(Status::kInvalidArgument, "all_gather: {} arguments came, not 4 or 5", args.size());
  }
  GatherRequest request;
  request.ranks = decode_ranks(args[0]);
  request.time_left = args[1].as_int64();
  request.turn = args[2].as_int64();
  request.value = args[3];
  if (args.size() == 5) request.failure = decode_failure(args[4]);
  return request;
}

void GatherRounds::on_call(const GroupCall& call) {
  assert_on_loop(shared_.loop);
  GatherRequest request = GatherRequest::decode(call.args);
  check(request, call.from);
  check_room(request, call.from);
  Round& round = rounds_[request.ranks];
  drop_given_up(round);
  if (round.came.contains(call.from.rank)) {
    fail(Status::kInvalidState, "all_gather: {} has come before", describe_peer(call.from));
  }
  const Ranks ranks = request.ranks;
  const std::shared_ptr<PendingReply> reply = call.defer();
  try {
    add(round, std::move(request), call.from, reply);
  } catch (...) {
    // The contribution fails, and may come once more. From defer() on the answer is the reply's.
    const auto found = rounds_.find(ranks);
    if (found != rounds_.end()) remove(found->second, call.from.rank);
    reply->fail(current_error());
  }
}

void GatherRounds::check(const GatherRequest& request, const Peer& caller) const {
  const Ranks& ranks = request.ranks;
  if (ranks.empty() || ranks.front() != shared_.self.rank ||
      !std::binary_search(ranks.begin(), ranks.end(), caller.rank)) {
    fail(Status::kInvalidArgument, "all_gather: {} came to rank {} from rank {}", describe_ranks(ranks),
         shared_.self.rank, caller.rank);
  }
  for (const int32_t rank : ranks) shared_.check_rank_present(rank);
}

// Limits the number and the bytes of contributions. A value above the limit is accepted if it is the only one. A value
// without room is dropped, and fails its round for all.
void GatherRounds::check_room(GatherRequest& request, const Peer& caller) {
  size_t count = 0;
  uint64_t bytes = 0;
  for (auto next = rounds_.begin(); next != rounds_.end();) {
    Round& round = next->second;
    drop_given_up(round);
    const auto came = round.came.find(caller.rank);
    if (came != round.came.end()) {
      ++count;
      bytes += came->second.bytes;
    }
    next = round.came.empty() ? rounds_.erase(next) : std::next(next);
  }
  const uint64_t most = 2 * uint64_t{shared_.session->limits().max_message_bytes};
  if (count < kMost && (count == 0 || bytes + payload_bytes(request.value) <= most)) return;
  Error full(Status::kOverloaded,
             fmt::format("all_gather: {} has {} incomplete gathers with {} bytes at rank {}, which takes no more: wait "
                         "for earlier ones first",
                         describe_peer(caller), count, bytes, shared_.self.rank));
  if (count >= kMost) throw full;
  request.value = Value();
  request.failure = std::move(full);
}

// Names the missing members; those without a known name by rank. Its origin is the first that never came, or else the
// first that gave up.
Error GatherRounds::deadline_error(const Ranks& ranks, const Round& round) const {
  std::string missing, gave_up;
  int32_t origin = -1;
  for (const int32_t rank : ranks) {
    if (round.came.contains(rank)) continue;
    const auto member = shared_.membership.find_by_rank(rank);
    const bool has_given_up = round.gave_up.contains(rank);
    if (origin < 0 || (!has_given_up && missing.empty())) origin = rank;
    std::string& text = has_given_up ? gave_up : missing;
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        member ? describe_peer(member->peer) : fmt::format("rank {}", rank));
  }
  if (!missing.empty()) missing = "missing: " + missing;
  if (!gave_up.empty()) missing += (missing.empty() ? "" : "; ") + ("gave up: " + gave_up);
  Error error(Status::kDeadline, std::move(missing));
  return error.set_origin_rank(origin);
}

std::vector<Ranks> GatherRounds::missing(size_t most) const {
  assert_on_loop(shared_.loop);
  std::vector<Ranks> result;
  for (const auto& [ranks, round] : rounds_) {
    if (result.size() == most) break;
    Ranks missing;
    for (const int32_t rank : ranks) {
      if (!round.came.contains(rank)) missing.push_back(rank);
    }
    result.push_back(std::move(missing));
  }
  return result;
}

void GatherRounds::drop_given_up(Round& round) {
  Ranks gone;
  for (const auto& [rank, contribution] : round.came) {
    if (contribution.reply->is_cancelled()) gone.push_back(rank);
  }
  for (const int32_t rank : gone) give_up(round, rank);
}

void GatherRounds::add(Round& round, GatherRequest request, const Peer& caller, std::shared_ptr<PendingReply> reply) {
  const Ranks& ranks = request.ranks;
  round.gave_up.erase(caller.rank);
  if (request.failure) request.failure->add_context(describe_peer(caller)).set_origin_rank(caller.rank);
  const uint64_t bytes = payload_bytes(request.value) + (request.failure ? request.failure->message().size() : 0);
  round.came.emplace(caller.rank, Contribution{caller.incarnation, request.turn, request.value,
                                               std::move(request.failure), bytes, std::move(reply)});
  if (round.came.size() == ranks.size()) {
    complete(ranks);
    return;
  }
  if (request.time_left == 0) {
    on_due(ranks, caller.rank);
    return;
  }
  if (round.came.size() == 1) look_for_missing(ranks, round);
  if (request.time_left != kForever) {
    const Nanos deadline = deadline_after(shared_.loop.now(), request.time_left);
    round.came.at(caller.rank).timer = shared_.loop.start_timer(deadline, [this, ranks, rank = caller.rank] {
      rounds_.at(ranks).came.at(rank).timer = 0;
      on_due(ranks, rank);
    });
  }
}

// Opens a stream to each missing member, so that the loss of one is noticed: no other message may have been sent to it.
void GatherRounds::look_for_missing(const Ranks& ranks, const Round& round) {
  for (const int32_t rank : ranks) {
    if (rank == shared_.self.rank || round.came.contains(rank)) continue;
    const auto member = shared_.membership.find_by_rank(rank);
    if (!member || member->state != Standing::kMember) continue;
    try {
      shared_.session->send(member->peer.incarnation, wire::Ping{});
    } catch (const Error&) {
      // The member's loss is being reported.
    }
  }
}

// The caller adds its timeout: some of that had passed before it came.
void GatherRounds::on_due(const Ranks& ranks, int32_t rank) {
  assert_on_loop(shared_.loop);
  Round& round = rounds_.at(ranks);
  drop_given_up(round);
  const auto found = round.came.find(rank);
  if (found != round.came.end()) {
    const std::shared_ptr<PendingReply> reply = found->second.reply;
    reply->fail(deadline_error(ranks, round));
    give_up(round, rank);
  }
  if (round.came.empty()) rounds_.erase(ranks);
}

void GatherRounds::give_up(Round& round, int32_t rank) {
  remove(round, rank);
  EachStep each;  // without memory for the note it counts as not come
  each([&round, rank] { round.gave_up.insert(rank); });
}

void GatherRounds::remove(Round& round, int32_t rank) {
  const auto found = round.came.find(rank);
  if (found == round.came.end()) return;
  if (found->second.timer != 0) shared_.loop.cancel_timer(found->second.timer);
  round.came.erase(found);
}

void GatherRounds::complete(const Ranks& given) {
  const Ranks ranks = given;  // a copy, as `given` may belong to the round
  auto round = std::make_shared<Round>(std::move(rounds_.at(ranks)));
  rounds_.erase(ranks);
  for (auto& [rank, contribution] : round->came) {
    if (contribution.timer != 0) shared_.loop.cancel_timer(std::exchange(contribution.timer, 0));
  }
  const auto end = [round](const LeftOut* left_out) {
    const Error unknown(Status::kOutOfMemory, "no memory");  // no effect on members that have the values
    for (const auto& [rank, contribution] : round->came) {
      const Error* why = &unknown;
      if (left_out != nullptr) {
        const auto found = left_out->find(rank);
        why = found == left_out->end() ? nullptr : &found->second;
      }
      answer(*contribution.reply, why);
    }
  };
  try {
    Value::List values;
    std::vector<int64_t> turns;
    for (auto& [rank, contribution] : round->came) {
      if (contribution.failure) throw *contribution.failure;
      values.push_back(std::move(contribution.value));
      turns.push_back(contribution.turn);
    }
    spread_(ranks, turns, Value::list(std::move(values)), end);
  } catch (...) {
    const Error why = current_error();
    for (const auto& [rank, contribution] : round->came) answer(*contribution.reply, &why);
  }
}

// A failure for lack of memory does not keep the other replies from going out.
void GatherRounds::answer(PendingReply& reply, const Error* why) noexcept {
  EachStep each;
  each([&reply, why] {
    if (why == nullptr) {
      reply.finish(Value());
    } else {
      reply.fail(*why);
    }
  });
  if (!each.has_failed()) return;
  each([&reply] { reply.fail(Error(Status::kOutOfMemory, "no memory")); });
}

void GatherRounds::fail_round(const Ranks& ranks, const Error& error, int32_t origin) {
  Round round = std::move(rounds_.at(ranks));
  rounds_.erase(ranks);
  for (const auto& [rank, contribution] : round.came) {
    if (contribution.timer != 0) shared_.loop.cancel_timer(contribution.timer);
    Error why = error;
    contribution.reply->fail(std::move(why.set_origin_rank(origin)));
  }
}

void GatherRounds::on_peer_gone(const Peer& peer, const Error& error) {
  assert_on_loop(shared_.loop);
  std::vector<Ranks> hit;
  for (auto& [ranks, round] : rounds_) {
    if (!std::binary_search(ranks.begin(), ranks.end(), peer.rank)) continue;
    round.gave_up.erase(peer.rank);
    const auto came = round.came.find(peer.rank);
    if (came != round.came.end() && came->second.from == peer.incarnation) remove(round, peer.rank);
    hit.push_back(ranks);
  }
  // A restarted worker under this rank may still come.
  const auto latest = shared_.membership.find_by_rank(peer.rank);
  if (latest && latest->peer.incarnation != peer.incarnation) return;
  for (const Ranks& ranks : hit) fail_round(ranks, error, peer.rank);
}

void GatherRounds::stop() {
  assert_on_loop(shared_.loop);
  for (auto& [ranks, round] : rounds_) {
    for (auto& [rank, contribution] : round.came) {
      if (contribution.timer != 0) shared_.loop.cancel_timer(contribution.timer);
    }
  }
  rounds_.clear();
}

}  // namespace distag
