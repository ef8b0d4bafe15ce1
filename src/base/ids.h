#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace distag {

// Random, new at each start of a worker; never 0.
using Incarnation = uint64_t;

// Unique among all workers of all time: the maker, and a counter there. Names contexts, calls, passes, pairs of send
// and recv, transfers and rrefs on the wire.
struct Id {
  Incarnation maker = 0;
  uint64_t counter = 0;

  bool operator==(const Id&) const = default;
  auto operator<=>(const Id&) const = default;
  explicit operator bool() const { return maker != 0; }
};

}  // namespace distag

template <>
struct std::hash<distag::Id> {
  size_t operator()(const distag::Id& id) const noexcept {
    return static_cast<size_t>(id.maker ^ (id.counter * 0x9E3779B97F4A7C15u));
  }
};
