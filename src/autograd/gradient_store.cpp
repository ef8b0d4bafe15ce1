#include "autograd/gradient_store.h"

#include <algorithm>
#include <array>

#include "autograd/autograd.h"
#include "autograd/history.h"
#include "base/error.h"
#include "base/mutex.h"
#include "ops/builtins.h"

namespace distag {

const Tensor* Gradients::find(const Tensor& leaf) const {
  auto found = std::lower_bound(entries.begin(), entries.end(), leaf.id(),
                                [](const Entry& entry, uint64_t id) { return entry.leaf.id() < id; });
  return found != entries.end() && found->leaf.id() == leaf.id() ? &found->gradient : nullptr;
}

namespace autograd {
namespace {

using Entries = GradientStore::Entries;

// The sum is recorded if one of the two has a history (create_graph).
Tensor summed(Tensor into, Tensor added) {
  if (requires_grad(into) || requires_grad(added)) return apply(ops::kAdd, std::array{into, added}, {})[0];
  return ops::accumulate(std::move(into), std::move(added));
}

bool is_before(const Gradients::Entry& a, const Gradients::Entry& b) { return a.leaf.id() < b.leaf.id(); }

// A leaf has two entries if its requires_grad was turned off and on again between two uses.
Entries sorted(Entries entries) {
  std::stable_sort(entries.begin(), entries.end(), is_before);
  Entries result;
  result.reserve(entries.size());
  for (Gradients::Entry& entry : entries) {
    if (result.empty() || is_before(result.back(), entry)) {
      result.push_back(std::move(entry));
    } else {
      result.back().gradient = summed(std::move(result.back().gradient), std::move(entry.gradient));
    }
  }
  return result;
}

Entries sum(Entries sums, Entries added) {
  added = sorted(std::move(added));
  if (sums.empty()) return added;
  Entries result;
  result.reserve(sums.size() + added.size());
  auto a = sums.begin();
  auto b = added.begin();
  while (a != sums.end() || b != added.end()) {
    if (b == added.end() || (a != sums.end() && is_before(*a, *b))) {
      result.push_back(std::move(*a++));
    } else if (a == sums.end() || is_before(*b, *a)) {
      result.push_back(std::move(*b++));
    } else {
      a->gradient = summed(std::move(a->gradient), std::move(b->gradient));
      result.push_back(std::move(*a++));
      ++b;
    }
  }
  return result;
}

}  // namespace

void GradientStore::add(const Id& pass, Entries entries) {
  MutexLock lock(mutex_);
  fresh_.push_back({pass, std::move(entries)});
}

std::shared_ptr<const Gradients> GradientStore::read() {
  MutexLock lock(mutex_);
  sum_fresh();
  // The reader gets tensors of its own: its writes to them do not show in the next snapshot.
  auto snapshot = std::make_shared<Gradients>(*sums_);
  for (Gradients::Entry& entry : snapshot->entries) {
    entry.gradient = with_history_of(entry.gradient, entry.gradient.snapshot());
  }
  return snapshot;
}

void GradientStore::scale(std::span<const uint64_t> leaves, double factor, uint64_t passes) {
  MutexLock lock(mutex_);
  sum_fresh();
  if (sums_->passes != passes) {
    fail(Status::kInvalidState, "gradients: {} passes were committed meanwhile; scale them again",
         sums_->passes - passes);
  }
  auto scaled = std::make_shared<Gradients>(*sums_);
  const ops::Attributes by{{"value", Value(factor)}};
  for (const uint64_t leaf : leaves) {
    auto found = std::lower_bound(scaled->entries.begin(), scaled->entries.end(), leaf,
                                  [](const Gradients::Entry& entry, uint64_t id) { return entry.leaf.id() < id; });
    if (found == scaled->entries.end() || found->leaf.id() != leaf) continue;
    const Tensor local = shard_of(found->gradient);
    const Tensor product = apply(ops::kMulScalar, std::span(&local, 1), by)[0];
    const ShardSlot* slot = found->gradient.shard_slot();
    found->gradient = slot == nullptr ? product : slot->like(product);
  }
  sums_ = std::move(scaled);
}

// Adds passes in their own order, not in that of their commits, so that the sums do not depend on which was faster.
void GradientStore::sum_fresh() {
  if (sums_ != nullptr && fresh_.empty()) return;
  std::sort(fresh_.begin(), fresh_.end(), [](const Committed& a, const Committed& b) { return a.pass < b.pass; });
  auto sums = std::make_shared<Gradients>();
  if (sums_ != nullptr) *sums = *sums_;
  sums->passes += fresh_.size();
  for (Committed& committed : fresh_) sums->entries = sum(std::move(sums->entries), std::move(committed.entries));
  fresh_.clear();
  sums_ = std::move(sums);
}

}  // namespace autograd
}  // namespace distag
