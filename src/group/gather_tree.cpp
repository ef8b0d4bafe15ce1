#include "group/gather_tree.h"

#include <algorithm>
#include <limits>
#include <utility>

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
    if (parts.size() != 3) fail(Status::kProtocol, "{} parts tell of a rank that was left out, not 3", parts.size());
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
  if (receiver_.expects(ranks, turns.front())) receiver_.take(ranks, values);
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
  spread->done = [reply = call.defer()](const LeftOut& left_out) { reply->finish(encode(left_out)); };
  // First: what is on its way is held as it is now, whatever the host does with what it gets.
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
  std::shared_ptr<Future<Value>> answer;
  try {
    const auto member = shared_.membership.find_by_rank(spread->ranks[place]);
    if (!member) fail(Status::kNotFound, "there is no rank {} any more", spread->ranks[place]);
    answer = shared_.service->ask(member->peer, kFunction, spread->args);  // its loss ends it
  } catch (...) {
    answer = Future<Value>::make();
    answer->fail(current_error());
  }
  answer->on_done([weak = weak_from_this(), spread, place, raw = answer.get()] {
    if (const auto self = weak.lock()) self->on_answer(spread, place, *raw);
  });
}

void GatherTree::on_answer(const SpreadPointer& spread, size_t place, const Future<Value>& answer) {
  try {
    spread->left_out.merge(decode(answer.value(), spread->ranks));
  } catch (...) {
    spread->left_out.emplace(spread->ranks[place], current_error());
    if (shared_.phase.load() == GroupPhase::kServing) send_below(spread, place);
  }
  close(*spread);
}

void GatherTree::close(Spread& spread) {
  if (--spread.open == 0) spread.done(spread.left_out);
}

}  // namespace distag
