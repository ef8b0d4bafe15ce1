#include "optim/round.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"

namespace distag::optim {

Round::Round(std::vector<OwnerName> owners, std::vector<std::shared_ptr<Future<Value>>> futures)
    : owners_(std::move(owners)), futures_(std::move(futures)), open_(futures_.size()) {}

void Round::begin() {
  if (futures_.empty()) done_->complete(Unit{});
  for (const auto& future : futures_) {
    future->on_done([self = shared_from_this()] {
      if (--self->open_ == 0) self->done_->complete(Unit{});
    });
  }
}

void Round::cancel() {
  for (const auto& future : futures_) future->cancel();
}

Round::Outcome Round::outcome(size_t index) const {
  const Future<Value>& future = *futures_[index];
  if (future.error() != nullptr) return future.error()->may_have_run() ? Outcome::kUnknown : Outcome::kNotApplied;
  try {
    answer(index);
    return Outcome::kApplied;
  } catch (const Error&) {
    return Outcome::kNotApplied;
  }
}

std::vector<int32_t> Round::applied_ranks() const {
  std::vector<int32_t> ranks;
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (outcome(i) == Outcome::kApplied) ranks.push_back(owners_[i].rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Round::check(const char* what) const {
  std::optional<Error> first;
  std::string text;
  bool is_unknown = false;
  for (size_t i = 0; i < owners_.size(); ++i) {
    const Outcome result = outcome(i);
    if (result == Outcome::kApplied) continue;
    is_unknown |= result == Outcome::kUnknown;
    try {
      answer(i);
    } catch (const Error& error) {
      text += fmt::format("{}{} by \"{}\" (rank {}): {}", text.empty() ? "" : "; ",
                          result == Outcome::kUnknown ? "perhaps not applied" : "not applied", owners_[i].name,
                          owners_[i].rank, error.message());
      if (!first) first = Error(error).set_origin_rank(owners_[i].rank);
    }
  }
  if (!first) return;
  throw Error(first->status(), fmt::format("{}: {}", what, text))
      .set_origin_rank(first->origin_rank())
      .set_may_have_run(is_unknown);
}

}  // namespace distag::optim
