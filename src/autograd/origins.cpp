#include "autograd/origins.h"

#include <algorithm>

namespace distag::autograd {

Origins Origins::open() {
  Origins origins;
  origins.count_ = kOpen;
  return origins;
}

void Origins::add(const Origins& others) {
  if (is_open() || others.is_none()) return;
  if (is_none() || others.is_open()) {
    *this = others;
    return;
  }
  if (all_ == others.all_ && count_ == others.count_) return;
  const auto mine = all();
  const auto theirs = others.all();
  if (std::includes(mine.begin(), mine.end(), theirs.begin(), theirs.end())) return;
  if (std::includes(theirs.begin(), theirs.end(), mine.begin(), mine.end())) {
    *this = others;
    return;
  }
  const auto both = std::make_shared<Origin[]>(mine.size() + theirs.size());
  const Origin* end = std::set_union(mine.begin(), mine.end(), theirs.begin(), theirs.end(), both.get());
  const auto count = static_cast<size_t>(end - both.get());
  if (count > kMost) {
    *this = open();
    return;
  }
  all_ = both;
  count_ = static_cast<uint32_t>(count);
}

}  // namespace distag::autograd
