#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"

namespace distag::autograd {

// A value that came in from another worker: a slot of a recv, which its maker has given a name.
struct Origin {
  Id recv;
  uint32_t slot = 0;
  auto operator<=>(const Origin&) const = default;
};

// The origins on which a value depends, in order; or open: more than kMost, or joint steps. A list never changes, and
// most nodes share that of an input. A value type, cheap to copy.
class Origins {
 public:
  static constexpr size_t kMost = 64;

  Origins() = default;  // no origins
  // The slot `index` of a recv, whose maker keeps its slots in `all`.
  Origins(const std::shared_ptr<const Origin[]>& all, size_t index) : all_(all, all.get() + index), count_(1) {}
  static Origins open();

  bool is_none() const { return count_ == 0; }
  bool is_open() const { return count_ == kOpen; }
  std::span<const Origin> all() const { return {all_.get(), is_open() ? 0 : count_}; }

  // Adds the origins of another value on which this one depends.
  void add(const Origins& others);

 private:
  static constexpr uint32_t kOpen = UINT32_MAX;

  std::shared_ptr<const Origin[]> all_;
  uint32_t count_ = 0;
};

}  // namespace distag::autograd
