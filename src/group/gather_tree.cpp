#include "group/gather_tree.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/each_step.h"

namespace distag {
namespace {

Value encode(const LeftOut& left_out) {
  Value::List items;
  for (const auto& [rank, why] : left_out) {
    items.push_back(
        Value::list({Value(int64_t{rank}), Value(static_cast<int64_t>(why.status())), Value::text(why.message())}));
  }
  return Value::list(std::move(items));
}

LeftOut decode(const Value& answer, const Ranks& ranks) {
  LeftOut left_out;
  for (const Value& item : answer.as_list()) {
    const Value::List& parts = item.as_list();
    if (parts.size() != 3) fail(Status::kProtocol, "{} parts describe a rank that was left out, not 3", parts.size());
    const int64_t rank = parts[0].as_int64();
    const int64_t status = parts[1].as_int64();
    if (status <= 0 || status > std::numeric_limits<int32_t>::max() ||
        !std::binary_search(ranks.begin(), ranks.end(), rank)) {
      fail(Status::kProtocol, "rank {} is told to be left out for {}", rank, status);
    }
    left_out.emplace(static_cast<int32_t>(rank), Error(static_cast<Status>(status), parts[2].as_text()));
  }
  return left_out;
}

}  // namespace

void GatherTree::spread(const Ranks& ranks, const std::vector<int64_t>& turns, const Value& values, Done done) {
  assert_on_loop(shared_.loop);
  auto spread = std::make_shared<Spread>();
  spread->ranks = ranks;
  spread->args = {encode_ranks(ranks), encode_row(turns), values};
  spread->done = std::move(done);
  send_below(spread, 0);
  const LeftOut& left_out = spread->left_out;
  try {
    // No member has the round if the values could be sent to none, as when they are too large together.
    const bool reaches_none = ranks.size() > 1 && left_out.size() + 1 == ranks.size();
    if (reaches_none) {
      note_left_out(*spread, ranks.front(), left_out.begin()->second);
    } else if (receiver_.expects(ranks, turns.front())) {
      receiver_.take(ranks, values);
    }
  } catch (...) {
    note_left_out(*spread, ranks.front(), current_error());
  }
  close(*spread);
}

void GatherTree::on_call(const GroupCall& call) {
  assert_on_loop(shared_.loop);
  const Values& args = call.args;
  if (args.size() != 3) fail(Status::kInvalidArgument, "all_gather: {} arguments came, not 3", args.size());
  auto spread = std::make_shared<Spread>();
  spread->ranks = decode_ranks(args[0]);
  spread->args = args;
  const Ranks& ranks = spread->ranks;
  const std::vector<int64_t> turns = decode_row(args[1]);
  const Value& values = args[2];
  const auto place = std::lower_bound(ranks.begin(), ranks.end(), shared_.self.rank);
  if (place == ranks.end() || *place != shared_.self.rank || values.as_list().size() != ranks.size() ||
      turns.size() != ranks.size() || !std::binary_search(ranks.begin(), ranks.end(), call.from.rank)) {
    fail(Status::kInvalidArgument, "all_gather: {} values of {} came to rank {} from rank {}", values.as_list().size(),
         describe_ranks(ranks), shared_.self.rank, call.from.rank);
  }
  const auto own = static_cast<size_t>(place - ranks.begin());
  if (!receiver_.expects(ranks, turns[own])) {
    fail(Status::kInvalidState, "all_gather of {}: {} does not wait for this round", describe_ranks(ranks),
         describe_peer(shared_.self));
  }
  spread->done = [reply = call.defer()](const LeftOut* left_out) {
    EachStep each;
    each([left_out, &reply] {
      if (left_out == nullptr) throw std::bad_alloc();
      reply->finish(encode(*left_out));
    });
    if (each.has_failed()) reply->fail(Error(Status::kOutOfMemory, "no memory"));
  };
  // First: the values are held for sending as they are now, whatever the host does with its copy.
  send_below(spread, own);
  receiver_.take(ranks, values);
  close(*spread);
}

void GatherTree::send_below(const SpreadPointer& spread, size_t place) {
  for (const size_t below : {2 * place + 1, 2 * place + 2}) {
    if (below < spread->ranks.size()) send(spread, below);
  }
}

void GatherTree::send(const SpreadPointer& spread, size_t place) {
  ++spread->open;
  try {
    // All are known here: each of them has asked, or this worker has named it in its own request.
    const Peer peer = shared_.membership.find_by_rank(spread->ranks[place]).value().peer;
    const auto answer = shared_.service->ask(peer, kFunction, spread->args);  // the member's loss ends the call
    answer->on_done([weak = weak_from_this(), spread, place, raw = answer.get()] {
      if (const auto self = weak.lock()) self->on_answer(spread, place, *raw);
    });
  } catch (...) {
    leave_out(spread, place, current_error());
  }
}

void GatherTree::on_answer(const SpreadPointer& spread, size_t place, const Future<Value>& answer) {
  try {
    spread->left_out.merge(decode(answer.value(), spread->ranks));
  } catch (...) {
    return leave_out(spread, place, current_error());
  }
  close(*spread);
}

// Without memory for the note, the ranks below are tried nevertheless, and the spread ends.
void GatherTree::leave_out(const SpreadPointer& spread, size_t place, Error why) {
  note_left_out(*spread, spread->ranks[place], std::move(why));
  if (shared_.phase.load() == GroupPhase::kServing) send_below(spread, place);
  close(*spread);
}

void GatherTree::note_left_out(Spread& spread, int32_t rank, Error why) noexcept {
  EachStep each;
  each([&spread, rank, &why] { spread.left_out.emplace(rank, std::move(why)); });
  spread.forgets |= each.has_failed();
}

void GatherTree::close(Spread& spread) noexcept {
  if (--spread.open > 0) return;
  EachStep each;  // the replies that it holds fail when it is destroyed
  each([&spread] { spread.done(spread.forgets ? nullptr : &spread.left_out); });
}

}  // namespace distag
